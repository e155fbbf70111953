"""Committing: what a worker writes of its runs, as few statements as a group needs, and what became of it."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from outlast.database.transaction import Rows, Transaction
from outlast.native.encoding import batch_to_json, failure_to_json
from outlast.native.store import ActivityRow, Checkpoint, FailureCheckpoint, RunCheckpoint, StepCheckpoint

from .parameters import SQL, key_columns
from .transition import change_runs, checkpoint_columns, retire_records

Identity = tuple[Any, ...]
Queued = list[tuple[Rows, dict[Identity, Checkpoint]]]


class Committing:
    """The part of the store that group commits use."""

    def commit_checkpoints(self, tx: Transaction, checkpoints: Sequence[Checkpoint], now: datetime | None = None) -> Callable[[], list[Checkpoint]]:
        steps, failures, changes = _sorted(checkpoints)
        queued: Queued = []
        if steps:
            queued.append((tx.run(SQL["insert_records"], {"batch": batch_to_json([_step_columns(each) for each in steps])}), _by_identity(steps)))
        if failures:
            rows = tx.run(SQL["insert_failures"], {"batch": batch_to_json([_failure_columns(each) for each in failures])})
            queued.append((rows, _by_identity(failures)))
        if changes:
            queued.append(_change(tx, changes, now))
        return lambda: [checkpoint for rows, sent in queued for checkpoint in _refused(rows, sent)]

    def find_kept(self, tx: Transaction, checkpoints: Sequence[Checkpoint]) -> list[Checkpoint]:
        steps, failures, changes = _sorted(checkpoints)
        queued: Queued = []
        if steps:
            queued.append((tx.run(SQL["find_records"], {"batch": batch_to_json([_place(each) for each in steps])}), _by_identity(steps)))
        if failures:
            queued.append((tx.run(SQL["find_failures"], {"batch": batch_to_json([_place(each) for each in failures])}), _by_identity(failures)))
        if changes:
            batch = [{"id": each.hold.run_id, "token": each.hold.token, "status": each.status} for each in changes]
            queued.append((tx.run(SQL["find_changes"], {"batch": batch_to_json(batch)}), _by_identity(changes)))
        kept = {id(sent[row]) for rows, sent in queued for row in rows.all()}
        return [each for each in checkpoints if id(each) in kept]

    def record_activity(self, tx: Transaction, rows: Sequence[ActivityRow]) -> None:
        latest = {(row.hold, row.key): row for row in rows}  # one statement cannot write a row twice
        if latest:
            tx.run(SQL["record_activity"], {"batch": batch_to_json([_activity_columns(row) for row in latest.values()])})


def _sorted(checkpoints: Sequence[Checkpoint]) -> tuple[list[StepCheckpoint], list[FailureCheckpoint], list[RunCheckpoint]]:
    """Return each kind by run, so that every group locks rows in the same order."""
    steps = [each for each in checkpoints if isinstance(each, StepCheckpoint)]
    failures = [each for each in checkpoints if isinstance(each, FailureCheckpoint)]
    changes = [each for each in checkpoints if isinstance(each, RunCheckpoint)]
    return sorted(steps, key=_run_id), sorted(failures, key=_run_id), sorted(changes, key=_run_id)


def _run_id(checkpoint: Checkpoint) -> str:
    return checkpoint.hold.run_id


def _identity(checkpoint: Checkpoint) -> Identity:
    """Return what the statements return for a checkpoint that was kept."""
    if isinstance(checkpoint, RunCheckpoint):
        return (checkpoint.hold.run_id,)
    if isinstance(checkpoint, StepCheckpoint):
        key = checkpoint.record.key
        return checkpoint.hold.run_id, key.path_text, key.name, key.number
    key = checkpoint.failure.key
    return checkpoint.hold.run_id, key.path_text, key.name, key.number, checkpoint.failure.attempt


def _by_identity(checkpoints: Sequence[Checkpoint]) -> dict[Identity, Checkpoint]:
    return {_identity(checkpoint): checkpoint for checkpoint in checkpoints}


def _refused(rows: Rows, sent: dict[Identity, Checkpoint]) -> list[Checkpoint]:
    if rows.count == len(sent):  # almost always, and then the rows need not be read
        return []
    width = len(next(iter(sent)))  # a statement may return more than what identifies the row
    kept = {row[:width] for row in rows.all()}
    return [checkpoint for identity, checkpoint in sent.items() if identity not in kept]


def _change(tx: Transaction, changes: Sequence[RunCheckpoint], now: datetime | None) -> tuple[Rows, dict[Identity, Checkpoint]]:
    rows = change_runs(tx, [checkpoint_columns(each) for each in changes], now)
    retiring = {each.hold.run_id: each.retire for each in changes if each.retire is not None}
    if retiring:  # rare, and worth the round trip: only a run that was changed loses its record
        retire_records(tx, [(run_id, retiring[run_id]) for run_id, _ in rows.all() if run_id in retiring])
    return rows, _by_identity(changes)


def _step_columns(checkpoint: StepCheckpoint) -> dict[str, Any]:
    record = checkpoint.record
    return {
        "run": checkpoint.hold.run_id,
        "token": checkpoint.hold.token,
        "generation": checkpoint.generation,
        "path": record.key.path_text,
        "name": record.key.name,
        "number": record.key.number,
        "seq": record.seq,
        "kind": record.kind,
        "outcome": record.outcome,
        "digest": record.digest,
        "attempts": record.attempts,
        "started_at": record.started_at,
        "finished_at": record.finished_at,
        "result": record.result,
        "error": failure_to_json(record.error),
    }


def _failure_columns(checkpoint: FailureCheckpoint) -> dict[str, Any]:
    failure = checkpoint.failure
    return _place(checkpoint) | {
        "error": failure_to_json(failure.error),
        "started_at": failure.started_at,
        "failed_at": failure.failed_at,
        "retry_at": failure.retry_at,
        "is_retired": failure.is_retired,
    }


def _place(checkpoint: StepCheckpoint | FailureCheckpoint) -> dict[str, Any]:
    """Return where a record or a failed attempt is kept, and under which token."""
    place: dict[str, Any] = {"run": checkpoint.hold.run_id, "token": checkpoint.hold.token, "generation": checkpoint.generation}
    if isinstance(checkpoint, StepCheckpoint):
        return place | key_columns(checkpoint.record.key)
    return place | key_columns(checkpoint.failure.key) | {"attempt": checkpoint.failure.attempt}


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
