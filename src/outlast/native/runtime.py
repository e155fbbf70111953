"""Runtime: what every living part of one engine shares."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeVar

from outlast.branch import detached
from outlast.clock import StoreClock
from outlast.database.transaction import Transaction
from outlast.errors import CommitUnknownError, OutlastError
from outlast.events import Events
from outlast.limits import ENQUEUE_TIMEOUT

from .backend import Backend
from .calls import Backoff, Calls, is_passing
from .settings import Settings
from .store import Store

R = TypeVar("R")
logger = logging.getLogger("outlast")


@dataclass
class Runtime:
    """The database, the settings and the clocks of one engine in one process."""

    backend: Backend
    calls: Calls
    pulse_calls: Calls
    settings: Settings
    events: Events
    time: StoreClock
    """The database's time, estimated."""
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    _canary: asyncio.Task[Any] | None = None

    @property
    def store(self) -> Store:
        return self.backend.store

    def at(self) -> datetime | None:
        """Return the instant by which the database decides; None for its own clock."""
        return self.settings.now()

    def monotonic(self) -> float:
        return self.settings.clock.monotonic()

    def watch_loop(self) -> None:
        """Notice from now on when the loop is ended."""
        self._canary = self.spawn(asyncio.Event().wait())

    @property
    def is_loop_ending(self) -> Callable[[], int]:
        """Tells, more than zero, once everything on the loop is being canceled, as `asyncio.run` does at its end: to the runs that is a crash.

        The canary's own method, without a call in between: each durable call asks several times.
        """
        return self._canary.cancelling if self._canary is not None else int

    async def insist(self, what: str, call: Callable[[], Awaitable[R]], until: Callable[[], bool]) -> R | None:
        """Call until the database answers; None when `until` has become true first."""
        backoff = Backoff()
        while not until():
            try:
                return await call()
            except OutlastError as error:
                logger.debug("%s: tried again after: %s", what, error)
                await asyncio.sleep(backoff.next())
        return None

    async def write_again(self, name: str, function: Callable[[Transaction], R], timeout: timedelta = ENQUEUE_TIMEOUT) -> tuple[R, bool]:
        """Write what may be written twice until the database answers; also tell whether an earlier try may have been the one.

        Raises what is not going to pass at once, and `UnavailableError` at the time-out.
        """
        backoff, ends_at, in_doubt = Backoff(), self.monotonic() + timeout.total_seconds(), False
        while True:
            try:
                return await self.calls.write(name, function), in_doubt
            except OutlastError as error:
                in_doubt, delay = in_doubt or isinstance(error, CommitUnknownError), backoff.next()
                if is_passing(error) and self.monotonic() + delay < ends_at:
                    await asyncio.sleep(delay)
                elif in_doubt and not isinstance(error, CommitUnknownError):
                    raise CommitUnknownError(f"an earlier try may have been committed; then: {error}") from error
                else:
                    raise

    async def read(self, name: str, function: Callable[[Transaction], R]) -> R:
        return await self.calls.read(name, function)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Begin something that ends with the engine; what it raises is logged."""
        task = detached(work)
        self.tasks.add(task)
        task.add_done_callback(self._spawned_ended)
        return task

    def _spawned_ended(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("a part of the engine failed", exc_info=task.exception())

    async def cancel_spawned(self) -> None:
        current = asyncio.current_task()
        tasks = [task for task in self.tasks if task is not current]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
