"""Acting: what callers and operators do to runs that somebody else may hold."""

from datetime import datetime

from outlast.database.transaction import Transaction
from outlast.native.store import Hold
from outlast.native.upkeep import NewAction
from outlast.run import CancelOutcome, RunStatus
from outlast.step_key import StepKey, parse_path

from .actions import Actions
from .ending import End, Ending

_RETRYABLE = frozenset({RunStatus.FAILED, RunStatus.DEAD, RunStatus.CANCELED})


class Acting(Ending, Actions):
    """The part of the store that cancels and retries."""

    def request_cancel(self, tx: Transaction, run_id: str, reason: str, now: datetime | None = None) -> tuple[CancelOutcome, int | None] | None:
        row = tx.run(self._sql["lock_run"], {"run": run_id}).first()
        if row is None:
            return None
        status, worker, token, ending, is_canceled, _generation, _lane = row
        if RunStatus(status).is_terminal or ending is not None:
            return CancelOutcome.ALREADY_OVER, None
        if is_canceled:
            return CancelOutcome.REQUESTED, worker
        at = self._now(now)
        tx.run(self._sql["mark_canceled"], {"run": run_id, "now": at})
        tx.run(self._sql["keep_cancel_reason"], {"run": run_id, "reason": reason})
        if token > 0:
            return CancelOutcome.REQUESTED, worker
        self._end(tx, [End(Hold(run_id, 0), RunStatus.CANCELED, is_held=False)], at)
        return CancelOutcome.CANCELED, None

    def retry_run(self, tx: Transaction, run_id: str, actor: str, reason: str, now: datetime | None = None) -> tuple[RunStatus, int] | None:
        row = tx.run(self._sql["lock_run"], {"run": run_id}).first()
        if row is None:
            return None
        status, generation, lane = RunStatus(row[0]), row[5], row[6]
        if status not in _RETRYABLE:
            return status, lane
        named, at = {"run": run_id}, self._now(now)
        if (failed := tx.run(self._sql["find_failed_key"], named).first()) is not None:
            path, name, number = failed
            self._retire(tx, run_id, generation, StepKey(parse_path(path), name, number))
        tx.run(self._sql["revive_run"], {**named, "now": at})
        tx.run(self._sql["clear_end"], named)
        tx.run(self._sql["reopen_key"], named)
        self.record_action(tx, NewAction("retry", actor, reason, run_id), now)
        return status, lane
