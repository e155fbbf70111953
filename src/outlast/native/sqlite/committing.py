"""Committing: what the holder of runs writes, in groups. What a stale token asks for is refused and reported.

A group is one statement for each kind of row whatever its size: each call of the driver gives the interpreter lock
away, and beside a busy event loop getting it back can take milliseconds.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from math import isfinite
from typing import Any, TypeVar

from outlast.database.sqlite.instant import to_number, to_number_or_none
from outlast.database.transaction import Answer, Transaction
from outlast.limits import WARNINGS_MAX
from outlast.native.encoding import batch_to_json, failure_to_json
from outlast.native.history import ASKING, WAITING_BY_NAME, RecordKind, Wait
from outlast.native.mailbox import NewSignal
from outlast.native.store import ActivityRow, Checkpoint, FailureCheckpoint, Hold, RunCheckpoint, StepCheckpoint
from outlast.run import RunStatus
from outlast.step_key import StepKey

from .ending import End, Ending
from .mailbox import signal_row

C = TypeVar("C", StepCheckpoint, FailureCheckpoint)


class Committing(Ending):
    """The part of the store that writes checkpoints."""

    def commit_checkpoints(self, tx: Transaction, checkpoints: Sequence[Checkpoint], now: datetime | None = None) -> Answer[list[Checkpoint]]:
        steps = [checkpoint for checkpoint in checkpoints if isinstance(checkpoint, StepCheckpoint)]
        failures = [checkpoint for checkpoint in checkpoints if isinstance(checkpoint, FailureCheckpoint)]
        changes = [checkpoint for checkpoint in checkpoints if isinstance(checkpoint, RunCheckpoint)]
        refused: list[Checkpoint] = []
        refused += self._record_steps(tx, steps, self._now(now))
        refused += self._record_failures(tx, failures)
        refused += self._let_go(tx, changes, self._now(now))
        return lambda: refused

    def _record_steps(self, tx: Transaction, steps: Sequence[StepCheckpoint], now: int) -> list[StepCheckpoint]:
        if not steps:
            return []
        kept = tx.run(self._sql["insert_records"], {"batch": batch_to_json([step_row(step) for step in steps])}).count
        refused = [] if kept == len(steps) else self._stale(tx, steps)
        ended = [step for step in steps if step not in refused] if refused else steps
        if answered := [key_row(step, step.record.key) for step in ended if step.was_open and step.record.kind in ASKING]:
            tx.run(self._sql["delete_heard"], {"batch": batch_to_json(answered)})
        if heard := [key_row(step, step.record.key) | {"topic": step.heard[0], "heard": step.heard[1]} for step in ended if step.heard is not None]:
            tx.run(self._sql["move_cursors"], {"batch": batch_to_json(heard)})
        if sent := [_sent_row(step, step.sent) for step in ended if step.sent is not None]:
            tx.run(self._sql["send_signals"], {"batch": batch_to_json(sent), "now": now})
        if waits := [key_row(step, step.record.key) for step in ended if _may_wait(step)]:
            tx.run(self._sql["delete_ended_waits"], {"batch": batch_to_json(waits)})
        if (row := tx.run(self._sql["has_activity"]).first()) is not None and row[0]:
            tx.run(self._sql["delete_ended_activity"], {"batch": batch_to_json([key_row(step, step.record.key) for step in ended])})
        return refused

    def _record_failures(self, tx: Transaction, failures: Sequence[FailureCheckpoint]) -> list[FailureCheckpoint]:
        if not failures:
            return []
        kept = tx.run(self._sql["insert_failures"], {"batch": batch_to_json([_failure_row(failure) for failure in failures])}).count
        return [] if kept == len(failures) else self._stale(tx, failures)

    def _stale(self, tx: Transaction, checkpoints: Sequence[C]) -> list[C]:
        rows = tx.run(self._sql["list_current_holds"], {"holds": _holds(checkpoints)}).all()
        current = {(Hold(run_id, token), generation) for run_id, token, generation in rows}
        return [checkpoint for checkpoint in checkpoints if (checkpoint.hold, checkpoint.generation) not in current]

    def _let_go(self, tx: Transaction, changes: Sequence[RunCheckpoint], now: int) -> list[RunCheckpoint]:
        ended = self._end(tx, [_end_of(change) for change in changes if change.status.is_terminal], now)
        released = self._release(tx, [change for change in changes if not change.status.is_terminal], now)
        kept = [change for change in changes if change.hold in ended | released]
        for change in kept:
            for warning in change.warnings:
                tx.run(self._sql["add_warning"], {"run": change.hold.run_id, "warning": warning, "limit": WARNINGS_MAX})
            if change.retire is not None:
                self._retire(tx, change.hold.run_id, change.generation, change.retire)
        return [] if len(kept) == len(changes) else [change for change in changes if change.hold not in ended | released]

    def _release(self, tx: Transaction, changes: Sequence[RunCheckpoint], now: int) -> set[Hold]:
        if not changes:
            return set()
        rows = tx.run(self._sql["release_runs"], {"batch": batch_to_json([_release_row(change) for change in changes]), "now": now}).all()
        released = {Hold(*row) for row in rows}
        self._register_waits(tx, [change for change in changes if change.status is RunStatus.WAITING and change.hold in released], now)
        for change in changes:
            if change.hold in released and (change.error is not None or change.verdict is not None):
                tx.run(self._sql["note_run"], {"run": change.hold.run_id, "error": failure_to_json(change.error), "verdict": change.verdict})
        return released

    def _register_waits(self, tx: Transaction, parked: Sequence[RunCheckpoint], now: int) -> None:
        """Keep what parked runs wait for, and let those go on at once for whom a signal is there already."""
        if timed := [change.hold.run_id for change in parked if not change.waits]:
            tx.run(self._sql["delete_named_waits"], {"run_ids": batch_to_json(timed)})
        if waits := [_wait_row(change, wait) for change in parked for wait in change.waits]:
            tx.run(self._sql["insert_waits"], {"batch": batch_to_json(waits)})
        if named := [_named_row(change) for change in parked if any(wait.topic is not None for wait in change.waits)]:
            tx.run(self._sql["wake_parked"], {"batch": batch_to_json(named), "now": now})

    def find_kept(self, tx: Transaction, checkpoints: Sequence[Checkpoint]) -> list[Checkpoint]:
        steps = batch_to_json([key_row(one, one.record.key) for one in checkpoints if isinstance(one, StepCheckpoint)])
        failures = batch_to_json([_failure_row(one) for one in checkpoints if isinstance(one, FailureCheckpoint)])
        kept = {tuple(row) for row in tx.run(self._sql["find_records"], {"batch": steps}).all()}
        kept |= {tuple(row) for row in tx.run(self._sql["find_failures"], {"batch": failures}).all()}
        changes = [{"run": one.hold.run_id, "token": one.hold.token, "status": one.status} for one in checkpoints if isinstance(one, RunCheckpoint)]
        left = {Hold(*row) for row in tx.run(self._sql["find_changes"], {"batch": batch_to_json(changes)}).all()}
        return [one for one in checkpoints if _is_kept(one, kept, left)]

    def delete_failures(self, tx: Transaction, hold: Hold, generation: int, key: StepKey) -> int:
        named = {"run": hold.run_id, "token": hold.token, "generation": generation, "path": key.path_text, "name": key.name, "number": key.number}
        return tx.run(self._sql["forget_failures"], named).count

    def record_activity(self, tx: Transaction, rows: Sequence[ActivityRow]) -> None:
        if not rows:
            return
        tx.run(self._sql["record_activity"], {"batch": batch_to_json([_activity_row(row) for row in rows])})
        reports = Counter((*row.hold, row.generation) for row in rows if row.done is not None and isfinite(row.done))  # as what is no number is stored
        if reports:
            batch = [{"run": run_id, "token": token, "generation": generation, "reports": count} for (run_id, token, generation), count in reports.items()]
            tx.run(self._sql["count_reports"], {"batch": batch_to_json(batch)})


def _is_kept(one: Checkpoint, kept: set[tuple[Any, ...]], left: set[Hold]) -> bool:
    if isinstance(one, RunCheckpoint):
        return one.hold in left
    key, attempt = (one.record.key, ()) if isinstance(one, StepCheckpoint) else (one.failure.key, (one.failure.attempt,))
    return (*one.hold, one.generation, key.path_text, key.name, key.number, *attempt) in kept


def _holds(checkpoints: Iterable[Checkpoint]) -> str:
    return batch_to_json([{"run": checkpoint.hold.run_id, "token": checkpoint.hold.token} for checkpoint in checkpoints])


def key_row(checkpoint: StepCheckpoint | FailureCheckpoint | RunCheckpoint | ActivityRow, key: StepKey) -> dict[str, Any]:
    return {
        "run": checkpoint.hold.run_id,
        "token": checkpoint.hold.token,
        "generation": checkpoint.generation,
        "path": key.path_text,
        "name": key.name,
        "number": key.number,
    }


def step_row(step: StepCheckpoint) -> dict[str, Any]:
    record = step.record
    return {
        **key_row(step, record.key),
        "seq": record.seq,
        "kind": record.kind,
        "outcome": record.outcome,
        "digest": record.digest,
        "attempts": record.attempts,
        "started_at": to_number_or_none(record.started_at),
        "finished_at": to_number(record.finished_at),
        "error": failure_to_json(record.error),
        "result": record.result,
    }


def _failure_row(checkpoint: FailureCheckpoint) -> dict[str, Any]:
    failure = checkpoint.failure
    return {
        **key_row(checkpoint, failure.key),
        "attempt": failure.attempt,
        "started_at": to_number(failure.started_at),
        "failed_at": to_number(failure.failed_at),
        "retry_at": to_number_or_none(failure.retry_at),
        "is_retired": failure.is_retired,
        "error": failure_to_json(failure.error),
    }


def _activity_row(row: ActivityRow) -> dict[str, Any]:
    return {
        **key_row(row, row.key),
        "attempt": row.attempt,
        "started_at": to_number(row.started_at),
        "done": row.done,
        "total": row.total,
        "note": row.note,
    }


def _release_row(change: RunCheckpoint) -> dict[str, Any]:
    return {
        "run": change.hold.run_id,
        "token": change.hold.token,
        "generation": change.generation,
        "status": change.status,
        "due_at": to_number_or_none(change.due_at),
        "attempts": change.attempts,
        "passes_cancel": change.passes_cancel,
    }


def _may_wait(step: StepCheckpoint) -> bool:
    """Tell whether a wait of the call may be in the database."""
    kind = step.record.kind
    return kind in (RecordKind.SLEEP, RecordKind.TIMEOUT) or (step.was_open and kind in WAITING_BY_NAME)


def _wait_row(change: RunCheckpoint, wait: Wait) -> dict[str, Any]:
    return {**key_row(change, wait.key), "kind": wait.kind, "due_at": to_number_or_none(wait.due_at), "topic": wait.topic, "after": wait.after}


def _named_row(change: RunCheckpoint) -> dict[str, Any]:
    waits = [{"topic": wait.topic, "after": wait.after} for wait in change.waits if wait.topic is not None]
    return {"run": change.hold.run_id, "token": change.hold.token, "waits": waits}


def _sent_row(step: StepCheckpoint, signal: NewSignal) -> dict[str, Any]:
    return {**signal_row(signal), **key_row(step, step.record.key), "recipient": signal.run}


def _end_of(change: RunCheckpoint) -> End:
    return End(
        hold=change.hold,
        status=change.status,
        is_held=True,
        has_key=change.idempotency_key is not None,
        attempts=change.attempts,
        output=change.output,
        error=change.error,
        failed_key=change.failed_key,
        verdict=change.verdict,
        passes_cancel=change.passes_cancel,
        may_have_asked=change.may_have_asked,
    )
