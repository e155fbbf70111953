"""Acting: cancel, retry and resume of one run, decided under its row's lock."""

from datetime import datetime

from outlast.database.transaction import Transaction
from outlast.ids import is_run_id
from outlast.native.history import RecordKind
from outlast.native.store import Hold
from outlast.native.upkeep import NewAction, Resumed
from outlast.run import CancelOutcome, RunStatus

from .actions import record_action
from .parameters import SQL, step_key
from .transition import change_columns, change_runs, retire_records

_RETRYABLE = frozenset({RunStatus.FAILED, RunStatus.DEAD, RunStatus.CANCELED})


class Acting:
    """The part of the store that operators and callers use on one run."""

    def request_cancel(self, tx: Transaction, run_id: str, reason: str, now: datetime | None = None) -> tuple[CancelOutcome, int | None] | None:
        row = tx.run(SQL["lock_run"], {"run": run_id}).first() if is_run_id(run_id) else None
        if row is None:
            return None
        status, token, _, worker, ending, is_canceled, key, *_ = row
        found = RunStatus(status)
        if found.is_terminal or ending is not None:
            return CancelOutcome.ALREADY_OVER, None
        if not is_canceled:
            tx.run(SQL["mark_canceled"], {"run": run_id, "reason": reason, "now": now})
        if found == RunStatus.RUNNING:
            return CancelOutcome.REQUESTED, worker
        if token == 0:
            change_runs(tx, [change_columns(Hold(run_id, token), found, RunStatus.CANCELED, key=key)], now)
            return CancelOutcome.CANCELED, None
        if not is_canceled:
            change_runs(tx, [change_columns(Hold(run_id, token), found, RunStatus.PENDING)], now)
        return CancelOutcome.REQUESTED, None

    def retry_run(self, tx: Transaction, run_id: str, actor: str, reason: str, now: datetime | None = None) -> tuple[RunStatus, int] | None:
        row = tx.run(SQL["lock_run"], {"run": run_id}).first() if is_run_id(run_id) else None
        if row is None:
            return None
        status, _, lane, *_, path, name, number = row
        found = RunStatus(status)
        if found in _RETRYABLE:
            if name is not None:
                retire_records(tx, [(run_id, None, step_key(path, name, number))])
            tx.run(SQL["revive_run"], {"run": run_id, "now": now})
            record_action(tx, NewAction("retry", actor, reason, run_id), now)
        return found, lane

    def resume_run(self, tx: Transaction, run_id: str, result: str, actor: str, reason: str, now: datetime | None = None) -> Resumed | None:
        row = tx.run(SQL["lock_run"], {"run": run_id}).first() if is_run_id(run_id) else None
        if row is None:
            return None
        status, _, lane, *_, path, name, number = row
        place = {"run": run_id, "path": path, "name": name, "number": number}
        failed = tx.run(SQL["find_failed_record"], place).first() if status == RunStatus.FAILED and name is not None else None
        if failed is None:
            return Resumed(RunStatus(status), lane, 0)
        seq, kind, digest, attempts, started_at, generation = failed
        key = step_key(path, name, number)
        retire_records(tx, [(run_id, None, key)])
        given = {"seq": seq, "kind": kind, "digest": digest, "attempts": attempts, "started_at": started_at, "result": result, "now": now}
        tx.run(SQL["insert_resumed"], place | given)
        tx.run(SQL["revive_run"], {"run": run_id, "now": now})
        record_action(tx, NewAction("resume", actor, reason, run_id), now)
        return Resumed(RunStatus.FAILED, lane, generation, key, RecordKind(kind))
