"""Contexts: what happened before in runs, put together from their records, failures, waits and reports."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from outlast.database.transaction import Transaction
from outlast.native.encoding import batch_to_json, failure_from_json
from outlast.native.history import EMPTY, FailedAttempt, History, LastProgress, Outcome, Record, RecordKind, Wait
from outlast.native.store import ClaimContext, Hold

from .parameters import SQL, array, step_key

RowsByRun = dict[str, list[tuple[Any, ...]]]


class Contexts:
    """The part of the store that reads histories."""

    def read_contexts(self, tx: Transaction, holds: Sequence[Hold], now: datetime | None = None) -> dict[Hold, ClaimContext]:
        if not holds:
            return {}
        asked = {"batch": batch_to_json([{"run": hold.run_id, "token": hold.token} for hold in holds]), "now": now}
        current = tx.run(SQL["read_holds"], asked).all()
        known = [run_id for run_id, *_, has_history in current if has_history]
        parts = read_parts(tx, known, "read_records", "read_failures", "read_waits", "read_progress")
        return {
            Hold(run_id, token): ClaimContext(
                history=_history(*(rows[run_id] for rows in parts), retired_seq=retired_seq) if has_history else EMPTY,
                cancel_reason=(reason or "") if is_canceled else None,
                is_past_deadline=is_past_deadline,
            )
            for run_id, token, is_canceled, reason, is_past_deadline, retired_seq, has_history in current
        }


def read_parts(tx: Transaction, run_ids: Sequence[str], *names: str) -> tuple[RowsByRun, ...]:
    """Run statements that return rows of runs, all in one round trip, and return each one's rows by run."""
    queued = [tx.run(SQL[name], {"runs": array(run_ids)}) if run_ids else None for name in names]
    return tuple(_by_run([] if rows is None else rows.all()) for rows in queued)


def _by_run(rows: list[tuple[Any, ...]]) -> RowsByRun:
    by_run: RowsByRun = defaultdict(list)
    for run_id, *row in rows:
        by_run[run_id].append(tuple(row))
    return by_run


def _history(
    records: list[tuple[Any, ...]], failures: list[tuple[Any, ...]], waits: list[tuple[Any, ...]], progress: list[tuple[Any, ...]], *, retired_seq: int | None
) -> History:
    return History(
        records=tuple(map(record_from_row, records)),
        failures=tuple(map(failed_attempt_from_row, failures)),
        waits=tuple(map(wait_from_row, waits)),
        progress=tuple(
            LastProgress(step_key(path, name, number), done, total, note)
            for path, name, number, _attempt, _started_at, done, total, note in progress
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
        key=step_key(path, name, number),
        seq=seq,
        kind=RecordKind(kind),
        outcome=Outcome(outcome),
        digest=digest,
        attempts=attempts,
        finished_at=finished_at,
        result=result,
        error=failure_from_json(error),
        started_at=started_at,
    )


def failed_attempt_from_row(row: tuple[Any, ...]) -> FailedAttempt:
    path, name, number, attempt, error, started_at, failed_at, retry_at, is_retired = row
    failure = failure_from_json(error)
    assert failure is not None, "a failed attempt always has its error"
    return FailedAttempt(step_key(path, name, number), attempt, failure, started_at, failed_at, retry_at, is_retired)


def wait_from_row(row: tuple[Any, ...]) -> Wait:
    path, name, number, kind, due_at, topic, after = row
    return Wait(step_key(path, name, number), RecordKind(kind), due_at, topic, after)
