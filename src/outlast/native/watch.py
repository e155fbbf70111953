"""Watch: finds workers that are dead or silent, and the runs that they left.

Theory of operation. Two kinds of evidence, and both lead through one statement that marks the worker as not alive, after
waiting for its open transactions; from then on the fence refuses everything that it writes.

- Dead: the lock that its process held is free at two looks at least 1.5 s apart, and its beat has not moved in between.
  One look proves nothing: a cut connection frees the lock too, but such a worker is back with a new beat.
- Silent: its lease is over by the database's clock. Only an observer that has itself been answered for a third of the
  lease may judge: after an outage all leases are over, and everybody renews before anybody takes. The same holds for one
  whose own lease was over at a look: a machine that stood still as a whole heard of no outage.

Then the runs: a repeated query for running rows whose worker is not alive, a page at a time, whatever became of the
worker that marked it. Nothing about recovery is kept in memory, so a watcher may die at any point.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import NamedTuple

from outlast.clock import Clock
from outlast.database.transaction import Transaction
from outlast.errors import OutlastError
from outlast.events import Events
from outlast.limits import DEATH_LOOKS_APART, RECOVERY_PAGE

from .calls import Calls
from .liveness import Liveness
from .store import Recovery, Store, WorkerRow
from .transitions import recovery_of

logger = logging.getLogger("outlast")


_RECOVERY_LOOKS = 6
"""Looks between two queries for what ended workers left, when this watcher ended none: a watcher may have died in between."""


class _Look(NamedTuple):
    beat: int
    at: float


class Watch:
    """One process's watcher."""

    def __init__(self, calls: Calls, store: Store, liveness: Liveness, clock: Clock, events: Events, now: Callable[[], datetime | None]) -> None:
        self._calls = calls
        self._store = store
        self._liveness = liveness
        self._clock = clock
        self._events = events
        self._now = now
        self._looks: dict[int, _Look] = {}
        self._since_recovery = _RECOVERY_LOOKS
        self._was_late_at = -math.inf

    async def look(self, own: int) -> set[int]:
        """Look at the other workers once, and let the runs of those that are not alive go on; return their lanes."""
        began = self._clock.monotonic()
        rows, free = await self._calls.read("list_workers", lambda tx: self._list(tx, own))
        others = [row for row in rows if row.id != own]
        if any(row.id == own and row.is_lease_over for row in rows):
            self._was_late_at = self._clock.monotonic()
        self._looks = {row.id: self._looks[row.id] for row in others if row.id in self._looks}
        ended = [await self._judge(row, is_free=row.id in free, began=began) for row in others]
        self._since_recovery += 1
        if any(ended) or self._since_recovery >= _RECOVERY_LOOKS:
            self._since_recovery = 0
            return await self.recover()
        return set()

    def _list(self, tx: Transaction, own: int) -> tuple[list[WorkerRow], set[int]]:
        """Return the living workers, and those of the others whose lock is free after their beat was read."""
        rows = self._store.list_workers(tx, only_alive=True, counts_runs=False, now=self._now())
        return rows, self._liveness.find_free(tx, [row for row in rows if row.id != own and row.is_provable])

    async def _judge(self, row: WorkerRow, *, is_free: bool, began: float) -> bool:
        """Judge one worker; return whether it was found to be gone."""
        try:
            if await self._is_dead(row, is_free=is_free, began=began):
                return await self._end(row, "dead", beat=row.beat)
            if row.is_lease_over and self._steady_for >= row.lease.total_seconds() / 3:
                return await self._end(row, "silent", beat=None)
        except OutlastError as error:
            logger.debug("worker %s could not be judged: %s", row.name, error)
        return False

    @property
    def _steady_for(self) -> float:
        """Seconds for which this observer was answered, and renewed its own lease in time."""
        return min(self._calls.whole_for, self._clock.monotonic() - self._was_late_at)

    async def _is_dead(self, row: WorkerRow, *, is_free: bool, began: float) -> bool:
        """Tell whether two looks prove it; the second has to begin so long after the end of the first, however slow they are."""
        if not is_free or not await self._calls.other(lambda: self._liveness.is_proof_possible(row)):
            self._looks.pop(row.id, None)
            return False
        seen = self._looks.get(row.id)
        if seen is None or seen.beat != row.beat:
            self._looks[row.id] = _Look(row.beat, self._clock.monotonic())
            return False
        return began - seen.at >= DEATH_LOOKS_APART.total_seconds()

    @property
    def next_look_in(self) -> timedelta | None:
        """How long until a second look would prove a death; None when there is no suspicion."""
        if not self._looks:
            return None
        elapsed = self._clock.monotonic() - min(look.at for look in self._looks.values())
        return max(DEATH_LOOKS_APART - timedelta(seconds=elapsed), timedelta(milliseconds=10))

    async def _end(self, row: WorkerRow, end: str, beat: int | None) -> bool:
        def mark(tx: Transaction) -> bool:
            return self._store.end_worker(tx, row.id, end, beat=beat, is_silent=end == "silent", now=self._now())

        if not await self._calls.write("end_worker", mark):
            return False
        self._looks.pop(row.id, None)
        logger.warning("worker %s is %s: its runs go on elsewhere", row.name, end)
        self._events.emit("worker_ended", worker=row.id, end=end)
        return True

    async def recover(self) -> set[int]:
        """Let go of every run whose worker is not alive, skipping what is locked; it is met again at the next look."""
        lanes: set[int] = set()
        while True:
            recoveries, page = await self._calls.write("recover_runs", self._recover_page)
            lanes |= page
            for recovery in recoveries:
                self._events.emit("run_recovered", run=recovery.hold.run_id, status=recovery.status)
            if len(recoveries) < RECOVERY_PAGE:
                return lanes

    def _recover_page(self, tx: Transaction) -> tuple[list[Recovery], set[int]]:
        recoveries = [recovery_of(orphan) for orphan in self._store.list_orphans(tx, RECOVERY_PAGE, self._now())]
        if not recoveries or not self._store.try_watch(tx):  # in this order, because mostly there is nothing, and that costs one query
            return [], set()
        return recoveries, self._store.recover_runs(tx, recoveries, self._now())
