"""The kit for tests of applications: an engine on a temporary file whose clock is moved by hand.

It is the real engine on a real SQLite file, with a worker in the test's own event loop; nothing is simulated but the
instants. It never waits for time to pass.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from outlast.clock import StoreClock
from outlast.connect import backends
from outlast.duration import Duration, as_duration
from outlast.events import Event
from outlast.limits import LEASE, PAGE_MAX, STOP_TIMEOUT
from outlast.native.backend import Backend
from outlast.native.engine import NativeEngine
from outlast.native.settings import Settings, tasks_by_name
from outlast.run import RunStatus, RunView
from outlast.task import Task

from .clock import SkippingClock, SkippingStoreClock
from .event_log import EventLog

_LOOK_AGAIN_SECONDS = 0.02


@dataclass(frozen=True)
class _Settings(Settings):
    clock: SkippingClock = field(default_factory=SkippingClock)

    def store_clock(self) -> StoreClock:
        return SkippingStoreClock(self.clock)


class SkippingEngine(NativeEngine):
    """An engine whose time is moved by hand. Engines made with one clock have one time."""

    def __init__(self, backend: Backend, pulse: Backend, settings: _Settings) -> None:
        super().__init__(backend, pulse, settings)
        self.log = EventLog(self.events)
        """What happened since the engine was made."""
        self._clock = settings.clock
        self._clock.join(self)

    def now(self) -> datetime:
        """Return the instant that its clock shows."""
        return self._clock.now()

    async def advance(self, duration: Duration) -> None:
        """Move time forward at once: what comes due by then is claimable when this returns; `settle` waits for what follows.

        A run that sleeps again counts from the new time, so seven daily sleeps need seven advances of a day. Leases are
        prolonged before, so that no worker of this clock looks silent.
        """
        await self._clock.advance(as_duration(duration))

    async def settle(self, *, timeout: Duration = STOP_TIMEOUT) -> tuple[RunView, ...]:
        """Wait until nothing can move without time passing or something from outside; return the runs that are not over.

        Runs that no living worker may claim cannot move. Raises `TimeoutError`, which names what still moves.
        """
        limit = as_duration(timeout, "timeout")
        ends_at = self._clock.monotonic() + limit.total_seconds()
        before: tuple[RunView, ...] | None = None
        while True:
            runs, moving = await self._look()
            if not moving and runs == before:
                return runs
            if moving and self._clock.monotonic() >= ends_at:
                raise TimeoutError(f"after {limit} these still move: {'; '.join(map(self._told, moving[:10]))}")
            before = None if moving else runs
            await asyncio.sleep(_LOOK_AGAIN_SECONDS if moving else 0)

    async def _look(self) -> tuple[tuple[RunView, ...], list[RunView]]:
        """Return the runs that are not over, and those of them that move."""
        going: list[RunView] = []
        next_page: str | None = None
        while True:
            page = await self.inspector.list_runs(limit=PAGE_MAX, before=next_page)
            going += [run for run in page.runs if not run.status.is_terminal]
            next_page = page.next
            if next_page is None:
                break
        workers = await self.inspector.list_workers(only_alive=True)
        claimed = {(queue, kind) for worker in workers for queue in worker.queues for kind in worker.tasks}
        return tuple(going), [run for run in going if self._moves(run, claimed)]

    def _moves(self, run: RunView, claimed: set[tuple[str, str]]) -> bool:
        if run.status is RunStatus.RUNNING:
            return True
        is_due = run.status is RunStatus.PENDING or (run.due_at is not None and run.due_at <= self._clock.now())
        return is_due and (run.queue, f"{run.kind} v{run.version}") in claimed

    def _told(self, run: RunView) -> str:
        driver = self._worker.executions.registry.get(run.id) if self._worker is not None else None
        place = driver.foreign_await() if driver is not None else None
        return f"{run.kind} {run.id}: {run.why}" + (f", and its body awaits something of its own in {place}" if place else "")

    async def before_skip(self, instant: datetime) -> None:
        """Prolong the own worker's lease as of the time to come: called by the clock."""
        incarnation = self._worker.incarnation if self._worker is not None else None
        if incarnation is not None:
            runtime = await self._open()
            await runtime.calls.write("renew_worker", lambda tx: runtime.store.renew_worker(tx, incarnation.id, instant))

    async def after_skip(self) -> None:
        """Make a timer pass: called by the clock."""
        if not self._is_closed:
            await self.settle_time()

    async def close(self, *, timeout: Duration = STOP_TIMEOUT) -> None:
        self._clock.leave(self)
        await super().close(timeout=timeout)


def skipping_engine(
    url: str,
    *,
    tasks: Iterable[Task[Any, Any]] = (),
    services: Any = None,
    clock: SkippingClock | None = None,
    lease: Duration = LEASE,
    migrate: bool | str = "create",
    name: str = "test",
    direct_url: str | None = None,
) -> SkippingEngine:
    """Return an engine on the database at `url` whose time is moved by hand; engines that share a file share a `clock`."""
    clock = SkippingClock() if clock is None else clock
    settings = _Settings(tasks_by_name(tasks), services, migrate, as_duration(lease, "lease"), name, clock, clock.now)
    return SkippingEngine(*backends(url, settings, direct_url=direct_url), settings)


@asynccontextmanager
async def temporary_engine(
    *, tasks: Iterable[Task[Any, Any]], services: Any = None, queues: Sequence[str] = ("default",), concurrency: int = 50, **options: Any
) -> AsyncIterator[SkippingEngine]:
    """Give an engine on a new SQLite file with a worker started, whose time is moved with `advance`; the file goes at the end.

    `options` are those of `skipping_engine`.
    """
    with tempfile.TemporaryDirectory(prefix="outlast-") as folder:
        async with skipping_engine(f"sqlite:///{quote(str(Path(folder) / 'outlast.db'))}", tasks=tasks, services=services, **options) as engine:
            await engine.start(queues=queues, concurrency=concurrency)
            yield engine


async def wait_for_event(engine: SkippingEngine, name: str, /, *, timeout: Duration = 30, count: int = 1, **facts: Any) -> Event:
    """Return the `count`th event of this name with these facts since the engine was made, waiting for it if need be.

    The names and their facts are `outlast.events.NAMES`. Raises `TimeoutError`, which names the event.
    """
    return await engine.log.wait(name, timeout=timeout, count=count, **facts)
