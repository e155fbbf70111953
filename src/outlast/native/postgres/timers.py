"""Timers: runs whose time has come, runs past their deadline, and what their holders must be told."""

from datetime import datetime

from outlast.database.transaction import Transaction
from outlast.failure import Failure
from outlast.native.store import Flagged, Hold
from outlast.run import RunStatus

from .parameters import SQL
from .transition import change_columns, change_runs


class Timers:
    """The part of the store that looks at due times."""

    def wake_due(self, tx: Transaction, limit: int, now: datetime | None = None) -> set[int]:
        return {lane for (lane,) in tx.run(SQL["wake_due"], {"limit": limit, "now": now}).all()}

    def end_overdue(self, tx: Transaction, limit: int, now: datetime | None = None) -> int:
        changes = []
        for run_id, token, status, deadline_at, key in tx.run(SQL["lock_overdue"], {"limit": limit, "now": now}).all():
            hold, found = Hold(run_id, token), RunStatus(status)
            if token == 0:
                changes.append(change_columns(hold, found, RunStatus.FAILED, error=_overdue(deadline_at), key=key))
            else:
                changes.append(change_columns(hold, found, RunStatus.PENDING))
        return change_runs(tx, changes, now).count if changes else 0

    def list_flagged(self, tx: Transaction, worker_id: int, now: datetime | None = None) -> list[Flagged]:
        rows = tx.run(SQL["list_flagged"], {"worker": worker_id, "now": now}).all()
        return [
            Flagged(Hold(run_id, token), (reason or "") if is_canceled else None, is_past_deadline)
            for run_id, token, is_canceled, reason, is_past_deadline in rows
        ]


def _overdue(deadline_at: datetime) -> Failure:
    return Failure("outlast.DeadlineExceeded", f"its deadline, {deadline_at.isoformat()}, passed before it ever ran")
