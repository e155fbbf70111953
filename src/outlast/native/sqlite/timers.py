"""Timers: what comes due by itself, and what the holder of a run has to be told."""

from collections.abc import Sequence
from datetime import datetime

from outlast.database.sqlite.instant import from_number
from outlast.database.transaction import Transaction
from outlast.failure import Failure
from outlast.native.encoding import batch_to_json
from outlast.native.store import Flagged, Hold
from outlast.run import RunStatus

from .ending import End, Ending


class Timers(Ending):
    """The part of the store that the clock moves."""

    def wake_due(self, tx: Transaction, limit: int, now: datetime | None = None) -> set[int]:
        return {lane for (lane,) in tx.run(self._sql["wake_due"], {"now": self._now(now), "limit": limit}).all()}

    def end_overdue(self, tx: Transaction, limit: int, now: datetime | None = None) -> int:
        at = self._now(now)
        overdue: Sequence[tuple[str, int, int]] = [
            (run_id, token, deadline) for run_id, token, deadline in tx.run(self._sql["lock_overdue"], {"now": at, "limit": limit}).all()
        ]
        never_ran = [_overdue(run_id, deadline) for run_id, token, deadline in overdue if token == 0]
        self._end(tx, never_ran, at)
        if others := [{"run": run_id, "token": token} for run_id, token, _deadline in overdue if token > 0]:
            tx.run(self._sql["wake_overdue"], {"batch": batch_to_json(others), "now": at})
        return len(overdue)

    def list_flagged(self, tx: Transaction, worker_id: int, now: datetime | None = None) -> list[Flagged]:
        rows = tx.run(self._sql["list_flagged"], {"worker": worker_id, "now": self._now(now)}).all()
        return [
            Flagged(Hold(run_id, token), (reason or "") if is_canceled else None, bool(is_past_deadline))
            for run_id, token, is_canceled, reason, is_past_deadline in rows
        ]


def _overdue(run_id: str, deadline: int) -> End:
    message = f"its deadline, {from_number(deadline).isoformat()}, passed before it ever ran"
    return End(Hold(run_id, 0), RunStatus.FAILED, is_held=False, error=Failure(type="outlast.DeadlineExceeded", message=message))
