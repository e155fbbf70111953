"""Workers: their rows and leases, and the runs of those that are gone."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from outlast.database.sqlite.instant import from_number, from_number_or_none, span_from_number, span_to_number
from outlast.database.transaction import Transaction
from outlast.limits import PAGE_MAX
from outlast.native.encoding import batch_to_json
from outlast.native.store import Hold, NewWorker, Orphan, Recovery, WorkerRow
from outlast.run import RunStatus

from .ending import End, Ending


class Workers(Ending):
    """The part of the store that knows who works and who is gone."""

    def record_worker(self, tx: Transaction, worker: NewWorker, now: datetime | None = None) -> None:
        row = {"id": worker.id, "name": worker.name, "process": worker.process, "lease": span_to_number(worker.lease), "tasks": worker.tasks}
        tx.run(self._sql["insert_worker"], {**row, "lanes": batch_to_json(worker.lanes), "is_provable": worker.is_provable, "now": self._now(now)})

    def renew_worker(self, tx: Transaction, worker_id: int, now: datetime | None = None, *, is_provable: bool = True) -> datetime | None:
        at = self._now(now)
        asked = {"worker": worker_id, "now": at, "is_provable": is_provable}
        return from_number(at) if tx.run(self._sql["renew_worker"], asked).count else None

    def set_idle(self, tx: Transaction, worker_id: int, is_idle: bool) -> None:
        tx.run(self._sql["set_idle"], {"worker": worker_id, "is_idle": is_idle})

    def has_idle_worker(self, tx: Transaction, lanes: Sequence[int]) -> bool:
        row = tx.run(self._sql["has_idle_worker"], {"lanes": batch_to_json(lanes)}).first()
        return row is not None and bool(row[0])

    def end_worker(self, tx: Transaction, worker_id: int, end: str, *, beat: int | None = None, is_silent: bool = False, now: datetime | None = None) -> bool:
        asked = {"worker": worker_id, "end": end, "beat": beat, "is_silent": is_silent, "now": self._now(now)}
        return tx.run(self._sql["end_worker"], asked).count == 1

    def list_workers(self, tx: Transaction, *, only_alive: bool, counts_runs: bool = True, now: datetime | None = None) -> list[WorkerRow]:
        asked = {"only_alive": only_alive, "now": self._now(now), "counted": PAGE_MAX if counts_runs else 0, "limit": PAGE_MAX}
        return [_worker_row(row) for row in tx.run(self._sql["list_workers"], asked).all()]

    def list_orphans(self, tx: Transaction, limit: int, now: datetime | None = None) -> list[Orphan]:
        rows = tx.run(self._sql["list_orphans"], {"limit": limit}).all()
        return [
            Orphan(Hold(run_id, token), recoveries, losses, strikes, loss_mark, progress_mark, bool(has_ended_worker))
            for run_id, token, recoveries, losses, strikes, loss_mark, progress_mark, has_ended_worker in rows
        ]

    def recover_runs(self, tx: Transaction, recoveries: Sequence[Recovery], now: datetime | None = None) -> set[int]:
        at = self._now(now)
        dead = [recovery for recovery in recoveries if recovery.status.is_terminal]
        if dead:
            tx.run(self._sql["count_losses"], {"batch": batch_to_json([_recovery_row(recovery, at) for recovery in dead])})
            self._end(tx, [End(recovery.hold, recovery.status, is_held=True, error=recovery.error) for recovery in dead], at)
        going = [_recovery_row(recovery, at) for recovery in recoveries if not recovery.status.is_terminal]
        if not going:
            return set()
        lanes = {lane for (lane,) in tx.run(self._sql["recover_runs"], {"batch": batch_to_json(going), "now": at}).all()}
        if delayed := [recovery.hold.run_id for recovery in recoveries if recovery.status is RunStatus.WAITING]:
            tx.run(self._sql["delete_named_waits"], {"run_ids": batch_to_json(delayed)})
        return lanes

    def find_death(self, tx: Transaction, worker_id: int) -> datetime | None:
        row = tx.run(self._sql["find_death"], {"worker": worker_id}).first()
        return None if row is None else from_number_or_none(row[0])

    def is_claimed(self, tx: Transaction, hold: Hold) -> bool:
        return tx.run(self._sql["find_claim"], {"run": hold.run_id, "token": hold.token}).first() is not None

    def try_watch(self, tx: Transaction) -> bool:
        """Every writing transaction on SQLite is the only one there is."""
        return True

    def delete_ended_workers(self, tx: Transaction, older_than: timedelta, now: datetime | None = None) -> int:
        return tx.run(self._sql["delete_ended_workers"], {"before": self._now(now) - span_to_number(older_than)}).count


def _recovery_row(recovery: Recovery, now: int) -> dict[str, Any]:
    return {
        "run": recovery.hold.run_id,
        "token": recovery.hold.token,
        "status": recovery.status,
        "due_at": now + span_to_number(recovery.delay),
        "recoveries": recovery.recoveries,
        "losses": recovery.losses,
        "strikes": recovery.strikes,
        "loss_mark": recovery.loss_mark,
    }


def _worker_row(row: tuple[Any, ...]) -> WorkerRow:
    worker_id, name, process, beat, is_alive, is_lease_over, is_idle, lease, lease_until, started_at, ended_at, end, running, tasks, is_provable = row
    return WorkerRow(
        id=worker_id,
        name=name,
        process=process,
        beat=beat,
        is_alive=bool(is_alive),
        is_lease_over=bool(is_lease_over),
        is_idle=bool(is_idle),
        lease=span_from_number(lease),
        lease_until=from_number(lease_until),
        started_at=from_number(started_at),
        ended_at=from_number_or_none(ended_at),
        end=end,
        running=running,
        tasks=tasks,
        is_provable=bool(is_provable),
    )
