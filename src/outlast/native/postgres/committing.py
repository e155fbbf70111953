"""Committing: what a worker writes of its runs, as few statements as a group needs, and what became of it."""

from collections.abc import Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any

from outlast.database.transaction import Answer, Rows, Transaction
from outlast.native.encoding import batch_to_json, failure_to_json
from outlast.native.history import ASKING, Outcome, RecordKind
from outlast.native.store import ActivityRow, Checkpoint, FailureCheckpoint, Hold, RunCheckpoint, StepCheckpoint
from outlast.step_key import StepKey

from .mailbox import lock_topics, parked_by_name, signal_columns, wake_parked
from .parameters import SQL, key_columns
from .transition import change_runs, checkpoint_columns, retire_records

Sent = tuple[Rows, Sequence[Checkpoint]]
_STEP, _RESULT = RecordKind.STEP, Outcome.RESULT


class Committing:
    """The part of the store that group commits use."""

    def commit_checkpoints(self, tx: Transaction, checkpoints: Sequence[Checkpoint], now: datetime | None = None) -> Answer[list[Checkpoint]]:
        steps, failures, changes = _sorted(checkpoints)
        sent: list[Sent] = []
        if steps:
            sent.append((tx.run(SQL["insert_records"], {"batch": batch_to_json([step_columns(each) for each in steps])}), steps))
            if answered := [place_columns(each) for each in steps if each.was_open and each.record.kind in ASKING]:
                tx.run(SQL["delete_heard"], {"batch": batch_to_json(answered)})
            if heard := [place_columns(each) | {"topic": each.heard[0], "heard": each.heard[1]} for each in steps if each.heard is not None]:
                tx.run(SQL["move_cursors"], {"batch": batch_to_json(heard)})
            if sending := [each for each in steps if each.sent is not None]:
                tx.run(SQL["send_signals"], {"batch": batch_to_json(list(map(_sent_columns, range(len(sending)), sending))), "now": now})
            if was_open := [place_columns(each) for each in steps if each.was_open]:
                tx.run(SQL["close_calls"], {"batch": batch_to_json(was_open)})
        if failures:
            sent.append((tx.run(SQL["insert_failures"], {"batch": batch_to_json([_failure_columns(each) for each in failures])}), failures))
        if changes:
            sent.append((_change(tx, changes, now), changes))
        return lambda: [checkpoint for rows, group in sent for checkpoint in _refused(rows, group)]

    def find_kept(self, tx: Transaction, checkpoints: Sequence[Checkpoint]) -> list[Checkpoint]:
        steps, failures, changes = _sorted(checkpoints)
        queued: list[Rows] = []
        if steps:
            queued.append(tx.run(SQL["find_records"], {"batch": batch_to_json([place_columns(each) for each in steps])}))
        if failures:
            queued.append(tx.run(SQL["find_failures"], {"batch": batch_to_json([place_columns(each) for each in failures])}))
        if changes:
            batch = [{"id": each.hold.run_id, "token": each.hold.token, "status": each.status} for each in changes]
            queued.append(tx.run(SQL["find_changes"], {"batch": batch_to_json(batch)}))
        kept = {row for rows in queued for row in rows.all()}
        return [each for each in checkpoints if _identity(each) in kept]

    def delete_failures(self, tx: Transaction, hold: Hold, generation: int, key: StepKey) -> int:
        return tx.run(SQL["forget_failures"], {"run": hold.run_id, "token": hold.token, "generation": generation, **key_columns(key)}).count

    def record_activity(self, tx: Transaction, rows: Sequence[ActivityRow]) -> None:
        left = list(rows)
        while left:  # once, but for a step that is there twice: one statement cannot write a row twice
            first = {(row.hold, row.key): row for row in reversed(left)}
            tx.run(SQL["record_activity"], {"batch": batch_to_json([_activity_columns(row) for row in first.values()])})
            left = [row for row in left if row is not first[row.hold, row.key]]


def _sorted(checkpoints: Sequence[Checkpoint]) -> tuple[list[StepCheckpoint], list[FailureCheckpoint], list[RunCheckpoint]]:
    """Return each kind by run, so that every group locks rows in the same order."""
    ordered = sorted(checkpoints, key=_hold)
    steps = [each for each in ordered if type(each) is StepCheckpoint]
    if len(steps) == len(ordered):
        return steps, [], []
    return steps, [each for each in ordered if isinstance(each, FailureCheckpoint)], [each for each in ordered if isinstance(each, RunCheckpoint)]


