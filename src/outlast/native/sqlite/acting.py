"""Acting: what callers and operators do to runs that somebody else may hold."""

from datetime import datetime

from outlast.database.transaction import Transaction
from outlast.native.history import RecordKind
from outlast.native.store import Hold
from outlast.native.upkeep import NewAction, Resumed
from outlast.run import CancelOutcome, RunStatus
from outlast.step_key import StepKey, parse_path

from .actions import Actions
from .ending import End, Ending

_RETRYABLE = frozenset({RunStatus.FAILED, RunStatus.DEAD, RunStatus.CANCELED})


class Acting(Ending, Actions):
    """The part of the store that cancels, retries and resumes."""

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
        if (failed := tx.run(self._sql["find_failed_key"], {"run": run_id}).first()) is not None:
            path, name, number = failed
            self._retire(tx, run_id, generation, StepKey(parse_path(path), name, number))
        self._revive(tx, run_id, self._now(now))
        self.record_action(tx, NewAction("retry", actor, reason, run_id), now)
        return status, lane

    def resume_run(self, tx: Transaction, run_id: str, result: str, actor: str, reason: str, now: datetime | None = None) -> Resumed | None:
        row = tx.run(self._sql["lock_run"], {"run": run_id}).first()
        if row is None:
            return None
        status, lane, at = RunStatus(row[0]), row[6], self._now(now)
        named = tx.run(self._sql["find_failed_key"], {"run": run_id}).first() if status is RunStatus.FAILED else None
        if named is None:
            return Resumed(status, lane, 0)
        place = {"run": run_id} | dict(zip(("path", "name", "number"), named, strict=True))
        failed = tx.run(self._sql["find_failed_record"], place).first()
        if failed is None:
            return Resumed(status, lane, 0)
        seq, kind, digest, attempts, started_at, generation = failed
        key = StepKey(parse_path(named[0]), named[1], named[2])
        self._retire(tx, run_id, generation, key)
        given = {"seq": seq, "kind": kind, "digest": digest, "attempts": attempts, "started_at": started_at, "result": result, "now": at}
        tx.run(self._sql["insert_resumed"], place | given)
        self._revive(tx, run_id, at)
        self.record_action(tx, NewAction("resume", actor, reason, run_id), now)
        return Resumed(status, lane, generation, key, RecordKind(kind))

    def _revive(self, tx: Transaction, run_id: str, now: int) -> None:
        named = {"run": run_id}
        tx.run(self._sql["revive_run"], {**named, "now": now})
        tx.run(self._sql["clear_end"], named)
        tx.run(self._sql["reopen_key"], named)
