"""Stillness: tells when the body of a run stands still, from outside of it. It never runs or changes anything of a body.

Theory of operation. A standstill is: nothing of the body is scheduled to run. Looking at what the tasks await does not
show it: a finished child of a nested `gather` wakes its parent only some loop turns later. What shows it is the loop's own
queue: every callback of a body's tasks and futures is registered in a copy of the body's context, so the body is still
moving exactly as long as a queued handle's context names it. One look at the queue a turn serves all bodies of a loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from outlast.branch import NO_BODY, Branches
from outlast.errors import NotSupportedError
from outlast.scope import BODY


class Stillness:
    """Tells when bodies have come to a standstill, with one look a turn at the loop's queue."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        queue = getattr(loop, "_ready", None)
        if queue is None:
            raise NotSupportedError(f"{type(loop).__name__} does not show its queue: start the worker on asyncio's own event loop")
        self._loop = loop
        self._queue = queue
        self._awaited: dict[Branches, Callable[[], None]] = {}
        self._is_scheduled = False

    def when_still(self, branches: Branches, callback: Callable[[], None]) -> None:
        """Call back once, from outside of the body, as soon as nothing of it is scheduled to run."""
        self._awaited[branches] = callback
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._look, context=NO_BODY)

    def _look(self) -> None:
        self._is_scheduled = False
        queued = list(self._queue)  # at once: other threads append to it
        moving = {handle._context.get(BODY) for handle in queued}
        for branches in [branches for branches in self._awaited if branches not in moving]:
            self._call(self._awaited.pop(branches))
        if self._awaited and not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._look, context=NO_BODY)

    def _call(self, callback: Callable[[], None]) -> None:
        """Call back at once, because a turn later the body may move again; one body's trouble is not the others'."""
        try:
            callback()
        except Exception as error:
            self._loop.call_exception_handler({"message": "a body at a standstill could not go on", "exception": error})