_hold = attrgetter("hold")


def _identity(checkpoint: Checkpoint) -> tuple[Any, ...]:
    """Return what the statements that look for checkpoints return first of one that is there."""
    if isinstance(checkpoint, RunCheckpoint):
        return tuple(checkpoint.hold)
    key, attempt = (checkpoint.record.key, ()) if isinstance(checkpoint, StepCheckpoint) else (checkpoint.failure.key, (checkpoint.failure.attempt,))
    return *checkpoint.hold, checkpoint.generation, key.path_text, key.name, key.number, *attempt


def _answered(checkpoint: Checkpoint) -> tuple[Any, ...]:
    """Return what the statement that keeps a checkpoint returns first; of a record its `seq`, because shorter rows are cheaper to send."""
    return (*checkpoint.hold, checkpoint.record.seq) if isinstance(checkpoint, StepCheckpoint) else _identity(checkpoint)


def _refused(rows: Rows, sent: Sequence[Checkpoint]) -> list[Checkpoint]:
    if rows.count == len(sent):  # almost always, and then the rows need not be read
        return []
    identities = [_answered(checkpoint) for checkpoint in sent]
    kept = {row[: len(identities[0])] for row in rows.all()}  # a statement may return more than what identifies the row
    return [checkpoint for checkpoint, identity in zip(sent, identities, strict=True) if identity not in kept]


def _change(tx: Transaction, changes: Sequence[RunCheckpoint], now: datetime | None) -> Rows:
    if parked := parked_by_name(changes):
        lock_topics(tx, [wait["topic"] for each in parked for wait in each["waits"]])
    rows = change_runs(tx, [checkpoint_columns(each) for each in changes], now)
    if parked:
        wake_parked(tx, parked, now)
    retire_records(tx, [(each.hold.run_id, each.hold.token, each.retire) for each in changes if each.retire is not None])
    return rows


def step_columns(checkpoint: StepCheckpoint) -> dict[str, Any]:
    """Return a record as the statement takes it, which knows what most of them have in common: that is left out."""
    (run_id, token), record = checkpoint.hold, checkpoint.record
    path, name, number = record.key
    columns: dict[str, Any] = {"run": run_id, "token": token, "name": name, "seq": record.seq, "finished_at": record.finished_at, "result": record.result}
    if record.started_at is not None:
        columns["started_at"] = record.started_at
    if record.digest:
        columns["digest"] = record.digest
    if number:
        columns["number"] = number
    if path:
        columns["path"] = record.key.path_text
    if checkpoint.generation:
        columns["generation"] = checkpoint.generation
    if record.attempts != 1:
        columns["attempts"] = record.attempts
    if record.kind is not _STEP:
        columns["kind"] = record.kind
    if record.outcome is not _RESULT:
        columns |= {"outcome": record.outcome, "error": failure_to_json(record.error)}
    return columns


def _failure_columns(checkpoint: FailureCheckpoint) -> dict[str, Any]:
    failure = checkpoint.failure
    return place_columns(checkpoint) | {
        "error": failure_to_json(failure.error),
        "started_at": failure.started_at,
        "failed_at": failure.failed_at,
        "retry_at": failure.retry_at,
        "is_retired": failure.is_retired,
    }


def place_columns(checkpoint: StepCheckpoint | FailureCheckpoint) -> dict[str, Any]:
    """Return where a record or a failed attempt is kept, and under which token."""
    place: dict[str, Any] = {"run": checkpoint.hold.run_id, "token": checkpoint.hold.token, "generation": checkpoint.generation}
    if isinstance(checkpoint, StepCheckpoint):
        return place | key_columns(checkpoint.record.key)
    return place | key_columns(checkpoint.failure.key) | {"attempt": checkpoint.failure.attempt}


def _sent_columns(place: int, checkpoint: StepCheckpoint) -> dict[str, Any]:
    signal = checkpoint.sent
    assert signal is not None  # the caller has seen to it
    columns = signal_columns(signal)
    return place_columns(checkpoint) | columns | {"place": place, "run": checkpoint.hold.run_id, "recipient": signal.run, "idempotency_key": columns["key"]}


def _activity_columns(row: ActivityRow) -> dict[str, Any]:
    return {
        "run": row.hold.run_id,
        "token": row.hold.token,
        "generation": row.generation,
        **key_columns(row.key),
        "attempt": row.attempt,
        "started_at": row.started_at,
        "done": row.done,
        "total": row.total,
        "note": row.note,
    }
