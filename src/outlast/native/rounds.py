"""Rounds: what a worker does again and again beside claiming. Each round is a query or a look at its own bodies.

Nothing depends on any one round: what a failing one missed, the next one meets.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from outlast.branch import bodies_with_timers
from outlast.errors import OutlastError
from outlast.ids import jitter
from outlast.limits import (
    ACTIVITY_EVERY,
    FLAGS_POLL,
    FOREIGN_AWAIT_REPORTED_AFTER,
    HOUSEKEEPING_EVERY,
    OVERDUE_EVERY,
    STRAYS_EVERY,
    WATCH_EVERY,
    WORKERS_FORGOTTEN_AFTER,
)

from .driver import NativeDriver
from .ending import canceled, overdue
from .patience import wait_until_set
from .phase import Phase
from .runtime import Runtime
from .store import Flagged

if TYPE_CHECKING:
    from .claimer import Claimer
    from .worker import Worker

logger = logging.getLogger("outlast")

_TICK = timedelta(milliseconds=500)


class Rounds:
    """The rounds of one worker."""

    def __init__(self, runtime: Runtime, worker: Worker, claimer: Claimer) -> None:
        self._runtime = runtime
        self._worker = worker
        self._claimer = claimer
        self._executions = worker.executions
        self._tasks: list[asyncio.Task[None]] = []
        self._suspicious: dict[NativeDriver, str] = {}
        self._reported: set[tuple[str, int, str]] = set()
        self._flags_now = asyncio.Event()

    def start(self) -> None:
        rounds: list[tuple[Callable[[], timedelta], Callable[[], Awaitable[object]]]] = [
            (lambda: _TICK, self._tick),
            (self._until_watch, self._look_at_others),
            (lambda: STRAYS_EVERY, self._claimer.compare_holds),
            (lambda: ACTIVITY_EVERY, self._write_activity),
            (lambda: FOREIGN_AWAIT_REPORTED_AFTER, self._report_foreign),
            (lambda: OVERDUE_EVERY, self._sweep),
            (lambda: HOUSEKEEPING_EVERY, self._tidy_up),
        ]
        self._tasks = [self._runtime.spawn(self._every(period, work)) for period, work in rounds]
        self._tasks.append(self._runtime.spawn(self._read_flags_forever()))

    def hurry(self) -> None:
        """Read the flags now: a cancel may have come."""
        self._flags_now.set()

    def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def stop(self) -> None:
        self.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _every(self, period: Callable[[], timedelta], work: Callable[[], Awaitable[object]]) -> None:
        while True:
            await asyncio.sleep(period().total_seconds() * (0.9 + 0.1 * jitter()))
            try:
                await work()
            except OutlastError as error:
                logger.debug("a round is missed: %s", error)
            except Exception:
                logger.exception("a round failed")

    async def _tick(self) -> None:
        self._worker.tick()

    # --- bodies to be told -----------------------------------------------------------------------------------------------
    async def _read_flags_forever(self) -> None:
        while True:
            await wait_until_set(self._flags_now, FLAGS_POLL.total_seconds())
            self._flags_now.clear()
            try:
                await self._read_flags()
            except OutlastError as error:
                logger.debug("the flags could not be read: %s", error)
            except Exception:
                logger.exception("the flags could not be read")

    async def _read_flags(self) -> None:
        """Tell the bodies whose runs were canceled or are past their deadline."""
        runtime, incarnation, registry = self._runtime, self._worker.incarnation, self._executions.registry
        if incarnation is None or incarnation.is_over or not registry:
            return
        flagged = await runtime.read("list_flagged", lambda tx: runtime.store.list_flagged(tx, incarnation.id, runtime.at()))
        for flag in flagged:
            driver = registry.get(flag.hold.run_id)
            if driver is not None and driver.claim.hold == flag.hold and driver.phase is Phase.RUNNING:
                self._tell(driver, flag)

    def _tell(self, driver: NativeDriver, flag: Flagged) -> None:
        if flag.cancel_reason is not None:
            reason, ending = flag.cancel_reason, partial(canceled, driver.claim, flag.cancel_reason)
        else:
            reason, ending = f"the deadline {driver.claim.deadline_at} has passed", partial(overdue, driver.claim)
        self._runtime.spawn(self._executions.tell(driver, reason, ending))

    # --- others ------------------------------------------------------------------------------------------------------------
    def _until_watch(self) -> timedelta:
        return min(WATCH_EVERY, self._worker.watch.next_look_in or WATCH_EVERY)

    async def _look_at_others(self) -> None:
        if self._worker.incarnation is not None:
            self._worker.nudge(await self._worker.watch.look(self._worker.incarnation.id))

    async def _sweep(self) -> None:
        delivery, now = self._claimer.delivery, self._runtime.time.now()
        await delivery.sweep_overdue(now)
        self._claimer.was_delivered(await delivery.sweep_undelivered(now))

    async def _tidy_up(self) -> None:
        runtime = self._runtime
        await runtime.calls.write("delete_ended_workers", lambda tx: runtime.store.delete_ended_workers(tx, WORKERS_FORGOTTEN_AFTER, runtime.at()))
        await self._claimer.delivery.delete_expired()

    # --- own bodies ----------------------------------------------------------------------------------------------------------
    async def _write_activity(self) -> None:
        runtime = self._runtime
        rows = self._executions.activities.take_due(runtime.time.now())
        if rows:
            await runtime.calls.write("record_activity", lambda tx: runtime.store.record_activity(tx, rows))
            for row in rows:
                self._worker.note_progress(row.hold)

    async def _report_foreign(self) -> None:
        """Name bodies that have awaited something of their own at two looks: it keeps them in memory with their slot."""
        seen: dict[NativeDriver, str] = {}
        timed = bodies_with_timers(asyncio.get_running_loop())
        for driver in list(self._executions.registry.values()):
            if driver.phase is Phase.RUNNING and not driver.is_performing:
                place = driver.foreign_await(timed)
                if place is not None:
                    seen[driver] = place
                elif driver in self._suspicious:
                    driver.look_again()  # what it awaited is over, and nothing durable has come of it that would tell
        for driver, place in seen.items():
            if self._suspicious.get(driver) == place:
                self._report(driver, place)
        self._suspicious = seen

    def _report(self, driver: NativeDriver, place: str) -> None:
        claim = driver.claim
        if (claim.kind, claim.version, place) not in self._reported:
            self._reported.add((claim.kind, claim.version, place))
            logger.warning(
                "task %s v%d awaits something that is not durable in %s: the run cannot park and keeps its slot; make it a step, or use ctx",
                claim.kind,
                claim.version,
                place,
            )
            self._runtime.events.emit("foreign_await", run=claim.id, kind=claim.kind, version=claim.version, place=place)
