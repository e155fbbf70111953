"""Upkeep: what operators do to queues, to dead letters and to what is over, and what there is in the lanes."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from outlast.database.transaction import Transaction
from outlast.ids import is_run_id
from outlast.limits import LANE_COUNT_MAX, LANE_SAMPLE_MAX, PRUNE_RECORDS_MAX
from outlast.native.encoding import batch_to_json
from outlast.native.lanes import Asleep, Counted, lane_rows
from outlast.native.store import Hold
from outlast.native.upkeep import LaneRow, NewAction, OldRun, QueueChange
from outlast.run import RunStatus

from .actions import record_action
from .parameters import SQL, array
from .serving import list_served
from .transition import change_columns, change_runs

_BEFORE_ALL = "00000000-0000-0000-0000-000000000000"
_DEAD_LETTERS = frozenset({RunStatus.FAILED, RunStatus.DEAD})


class Upkeep:
    """The part of the store that operators use on more than one run."""

    def list_lanes(self, tx: Transaction, now: datetime | None = None) -> list[LaneRow]:
        counted = [Counted(*row) for row in tx.run(SQL["list_lanes"], {"bound": LANE_COUNT_MAX + 1}).all()]
        held = dict(tx.run(SQL["count_held"], {"sample": LANE_SAMPLE_MAX + 1}).all())
        asleep = {lane: Asleep(*counts) for lane, *counts in tx.run(SQL["count_asleep"], {"sample": LANE_SAMPLE_MAX + 1, "now": now}).all()}
        return lane_rows(counted, list_served(tx, now), held, asleep)

    def discard_run(self, tx: Transaction, run_id: str, actor: str, reason: str, now: datetime | None = None) -> RunStatus | None:
        row = tx.run(SQL["lock_run"], {"run": run_id}).first() if is_run_id(run_id) else None
        if row is None:
            return None
        found, token, key = RunStatus(row[0]), row[1], row[6]
        if found in _DEAD_LETTERS:
            change_runs(tx, [change_columns(Hold(run_id, token), found, RunStatus.CANCELED, key=key)], now)
            tx.run(SQL["keep_cancel_reason"], {"run": run_id, "reason": reason})
            record_action(tx, NewAction("discard", actor, reason, run_id), now)
        return found

    def pause_queue(self, tx: Transaction, name: str, actor: str, reason: str, now: datetime | None = None) -> QueueChange:
        was_paused = _is_paused(tx, name)
        paused_at = tx.run(SQL["pause_queue"], {"queue": name, "now": now}).all()[0][0]
        record_action(tx, NewAction("pause_queue", actor, reason, queue=name), now)
        return QueueChange(paused_at, not was_paused, _lanes(tx, name))

    def unpause_queue(self, tx: Transaction, name: str, actor: str, reason: str, now: datetime | None = None) -> QueueChange:
        was_paused = _is_paused(tx, name)
        tx.run(SQL["unpause_queue"], {"queue": name})
        record_action(tx, NewAction("unpause_queue", actor, reason, queue=name), now)
        return QueueChange(None, was_paused, _lanes(tx, name))

    def list_old_runs(
        self, tx: Transaction, older_than: timedelta, limit: int, after: str | None, *, dead_letters: bool, now: datetime | None = None
    ) -> list[OldRun]:
        asked = {"older_than": older_than, "limit": limit, "after": after or _BEFORE_ALL, "dead_letters": dead_letters, "bound": PRUNE_RECORDS_MAX, "now": now}
        return [OldRun(*row) for row in tx.run(SQL["list_old_runs"], asked).all()]

    def delete_runs(self, tx: Transaction, run_ids: Sequence[str], older_than: timedelta, *, dead_letters: bool, now: datetime | None = None) -> int:
        if not run_ids:
            return 0
        return tx.run(SQL["delete_runs"], {"runs": array(run_ids), "older_than": older_than, "dead_letters": dead_letters, "now": now}).count

    def delete_old_keys(
        self, tx: Transaction, older_than: timedelta, limit: int, after: tuple[str, str] | None, now: datetime | None = None
    ) -> tuple[int, tuple[str, str] | None]:
        kind, key = after or ("", "")
        page = tx.run(SQL["list_old_keys"], {"older_than": older_than, "limit": limit, "kind": kind, "key": key, "now": now}).all()
        batch = [{"kind": kind, "key": key, "run": run_id} for kind, key, run_id, is_old in page if is_old]
        deleted = tx.run(SQL["delete_keys"], {"batch": batch_to_json(batch)}).count if batch else 0
        return deleted, (page[-1][0], page[-1][1]) if len(page) == limit else None


def _is_paused(tx: Transaction, name: str) -> bool:
    row = tx.run(SQL["lock_queue"], {"queue": name}).first()
    return row is not None and row[0] is not None


def _lanes(tx: Transaction, name: str) -> frozenset[int]:
    return frozenset(lane for (lane,) in tx.run(SQL["list_queue_lanes"], {"queue": name}).all())
