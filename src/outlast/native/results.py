"""Results: who waits for the end of a run is told.

One loop asks for all waiting runs at once, in one query, more and more slowly while nothing ends; ends in this process
and wake-ups make it ask at once. Waiting holds nothing in the database, so a waiter may vanish at any time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from outlast.errors import OutlastError
from outlast.events import Event

from .patience import wait_until_set
from .runtime import Runtime

logger = logging.getLogger("outlast")

_FIRST, _SLOWEST = 0.01, 0.25  # seconds between questions
_LIVE_WORKER_MISSED_AFTER = 5.0  # seconds after which a waiter is told why nothing may be happening


class Results:
    """The waiters of one engine."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        self._asking: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        runtime.events.subscribe(self._heard, "run_ended")

    async def wait(self, run_id: str, timeout: float | None, explain: Callable[[], Awaitable[str | None]]) -> None:
        """Wait until a run is over or not there. `explain` says why it may never be, for the log. Raises `TimeoutError`."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting.setdefault(run_id, set()).add(future)
        self._hurry.set()
        if self._asking is None:
            self._asking = self._runtime.spawn(self._ask())
        try:
            await self._wait(future, run_id, timeout, explain)
        finally:
            waiting = self._waiting.get(run_id, set())
            waiting.discard(future)
            if not waiting:
                self._waiting.pop(run_id, None)

    async def _wait(self, future: asyncio.Future[None], run_id: str, timeout: float | None, explain: Callable[[], Awaitable[str | None]]) -> None:
        try:
            async with asyncio.timeout(timeout):
                done, _ = await asyncio.wait({future}, timeout=_LIVE_WORKER_MISSED_AFTER)
                if not done:
                    await _say_why(run_id, explain)
                    await future
        except TimeoutError:
            raise TimeoutError(f"run {run_id} was not over after {timeout:g} s; it goes on" if timeout is not None else "the wait ended") from None

    def wake(self) -> None:
        """Something may have ended."""
        if self._waiting:
            self._hurry.set()

    def _heard(self, event: Event) -> None:
        for future in self._waiting.get(event.facts["run"], ()):
            if not future.done():
                future.set_result(None)

    async def _ask(self) -> None:
        delay = _FIRST
        try:
            while self._waiting:
                self._hurry.clear()
                try:
                    ended = await self._runtime.read("find_ended", lambda tx: self._runtime.store.find_ended(tx, list(self._waiting)))
                except OutlastError as error:
                    logger.debug("the ends of runs could not be read: %s", error)
                    ended = set()
                for run_id in ended:
                    for future in self._waiting.get(run_id, ()):
                        if not future.done():
                            future.set_result(None)
                delay = _FIRST if ended else min(delay * 1.5, _SLOWEST)
                if await wait_until_set(self._hurry, delay):
                    await asyncio.sleep(_FIRST)  # a burst of wake-ups is one question
        finally:
            self._asking = None


async def _say_why(run_id: str, explain: Callable[[], Awaitable[str | None]]) -> None:
    """Say in the log why a run may never end; that this cannot be found out now is no reason to end the wait."""
    try:
        reason = await explain()
    except OutlastError as error:
        reason = f"the database does not say why ({error})"
    if reason is not None:
        logger.warning("still waiting for run %s: %s", run_id, reason)
