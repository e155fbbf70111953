"""Upkeep: what operators do to queues, to dead letters and to what is over, and what there is in the lanes."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from outlast.database.sqlite.instant import from_number, from_number_or_none, span_to_number
from outlast.database.transaction import Transaction
from outlast.ids import first_run_id_at
from outlast.limits import LANE_COUNT_MAX, LANE_SAMPLE_MAX, PRUNE_RECORDS_MAX
from outlast.native.encoding import batch_to_json
from outlast.native.lanes import Asleep, Counted, lane_rows
from outlast.native.store import Hold
from outlast.native.upkeep import LaneRow, NewAction, OldRun, QueueChange
from outlast.run import RunStatus

from .actions import Actions
from .ending import End, Ending
from .serving import Serving

_DEAD_LETTERS = frozenset({RunStatus.FAILED, RunStatus.DEAD})
_DELETES = (
    "delete_bodies",
    "delete_records",
    "delete_failures",
    "delete_activity",
    "delete_waits",
    "delete_cursors",
    "delete_signals",
    "delete_decisions",
    "delete_own_attempts",
    "delete_own_operations",
    "delete_runs",
)
"""What hangs on a run, and the run last."""


class Upkeep(Ending, Actions, Serving):
    """The part of the store that operators use on more than one run."""

    def list_lanes(self, tx: Transaction, now: datetime | None = None) -> list[LaneRow]:
        at, sample = self._now(now), LANE_SAMPLE_MAX + 1
        rows = tx.run(self._sql["list_lanes"], {"bound": LANE_COUNT_MAX + 1}).all()
        counted = [
            Counted(lane, queue, kind, version, from_number_or_none(paused_at), pending, untimed)
            for lane, queue, kind, version, paused_at, pending, untimed in rows
        ]
        held = dict(tx.run(self._sql["count_held"], {"sample": sample}).all())
        asleep = {lane: Asleep(*counts) for lane, *counts in tx.run(self._sql["count_asleep"], {"sample": sample, "now": at}).all()}
        return lane_rows(counted, self._served(tx, at), held, asleep)

    def discard_run(self, tx: Transaction, run_id: str, actor: str, reason: str, now: datetime | None = None) -> RunStatus | None:
        row = tx.run(self._sql["lock_run"], {"run": run_id}).first()
        if row is None:
            return None
        found, token, at = RunStatus(row[0]), row[2], self._now(now)
        if found in _DEAD_LETTERS:
            self._end(tx, [End(Hold(run_id, token), RunStatus.CANCELED, is_held=False, is_over=True)], at)
            tx.run(self._sql["keep_cancel_reason"], {"run": run_id, "reason": reason})
            self.record_action(tx, NewAction("discard", actor, reason, run_id), now)
        return found

    def pause_queue(self, tx: Transaction, name: str, actor: str, reason: str, now: datetime | None = None) -> QueueChange:
        was_paused, at = self._is_paused(tx, name), self._now(now)
        paused_at = from_number(tx.run(self._sql["pause_queue"], {"queue": name, "now": at}).all()[0][0])
        self.record_action(tx, NewAction("pause_queue", actor, reason, queue=name), now)
        return QueueChange(paused_at, not was_paused, self._lanes(tx, name))

    def unpause_queue(self, tx: Transaction, name: str, actor: str, reason: str, now: datetime | None = None) -> QueueChange:
        was_paused = self._is_paused(tx, name)
        tx.run(self._sql["unpause_queue"], {"queue": name})
        self.record_action(tx, NewAction("unpause_queue", actor, reason, queue=name), now)
        return QueueChange(None, was_paused, self._lanes(tx, name))

    def _is_paused(self, tx: Transaction, name: str) -> bool:
        row = tx.run(self._sql["lock_queue"], {"queue": name}).first()
        return row is not None and row[0] is not None

    def _lanes(self, tx: Transaction, name: str) -> frozenset[int]:
        return frozenset(lane for (lane,) in tx.run(self._sql["list_queue_lanes"], {"queue": name}).all())

    def list_old_runs(
        self, tx: Transaction, older_than: timedelta, limit: int, after: str | None, *, dead_letters: bool, now: datetime | None = None
    ) -> list[OldRun]:
        asked = {"cutoff": self._cutoff(older_than, now), "limit": limit, "after": after or "", "dead_letters": dead_letters, "bound": PRUNE_RECORDS_MAX}
        rows = tx.run(self._sql["list_old_runs"], asked).all()
        return [OldRun(run_id, bool(is_old), bool(is_prunable), bool(is_kept), records) for run_id, is_old, is_prunable, is_kept, records in rows]

    def delete_runs(self, tx: Transaction, run_ids: Sequence[str], older_than: timedelta, *, dead_letters: bool, now: datetime | None = None) -> int:
        asked = {"run_ids": batch_to_json(run_ids), "cutoff": self._cutoff(older_than, now), "dead_letters": dead_letters}
        gone = [run_id for (run_id,) in tx.run(self._sql["find_prunable"], asked).all()]
        if gone:
            for statement in _DELETES:
                tx.run(self._sql[statement], {"run_ids": batch_to_json(gone)})
        return len(gone)

    def delete_old_keys(
        self, tx: Transaction, older_than: timedelta, limit: int, after: tuple[str, str] | None, now: datetime | None = None
    ) -> tuple[int, tuple[str, str] | None]:
        kind, key = after or ("", "")
        before = first_run_id_at(from_number(max(self._cutoff(older_than, now), 0)))
        page = tx.run(self._sql["list_old_keys"], {"before": before, "limit": limit, "kind": kind, "key": key}).all()
        batch = [{"kind": kind, "key": key, "run": run_id} for kind, key, run_id, is_old in page if is_old]
        deleted = tx.run(self._sql["delete_keys"], {"batch": batch_to_json(batch)}).count if batch else 0
        return deleted, (page[-1][0], page[-1][1]) if len(page) == limit else None

    def _cutoff(self, older_than: timedelta, now: datetime | None) -> int:
        return self._now(now) - span_to_number(older_than)
