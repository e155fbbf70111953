"""Workers: incarnations, their leases and ends, and the runs that they leave behind."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, cast

from outlast.database.transaction import Transaction
from outlast.ids import is_run_id
from outlast.limits import PAGE_MAX
from outlast.native.encoding import batch_to_json
from outlast.native.store import Hold, NewWorker, Orphan, Recovery, WorkerRow
from outlast.run import RunStatus

from .parameters import SQL, array
from .transition import change_columns, change_runs

_WATCH_LOCK = 0x6F75746C61737401
"""An advisory lock key: `outlast` in letters, and a number. Workers' own keys are smaller."""


class Workers:
    """The part of the store that knows workers."""

    def record_worker(self, tx: Transaction, worker: NewWorker, now: datetime | None = None) -> None:
        parameters = {
            "id": worker.id,
            "name": worker.name,
            "process": worker.process,
            "lanes": array(worker.lanes),
            "tasks": worker.tasks,
            "lease": worker.lease,
            "is_provable": worker.is_provable,
            "now": now,
        }
        tx.run(SQL["insert_worker"], parameters)

    def renew_worker(self, tx: Transaction, worker_id: int, now: datetime | None = None, *, is_provable: bool = True) -> datetime | None:
        row = tx.run(SQL["renew_worker"], {"worker": worker_id, "now": now, "is_provable": is_provable}).first()
        return None if row is None else cast(datetime, row[0])

    def set_idle(self, tx: Transaction, worker_id: int, is_idle: bool) -> None:
        tx.run(SQL["set_idle"], {"worker": worker_id, "is_idle": is_idle})

    def has_idle_worker(self, tx: Transaction, lanes: Sequence[int]) -> bool:
        return bool(tx.run(SQL["has_idle_worker"], {"lanes": array(lanes)}).all()[0][0])

    def end_worker(self, tx: Transaction, worker_id: int, end: str, *, beat: int | None = None, is_silent: bool = False, now: datetime | None = None) -> bool:
        tx.run(SQL["lock_worker"], {"worker": worker_id})
        parameters = {"worker": worker_id, "end": end, "beat": beat, "is_silent": is_silent, "now": now}
        return tx.run(SQL["end_worker"], parameters).count > 0

    def list_workers(self, tx: Transaction, *, only_alive: bool, counts_runs: bool = True, now: datetime | None = None) -> list[WorkerRow]:
        bound = PAGE_MAX if counts_runs else 0
        asked = {"only_alive": only_alive, "bound": bound, "limit": PAGE_MAX, "now": now, "looks_at_locks": only_alive and not counts_runs}
        return [_worker_row(row) for row in tx.run(SQL["list_workers"], asked).all()]

    def list_orphans(self, tx: Transaction, limit: int, now: datetime | None = None) -> list[Orphan]:
        return [Orphan(Hold(run_id, token), *rest) for run_id, token, *rest in tx.run(SQL["list_orphans"], {"limit": limit}).all()]

    def recover_runs(self, tx: Transaction, recoveries: Sequence[Recovery], now: datetime | None = None) -> set[int]:
        if not recoveries:
            return set()
        ordered = sorted(recoveries, key=lambda each: each.hold)
        counted = tx.run(SQL["count_losses"], {"batch": batch_to_json([_counters(each) for each in ordered])})
        dead = {each.hold.run_id for each in ordered if each.status.is_terminal}
        keys = _keys(tx, sorted(dead))
        canceled = {run_id for run_id, is_canceled in counted.all() if is_canceled}
        changes = [_change(each, each.hold.run_id in canceled, keys.get(each.hold.run_id)) for each in ordered]
        return {lane for run_id, _, lane in change_runs(tx, changes, now).all() if run_id not in dead}

    def find_death(self, tx: Transaction, worker_id: int) -> datetime | None:
        row = tx.run(SQL["find_death"], {"worker": worker_id}).first()
        return None if row is None else row[0]

    def is_claimed(self, tx: Transaction, hold: Hold) -> bool:
        return is_run_id(hold.run_id) and tx.run(SQL["find_claim"], {"run": hold.run_id, "token": hold.token}).first() is not None

    def try_watch(self, tx: Transaction) -> bool:
        return bool(tx.run(SQL["try_watch"], {"key": _WATCH_LOCK}).all()[0][0])

    def delete_ended_workers(self, tx: Transaction, older_than: timedelta, now: datetime | None = None) -> int:
        return tx.run(SQL["delete_ended_workers"], {"older_than": older_than, "now": now}).count


def _worker_row(row: tuple[Any, ...]) -> WorkerRow:
    worker_id, name, process, beat, is_alive, is_lease_over, is_idle, lease_seconds, *rest = row
    return WorkerRow(worker_id, name, process, beat, is_alive, is_lease_over, is_idle, timedelta(seconds=lease_seconds), *rest)


def _counters(recovery: Recovery) -> dict[str, object]:
    return {
        "id": recovery.hold.run_id,
        "token": recovery.hold.token,
        "recoveries": recovery.recoveries,
        "losses": recovery.losses,
        "strikes": recovery.strikes,
        "loss_mark": recovery.loss_mark,
    }


def _keys(tx: Transaction, run_ids: Sequence[str]) -> dict[str, str]:
    return dict(tx.run(SQL["list_run_keys"], {"runs": array(run_ids)}).all()) if run_ids else {}


def _change(recovery: Recovery, is_canceled: bool, key: str | None) -> dict[str, object]:
    if is_canceled and not recovery.status.is_terminal:  # nothing delays the end of a canceled run
        return change_columns(recovery.hold, RunStatus.RUNNING, RunStatus.PENDING)
    delay = recovery.delay if recovery.status == RunStatus.WAITING else None
    return change_columns(recovery.hold, RunStatus.RUNNING, recovery.status, delay=delay, error=recovery.error, key=key)
