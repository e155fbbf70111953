"""Transition: the one way in which a run's status changes after its claim, whoever asks for it; wakes by time and by name apart.

The caller says which status and token it saw; what does not fit is not changed, and is absent from the answer.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from outlast.database.transaction import Rows, Transaction
from outlast.failure import Failure
from outlast.limits import WARNINGS_MAX
from outlast.native.encoding import batch_to_json, failure_to_json
from outlast.native.store import Hold, RunCheckpoint
from outlast.run import RunStatus
from outlast.step_key import StepKey

from .parameters import SQL, key_columns

_WITHOUT_SUCCESS = frozenset({RunStatus.FAILED, RunStatus.CANCELED, RunStatus.DEAD})


def change_runs(tx: Transaction, changes: Sequence[dict[str, Any]], now: datetime | None) -> Rows:
    """Change runs, and return id, token and lane of each that was changed."""
    rows = tx.run(SQL["change_runs"], {"batch": batch_to_json(changes), "warnings": WARNINGS_MAX, "now": now})
    if ended := [
        {name: change[name] for name in ("id", "token", "status")} for change in changes if change["status"] in _WITHOUT_SUCCESS or change.get("may_have_asked")
    ]:
        tx.run(SQL["withdraw_questions"], {"batch": batch_to_json(ended), "now": now})
    return rows


def retire_records(tx: Transaction, records: Sequence[tuple[str, int | None, StepKey]]) -> None:
    """Take records out of the histories of runs that this transaction has locked; with a token, only if it has put the run down."""
    if records:
        batch = [{"run": run_id, "token": token} | key_columns(key) for run_id, token, key in records]
        tx.run(SQL["retire_record"], {"batch": batch_to_json(batch)})


def checkpoint_columns(checkpoint: RunCheckpoint) -> dict[str, Any]:
    """Return the change that a worker makes to a run that it holds; what says nothing is left out."""
    columns: dict[str, Any] = {
        "id": checkpoint.hold.run_id,
        "token": checkpoint.hold.token,
        "found": RunStatus.RUNNING,
        "status": checkpoint.status,
        "attempts": checkpoint.attempts,
        "passes_cancel": checkpoint.passes_cancel,
    }
    if checkpoint.may_have_asked:
        columns["may_have_asked"] = True
    if checkpoint.due_at is not None:
        columns["due_at"] = checkpoint.due_at
    if checkpoint.status.is_terminal and checkpoint.idempotency_key is not None:
        columns["key"] = checkpoint.idempotency_key
    if checkpoint.waits:
        columns["waits"] = [
            key_columns(wait.key) | {"kind": wait.kind, "due_at": wait.due_at, "topic": wait.topic, "after": wait.after} for wait in checkpoint.waits
        ]
    return columns | _body_columns(checkpoint)


def _body_columns(checkpoint: RunCheckpoint) -> dict[str, Any]:
    """Return what goes into the run's body, nothing for one that only parks or is handed back."""
    body: dict[str, Any] = {}
    if checkpoint.output is not None:
        body["output"] = checkpoint.output
    if checkpoint.error is not None:
        body["error"] = failure_to_json(checkpoint.error)
    if checkpoint.failed_key is not None:
        body |= {f"failed_{name}": value for name, value in key_columns(checkpoint.failed_key).items()}
    if checkpoint.verdict is not None:
        body["verdict"] = checkpoint.verdict
    if checkpoint.warnings:
        body["warnings"] = checkpoint.warnings
    # An earlier attempt of the body, or an earlier end, may have left its error there, which an end takes away.
    is_written = bool(body) or checkpoint.status.is_terminal
    return body | {"has_body": True} if is_written else body


def change_columns(
    hold: Hold, found: RunStatus, status: RunStatus, *, delay: timedelta | None = None, error: Failure | None = None, key: str | None = None
) -> dict[str, Any]:
    """Return a change that the store makes by itself; a cancel does not hold it up, for nobody's body is running."""
    columns = {"id": hold.run_id, "token": hold.token, "found": found, "status": status, "passes_cancel": True, "keeps_losses": True, "key": key}
    if delay is not None:
        columns["delay"] = delay.total_seconds()
    if error is not None:
        columns |= {"has_body": True, "error": failure_to_json(error)}
    return columns
