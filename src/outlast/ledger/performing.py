"""Performing: calls `perform` and `reconcile` without an engine, as coroutines or on threads, until their time-out.

A thread cannot be ended. One that goes on after nobody waits for it is remembered, so that nothing begins beside it in this
process; the ledger says so to everybody else until it ends, and what it returns in the end is offered to whoever called it.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from outlast.effect import Effect
from outlast.errors import OutlastError, StepStuckError
from outlast.failure import capture
from outlast.scope import STEP
from outlast.step import Step
from outlast.this_step import StepAttempt

from .abandoned import Abandoned
from .operation import OperationName
from .threads import Threads
from .verdict import timed_out

logger = logging.getLogger("outlast")


class RaisedError(OutlastError):
    """The function itself raised `error`: it is its word, and none of the library's."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


class Performing:
    """Functions of the application's that one ledger has under way."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._lingering: dict[OperationName, set[Future[Any]]] = {}

    def is_lingering(self, name: OperationName) -> bool:
        """Tell whether a thread of an earlier call for this operation still goes on here."""
        going = {thread for thread in self._lingering.get(name, ()) if not thread.done()}
        if going:
            self._lingering[name] = going
        else:
            self._lingering.pop(name, None)
        return bool(going)

    async def call(
        self,
        effect: Effect[..., Any],
        step: Step[..., Any],
        function: Callable[[], Any],
        attempt: StepAttempt[Any],
        name: OperationName,
        abandoned: Abandoned | None = None,
    ) -> Any:
        """Call `function`, which is `step`'s with its arguments. What it raises comes as `RaisedError`, and its time-out as `AttemptTimeoutError`.

        A `CancelledError` comes as it is: the caller sees whether it is his own. A thread is told at its time-out, and waited for once as
        long again: what it says by then counts. After that it is `StepStuckError`, and `abandoned` sees to it, as it does when the caller
        is canceled.
        """
        if step.is_async:
            return await self._await(effect, function, attempt)
        return await self._wait(effect, function, attempt, name, abandoned)

    async def _await(self, effect: Effect[..., Any], function: Callable[[], Any], attempt: StepAttempt[Any]) -> Any:
        async def run() -> Any:
            STEP.set(lambda: attempt)
            try:
                return await function()
            except (Exception, BaseExceptionGroup, SystemExit) as error:  # here, for a task that ends with SystemExit ends its loop
                raise RaisedError(error) from error

        try:
            async with asyncio.timeout(effect.timeout.total_seconds()) as limit:
                return await asyncio.create_task(run())
        except TimeoutError:
            raise timed_out(effect) from None
        except RaisedError as raised:
            if limit.expired() and isinstance(raised.error, TimeoutError):
                raise timed_out(effect) from None
            raise

    async def _wait(
        self, effect: Effect[..., Any], function: Callable[[], Any], attempt: StepAttempt[Any], name: OperationName, abandoned: Abandoned | None
    ) -> Any:
        def run() -> Any:
            STEP.set(lambda: attempt)
            try:
                return function()
            except StopIteration as error:  # a future cannot hold one, and who waits for the thread would wait for ever
                raise RuntimeError(f"{effect.name} raised StopIteration") from error

        variables, seconds = contextvars.copy_context(), effect.timeout.total_seconds()
        thread = self._threads.perform(lambda: variables.run(run))
        waiter = asyncio.wrap_future(thread)
        waiter.add_done_callback(_look_at)
        try:
            done, _ = await asyncio.wait({waiter}, timeout=seconds)
            if not done:
                attempt.tell("the attempt timed out")
                done, _ = await asyncio.wait({waiter}, timeout=seconds)
        except asyncio.CancelledError:
            attempt.tell("the caller was canceled")
            self._abandon(thread, name, abandoned)
            raise
        if done:
            return _said(waiter)
        self._abandon(thread, name, abandoned)
        raise StepStuckError(effect.name, attempt.attempt, capture(timed_out(effect)))

    def _abandon(self, thread: Future[Any], name: OperationName, abandoned: Abandoned | None) -> None:
        if thread.cancel():
            return  # it never began
        self._lingering.setdefault(name, set()).add(thread)
        if abandoned is not None:
            abandoned.leave(thread)


def _said(waiter: asyncio.Future[Any]) -> Any:
    try:
        return waiter.result()
    except asyncio.CancelledError:
        raise
    except (Exception, BaseExceptionGroup, SystemExit) as error:
        raise RaisedError(error) from error


def _look_at(waiter: asyncio.Future[Any]) -> None:
    """Look at what nobody waits for any more, so that asyncio does not report it."""
    if not waiter.cancelled():
        waiter.exception()
