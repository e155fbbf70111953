"""Worker: the executing side of an engine in one process, from start to stop.

A worker outlives its incarnations: when the database declares one dead, its bodies are told and write nothing more, and
a new one begins. Stopping has an order: claim nothing, let bodies come to a standstill, tell the rest, write everything,
and end the renewals last. A run whose body still goes on is not released but left to the lease, and named.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec

from outlast.branch import TaskFactory
from outlast.limits import CANCEL_GRACE
from outlast.stillness import Stillness

from .claimer import Claimer
from .driver import NativeDriver
from .ending import Ending, released
from .executions import Executions
from .incarnation import Incarnation
from .patience import wait_until_set
from .rounds import Rounds
from .runtime import Runtime
from .store import Hold, LaneName
from .telling import IGNORED
from .watch import Watch

logger = logging.getLogger("outlast")


class Worker:
    """See the file's description. It lives on the loop that makes it."""

    def __init__(self, runtime: Runtime, *, queues: tuple[str, ...], concurrency: int, services: Any) -> None:
        loop = asyncio.get_running_loop()
        self._runtime = runtime
        self._queue_names = queues
        self._nudge = asyncio.Event()
        self._factory = TaskFactory(loop)
        self.executions = Executions(
            runtime, concurrency=concurrency, services=services, stillness=Stillness(loop), on_free=self._nudge.set, deliver=self._deliver
        )
        self.watch = Watch(runtime.calls, runtime.store, runtime.backend.liveness, runtime.settings.clock, runtime.events, runtime.at)
        self._lanes: dict[int, str] = {}
        self._claimer: Claimer | None = None
        self._claiming: asyncio.Task[None] | None = None
        self._rounds: Rounds | None = None
        self._beginning_again: asyncio.Task[None] | None = None
        self._tick = runtime.monotonic()
        self._is_stopping = False

    # --- starting ----------------------------------------------------------------------------------------------------------
    async def start(self) -> None:
        """Announce the worker and begin to claim. Raises what the database raises, and then nothing has begun."""
        runtime = self._runtime
        kinds = sorted(runtime.settings.tasks)
        names = [LaneName(queue, kind, version) for queue in self._queue_names for kind, version in kinds]
        lanes = await runtime.calls.write("ensure_lanes", lambda tx: runtime.store.ensure_lanes(tx, names))
        self._lanes = {number: name.queue for name, number in lanes.items()}
        self._claimer = Claimer(runtime, self.executions, self._lanes, self._nudge)
        await self._begin_incarnation()
        self._factory.install()
        self._claiming = runtime.spawn(self._claimer.run())
        self._rounds = Rounds(runtime, self, self._claimer)
        self._rounds.start()

    async def _begin_incarnation(self) -> None:
        runtime = self._runtime
        incarnation = Incarnation(runtime, loop_tick=lambda: self._tick, on_over=self._over, on_silent=self.executions.lose_all)
        description = {
            "queues": self._queue_names,
            "concurrency": self.executions.concurrency,
            "tasks": [f"{kind} v{version}" for kind, version in sorted(runtime.settings.tasks)],
        }
        await incarnation.begin(tuple(self._lanes), msgspec.json.encode(description).decode())
        self.claimer.use(incarnation)

    def _over(self, incarnation: Incarnation, reason: str) -> None:
        """This incarnation was ended by others: drop everything and begin another."""
        if incarnation is not self.claimer.incarnation:
            return
        logger.warning("this worker has lost its lease: %s; it begins again under a new identity", reason)
        self.executions.lose_all(reason)
        if not self._is_stopping:
            self._beginning_again = self._runtime.spawn(self._begin_again(incarnation))

    async def _begin_again(self, old: Incarnation) -> None:
        await old.stop_pulse()
        await self._runtime.insist("a new incarnation", self._begin_incarnation, lambda: self._is_stopping)

    async def _deliver(self) -> None:
        """Deliver signals that a wait has found, and claim what that wakes."""
        self.claimer.was_delivered(await self.claimer.delivery.deliver())

    # --- being told things ---------------------------------------------------------------------------------------------------
    @property
    def claimer(self) -> Claimer:
        assert self._claimer is not None  # made by start()
        return self._claimer

    @property
    def incarnation(self) -> Incarnation | None:
        return self._claimer.incarnation if self._claimer is not None else None

    @property
    def lanes(self) -> tuple[int, ...]:
        """What it claims from."""
        return tuple(self._lanes)

    def tick(self) -> None:
        """The loop moves: what the pulse looks at."""
        self._tick = self._runtime.monotonic()
        if self.incarnation is not None:
            self.incarnation.tick()

    def woken(self, lanes: frozenset[int], workers: frozenset[int]) -> None:
        """A wake-up came; both empty when anything may have changed. Called on the loop."""
        incarnation = self.incarnation
        is_anything = not lanes and not workers
        if is_anything:
            self.claimer.hint()
        elif lanes & self._lanes.keys():
            self._nudge.set()
        if self._rounds is not None and incarnation is not None and (is_anything or incarnation.id in workers):
            self._rounds.hurry()

    def nudge(self, lanes: set[int]) -> None:
        """There may be something to claim in these lanes."""
        if lanes & self._lanes.keys():
            self._nudge.set()

    def note_progress(self, hold: Hold) -> None:
        """Something a step reported is kept: its run is no suspect any more."""
        driver = self.executions.registry.get(hold.run_id)
        if driver is not None and driver.claim.hold == hold:
            driver.note_progress()

    def time_moved(self) -> None:
        """The clock was moved by hand: timers may have come due. For tests that skip time."""
        for driver in self.executions.bodies:
            driver.time_moved()
        self._nudge.set()

    # --- stopping ----------------------------------------------------------------------------------------------------------
    async def stop(self, timeout: timedelta) -> list[str]:
        """Drain, tell what does not end by itself, and return the ids of runs that were left to the lease.

        Interrupted, it drops everything at once, as in a crash.
        """
        try:
            return await self._stop(timeout)
        except BaseException:
            self._abandon()
            raise

    async def _stop(self, timeout: timedelta) -> list[str]:
        runtime, executions = self._runtime, self.executions
        self._is_stopping = True
        if self._beginning_again is not None:
            self._beginning_again.cancel()
            await asyncio.wait({self._beginning_again})
        ends_at = runtime.monotonic() + timeout.total_seconds()
        grace = min(CANCEL_GRACE, timeout / 3)
        self.claimer.stop()
        executions.drain()
        await self._wait_until_over(ends_at - 2 * grace.total_seconds())
        left = await self._tell_rest(grace)
        await self._wait_until_over(ends_at - grace.total_seconds())
        if self._rounds is not None:
            await self._rounds.stop()
        left += [run_id for run_id in executions.registry if run_id not in left]
        if self.incarnation is not None:
            await self.incarnation.end(max(timedelta(seconds=0.5), timedelta(seconds=ends_at - runtime.monotonic())), is_leaving_runs=bool(left))
        self._factory.uninstall()
        executions.performer.close()
        runtime.events.emit("worker_stopped", worker=self.incarnation.id if self.incarnation else 0, left=left)
        if left:
            logger.warning("stopped with %d runs that did not end; the lease takes care of them: %s", len(left), ", ".join(left[:10]))
        return left

    def _abandon(self) -> None:
        """Drop everything at once. The proof of life stays until the process or the engine ends: threads may still go on."""
        self.executions.lose_all("the worker's stop was interrupted")
        for task in (self._claiming, self._beginning_again):
            if task is not None:
                task.cancel()
        if self._rounds is not None:
            self._rounds.cancel()
        if self.incarnation is not None:
            self.incarnation.abandon()
        self._factory.uninstall()
        self.executions.performer.close()

    async def _wait_until_over(self, until: float) -> None:
        """Wait until nothing is executed any more, or `until` by the monotonic clock."""
        runtime = self._runtime
        if self._claiming is not None:
            await asyncio.wait({self._claiming}, timeout=max(0.0, until - runtime.monotonic()))
        while self.executions.registry and runtime.monotonic() < until:
            self._nudge.clear()
            await wait_until_set(self._nudge, max(0.0, min(0.5, until - runtime.monotonic())))

    async def _tell_rest(self, grace: timedelta) -> list[str]:
        left: list[str] = []

        def ending(driver: NativeDriver, verdict: str) -> Ending | None:
            if verdict != IGNORED:
                return released(driver.claim)
            left.append(driver.claim.id)
            return None

        tellings = [self.executions.tell(driver, "the worker stops", partial(ending, driver), grace) for driver in self.executions.bodies]
        if tellings:
            await asyncio.gather(*tellings)
        return left
