"""Carrier: an asyncio task that carries attempts one after another, until one of them waits; that one keeps it to its end.

Theory of operation. A task for each attempt costs more than a short step does, and most short steps never wait for
anything. So the attempts that are begun in one turn of the loop share a task. Each begins in a context of its own; one
that ends without having waited leaves the task to the next; one that waits keeps it, as if it had been made for it, and
each of the rest gets another. So `asyncio.current_task()`, time-outs, task groups and cancels in a step mean what they
always do. Where the last attempt has waited, the next ones are expected to wait too, and get a task each from the
beginning: else a hundred that wait would begin in a hundred turns.

A task goes to no other attempt once one has canceled it, or when something still refers to it that did not before: what
a step has kept of its task must never reach another step.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from sys import getrefcount
from typing import Any
from weakref import getweakrefcount

from outlast.branch import NO_BODY, detached

from .attempt import Attempt


class Carriers:
    """Begins the attempts of one worker."""

    def __init__(self, perform: Callable[[Attempt], Coroutine[Any, Any, None]]) -> None:
        self.perform = perform
        self.begun: deque[Attempt] = deque()
        """Those that no task has taken up yet."""
        self.has_waited = False
        """The last attempt that was taken up waited for something."""
        self._due = 0

    def begin(self, attempt: Attempt) -> None:
        """Have an attempt begin in the next turn of the loop, unless its call is stopped before."""
        self.begun.append(attempt)
        if self.has_waited or not self._due:
            self._make_carrier()

    def _make_carrier(self) -> None:
        self._due += 1
        carrier = Carrier(self)
        carrier.task = detached(carrier)

    def started(self) -> None:
        """A carrier is due no more: it runs."""
        self._due -= 1

    def left(self) -> None:
        """A carrier takes up nothing more: what it leaves is taken up by others."""
        wanted = len(self.begun) if self.has_waited else min(len(self.begun), 1)
        while self._due < wanted:
            self._make_carrier()


def _is_marked(task: asyncio.Task[None], name: str) -> bool:
    """Tell whether a step has left something on its task that the next one would notice: a cancel, even one that it took back, a name,
    a callback. What cannot be asked counts as left."""
    is_canceled = task.cancelling() > 0 or getattr(task, "_must_cancel", True)
    return bool(is_canceled or getattr(task, "_callbacks", True) or task.get_name() != name)


class Carrier(Coroutine[Any, Any, None]):
    """What the task runs."""

    __slots__ = ("_carriers", "_coroutine", "_variables", "task")

    def __init__(self, carriers: Carriers) -> None:
        self._carriers = carriers
        self._coroutine: Coroutine[Any, Any, None] | None = None
        """Of the attempt that has waited."""
        self._variables = NO_BODY
        self.task: asyncio.Task[None]

    def send(self, value: Any) -> Any:
        if self._coroutine is None:
            return self._carry()
        return self._variables.run(self._coroutine.send, value)

    def throw(self, *error: Any) -> Any:
        if self._coroutine is None:  # the loop is ended before anything began: nothing does any more
            self._carriers.started()
            self._carriers.begun.clear()
            raise asyncio.CancelledError
        return self._variables.run(self._coroutine.throw, *error)

    def close(self) -> None:
        if self._coroutine is not None:
            self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, None]:
        raise TypeError("a carrier is run by its task, and awaited by nobody")

    def _carry(self) -> Any:
        """Begin attempts until one waits, and return what it waits for. Raises `StopIteration` when there are no more."""
        carriers, task = self._carriers, self.task
        del self.task  # the two would keep each other alive, until the collector comes
        carriers.started()
        begun, perform = carriers.begun, carriers.perform
        references, name = getrefcount(task), task.get_name()
        try:
            while begun:
                attempt = begun.popleft()
                if attempt.call.is_stopped:
                    continue
                coroutine, variables = perform(attempt), NO_BODY.copy()
                attempt.task = task
                try:
                    waiting = variables.run(coroutine.send, None)
                except StopIteration:
                    carriers.has_waited, attempt.task = False, None
                    if getrefcount(task) != references or getweakrefcount(task) != 1 or _is_marked(task, name):  # 1: asyncio's own
                        break
                else:
                    carriers.has_waited, self._coroutine, self._variables = True, coroutine, variables
                    return waiting
        finally:
            carriers.left()
        raise StopIteration
