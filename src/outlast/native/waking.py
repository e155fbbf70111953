"""Waking: after runs were accepted, workers elsewhere that asked to be woken are, where that could not go with the commit.

One look at a time tells whether anybody asked, however many callers enqueue at once: a look for each of fifty callers
took ten times as long as their one commit. What comes while a look is under way is looked at in the next. A wake-up that
is lost costs latency, and polls make up for it.
"""

from __future__ import annotations

import asyncio
import logging

from outlast.errors import OutlastError

from .runtime import Runtime

logger = logging.getLogger("outlast")

_PAUSE_SECONDS = 0.005  # between two looks: what it adds to a latency is small, and a stream of enqueues is hardly slowed


class Waking:
    """The wake-ups of one engine's enqueues."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lanes: set[int] = set()
        self._looking: asyncio.Task[None] | None = None

    def wake(self, lanes: set[int]) -> None:
        """Wake whoever asked for one of these lanes, soon."""
        self._lanes |= lanes
        if self._looking is None:
            self._looking = self._runtime.spawn(self._look())

    async def drain(self, seconds: float) -> None:
        """Let the last wake-ups go out: a process that enqueues and ends must not leave them to the polls."""
        if self._looking is not None:
            await asyncio.wait({self._looking}, timeout=seconds)

    async def _look(self) -> None:
        try:
            while self._lanes:
                lanes, self._lanes = tuple(self._lanes), set()
                await self._wake_idle(lanes)
                await asyncio.sleep(_PAUSE_SECONDS)
        finally:
            self._looking = None

    async def _wake_idle(self, lanes: tuple[int, ...]) -> None:
        runtime = self._runtime
        try:
            if await runtime.read("has_idle_worker", lambda tx: runtime.store.has_idle_worker(tx, lanes)):
                await runtime.calls.other(lambda: runtime.backend.wakes.send(lanes=lanes))
        except OutlastError as error:
            logger.debug("a wake-up was not sent: %s", error)
