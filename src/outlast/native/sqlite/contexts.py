"""Contexts: what happened before in claimed runs, put together from their records, failures, waits and reports."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from outlast.database.sqlite.instant import from_number, from_number_or_none
from outlast.database.transaction import Transaction
from outlast.native.encoding import batch_to_json, failure_from_json
from outlast.native.history import FailedAttempt, History, LastProgress, Outcome, Record, RecordKind, Wait
from outlast.native.store import ClaimContext, Hold
from outlast.step_key import StepKey, parse_path

from .tables import Tables


class Contexts(Tables):
    """The part of the store that reads histories."""

    def read_contexts(self, tx: Transaction, holds: Sequence[Hold], now: datetime | None = None) -> dict[Hold, ClaimContext]:
        if not holds:
            return {}
        asked = {"holds": batch_to_json([{"run": hold.run_id, "token": hold.token} for hold in holds]), "now": self._now(now)}
        current = tx.run(self._sql["read_holds"], asked).all()
        runs = batch_to_json([{"run": row[0], "generation": row[2]} for row in current])
        records, failures, waits, activity = (self._rows_of_runs(tx, name, runs) for name in ("read_records", "read_failures", "read_waits", "read_progress"))
        return {
            Hold(run_id, token): ClaimContext(
                history=_history(records[run_id], failures[run_id], waits[run_id], activity[run_id], retired_seq),
                cancel_reason=(reason or "") if is_canceled else None,
                is_past_deadline=bool(is_past_deadline),
            )
            for run_id, token, _generation, is_canceled, reason, is_past_deadline, retired_seq in current
        }


def _history(
    records: list[tuple[Any, ...]], failures: list[tuple[Any, ...]], waits: list[tuple[Any, ...]], activity: list[tuple[Any, ...]], retired_seq: int | None
) -> History:
    return History(
        records=tuple(map(record_from_row, records)),
        failures=tuple(map(failed_attempt_from_row, failures)),
        waits=tuple(map(wait_from_row, waits)),
        progress=tuple(
            LastProgress(StepKey(parse_path(path), name, number), done, total, note)
            for path, name, number, _attempt, _started_at, done, total, note in activity
            if done is not None
        ),
        retired_seq=retired_seq,
        record_bytes=sum(_bytes(row[9]) + _bytes(row[10]) for row in records),
    )


def _bytes(text: str | None) -> int:
    if text is None:
        return 0
    return len(text) if text.isascii() else len(text.encode())


def record_from_row(row: tuple[Any, ...]) -> Record:
    path, name, number, seq, kind, outcome, digest, attempts, finished_at, result, error, started_at = row
    return Record(
        key=StepKey(parse_path(path), name, number),
        seq=seq,
        kind=RecordKind(kind),
        outcome=Outcome(outcome),
        digest=digest,
        attempts=attempts,
        finished_at=from_number(finished_at),
        result=result,
        error=failure_from_json(error),
        started_at=from_number_or_none(started_at),
    )


def failed_attempt_from_row(row: tuple[Any, ...]) -> FailedAttempt:
    path, name, number, attempt, error, started_at, failed_at, retry_at, is_retired = row
    failure = failure_from_json(error)
    assert failure is not None  # the column is NOT NULL
    return FailedAttempt(
        key=StepKey(parse_path(path), name, number),
        attempt=attempt,
        error=failure,
        started_at=from_number(started_at),
        failed_at=from_number(failed_at),
        retry_at=from_number_or_none(retry_at),
        is_retired=bool(is_retired),
    )


def wait_from_row(row: tuple[Any, ...]) -> Wait:
    path, name, number, kind, due_at, topic, after = row
    return Wait(StepKey(parse_path(path), name, number), RecordKind(kind), from_number_or_none(due_at), topic, after)
