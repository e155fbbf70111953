"""Body: the running code of one execution, from outside: it is begun, found at a standstill, interrupted and closed.

It knows nothing of history. It never runs the body's code itself, but where it closes it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine
from concurrent.futures import Future as ThreadFuture
from typing import Any

from outlast.branch import NO_BODY, Branches
from outlast.stillness import Stillness

logger = logging.getLogger("outlast")


class Body:
    """The asyncio tasks of one execution."""

    def __init__(self, loop: asyncio.AbstractEventLoop, stillness: Stillness) -> None:
        self._loop = loop
        self._stillness = stillness
        self._branches = Branches(loop)
        self._is_settling = False
        self.has_timeout = False
        """A durable time-out was asked for, which may move the body at any time."""
        self.root: asyncio.Task[Any] | None = None
        """The body's own task, once it has begun."""

    def start(self, coroutine: Coroutine[Any, Any, Any], on_end: Callable[[asyncio.Task[Any]], None]) -> None:
        self.root = self._branches.start(coroutine)
        self.root.add_done_callback(on_end, context=NO_BODY)

    @property
    def is_awaiting(self) -> bool:
        """It has begun and has not ended."""
        return self.root is not None and not self.root.done()

    @property
    def has_to_be_watched(self) -> bool:
        """True once its own tasks may move it; until then it stands still whenever the engine runs."""
        return self._branches.has_branched or self.has_timeout

    def settle(self, on_standstill: Callable[[], None]) -> None:
        """Call back once, as soon as the body stands still."""
        if self.has_to_be_watched:
            self._stillness.when_still(self._branches, on_standstill)
        elif not self._is_settling:
            self._is_settling = True
            self._loop.call_soon(self._settled, on_standstill, context=NO_BODY)

    def _settled(self, on_standstill: Callable[[], None]) -> None:
        self._is_settling = False
        if self.has_to_be_watched:
            self.settle(on_standstill)
        else:
            on_standstill()

    def is_computing(self, on_request: Callable[[], None]) -> bool:
        """Tell whether its thread, that of a `def` body, computes: then it moves, and calls back when it asks for something or ends."""
        thread = self._branches.thread
        if thread is None or thread.request is None:
            return False
        thread.request.add_done_callback(lambda _: on_request(), context=NO_BODY)
        return True

    @property
    def thread(self) -> ThreadFuture[None] | None:
        """Done when the thread of a `def` body has ended; None when there is none, or no more."""
        thread = self._branches.thread
        return None if thread is None or thread.ended.done() else thread.ended

    def when_unwound(self, callback: Callable[[], None]) -> None:
        """Call back when no code of the closed body runs any more: at once, but for a thread that still unwinds."""
        thread = self.thread
        if thread is None:
            callback()
        else:
            thread.add_done_callback(lambda _: self._call_from_thread(callback))

    def _call_from_thread(self, callback: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, context=NO_BODY)
        except RuntimeError:
            logger.debug("a body's thread ended after its worker's loop")

    def foreign_await(self, timed: Collection[Branches | None] | None = None) -> str | None:
        """Return where it awaits something that is not durable; see `Branches.foreign_await`."""
        return self._branches.foreign_await(timed)

    def interrupt(self) -> None:
        """Cancel what awaits something that is not durable."""
        self._branches.interrupt()

    def close(self) -> None:
        self._branches.close()
