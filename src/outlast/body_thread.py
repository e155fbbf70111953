"""BodyThread: a `def` body in a thread of its own, served by the coroutine that the engine takes for the body.

Theory of operation. The coroutine is the body's one branch: it runs the function in a thread, waits for what the thread
asks for, awaits that on the `Context` as an `async` body would, and hands the answer back. So keys, replay, failures and
cancel are those of an `async` body. While the thread computes, the body is moving: `Branches.thread` shows it, so that
no record is handed over and the run does not park meanwhile.
When the coroutine is closed from outside, the thread is told at its `ctx` call, or at the next one: `BodyUnwound` is
raised there, and again at every further call (`finally` blocks run, `except Exception` does not see it), and nothing is
recorded any more. Until the thread has ended, the engine does not execute the run again in this process.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import logging
import queue
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future as ThreadFuture
from typing import TYPE_CHECKING, Any, TypeVar, cast

from outlast.blocking_context import BlockingContext
from outlast.branch import NO_BODY, BranchClosed
from outlast.driver import Handed
from outlast.errors import UsageError
from outlast.scope import BODY

if TYPE_CHECKING:
    from outlast.context import Context

R = TypeVar("R")
logger = logging.getLogger("outlast")

_REFUSALS_MAX = 100  # a body that catches its own unwinding so often is not going to end
_REFUSAL_SECONDS = 1.0  # and then takes its turns slowly

Answer = tuple[Any, BaseException | None]
"""What a call returned, or what it raised."""
Request = Callable[[], Any]
"""What the coroutine is to do: it returns the answer, or a coroutine that does."""


class BodyUnwound(BaseException):
    """Raised in the thread of a body that was closed; no code of a body should catch it."""


class BodyThread:
    """One execution of one `def` body."""

    def __init__(self, function: Callable[..., Any], context: Context[Any], input: tuple[Any, ...]) -> None:
        self._call = functools.partial(function, BlockingContext(context, self), *input)
        self._name = getattr(function, "__name__", "body")
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, args=(contextvars.copy_context(),), name=f"outlast-body-{self._name}", daemon=True)
        self._answers: queue.SimpleQueue[Answer | None] = queue.SimpleQueue()
        self._outcome: Answer | None = None
        self._is_closed = False
        self._refusals = 0
        self.request: Handed | None = None
        """What the coroutine awaits while the thread computes; it holds the thread's next request, None at its end."""
        self.ended: ThreadFuture[None] = ThreadFuture()
        """Done when no code of the body runs any more."""

    # --- on the loop -----------------------------------------------------------------------------------------------------
    async def serve(self) -> Any:
        """Run the body to its end: return what it returns, raise what it raises."""
        branches = BODY.get()
        assert branches is not None  # this coroutine is a body
        branches.thread = self
        self.ended.set_running_or_notify_cancel()
        self.request = Handed(loop=self._loop)
        try:
            self._thread.start()
            while True:
                request = await self.request
                self.request = None
                if request is None:
                    return self._result()
                answer = await self._answered(request)
                self.request = Handed(loop=self._loop)
                self._answers.put(answer)
        finally:
            self.request = None
            self._close()

    @staticmethod
    async def _answered(request: Request) -> Answer:
        try:
            answer = request()
            return (await answer if inspect.iscoroutine(answer) else answer), None
        except (BranchClosed, GeneratorExit):  # the body is closed, and the thread is told so
            raise
        except BaseException as error:  # a cancel too, and a durable time-out: they are raised where the body called
            return None, error

    def _result(self) -> Any:
        assert self._outcome is not None  # set before the thread says that it has ended
        value, error = self._outcome
        self._outcome = None
        if error is not None:
            try:
                raise error
            finally:
                del error  # its traceback holds this frame
        if inspect.iscoroutine(value):
            value.close()
            raise UsageError(f"task {self._name}: a `def` body returned a coroutine, which nobody awaits: make the body `async def`, or call ctx.step(...)")
        return value

    def _close(self) -> None:
        if not self._thread.ident:  # it never began
            self.ended.set_result(None)
        self._is_closed = True
        self._answers.put(None)

    def _asked(self, request: Request | None) -> None:
        if self.request is not None and not self.request.done():
            self.request.set_result(request)

    # --- in the thread ---------------------------------------------------------------------------------------------------
    def _run(self, variables: contextvars.Context) -> None:
        try:
            self._outcome = variables.run(self._call), None
        except BodyUnwound:
            self._outcome = None, None
        except BaseException as error:  # whatever it is, the coroutine raises it
            self._outcome = None, error
        self._call = functools.partial(_nothing)
        self.ended.set_result(None)
        self._post(None)

    def call(self, make: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """Await on the loop, as the body, what `make` returns; return its result or raise what it raises."""
        return cast("R", self._ask(make))

    def do(self, function: Callable[[], R]) -> R:
        """Call a function on the loop, as the body."""
        return cast("R", self._ask(function))

    def _ask(self, request: Request) -> Any:
        if threading.current_thread() is not self._thread:
            raise UsageError("ctx was used outside of its body's own thread, or in a step: durable calls belong to the body's own code")
        if self._is_closed or not self._post(request):
            self._refuse()
        answer = self._answers.get()
        if answer is None:
            self._refuse()
        value, error = cast("Answer", answer)
        if error is not None:
            try:
                raise error
            finally:
                del answer, error  # the error's traceback holds this frame, which would hold the error
        return value

    def _post(self, request: Request | None) -> bool:
        """Hand a request to the coroutine; False when its loop is gone."""
        try:
            self._loop.call_soon_threadsafe(self._asked, request, context=NO_BODY)
        except RuntimeError:
            return False
        return True

    def _refuse(self) -> None:
        self._refusals += 1
        if self._refusals == _REFUSALS_MAX:
            logger.error("the body of %s catches its own unwinding again and again; its thread is left behind", self._name)
        if self._refusals >= _REFUSALS_MAX:
            threading.Event().wait(_REFUSAL_SECONDS)
        raise BodyUnwound


def in_thread(function: Callable[..., Any]) -> Callable[..., Coroutine[Any, Any, Any]]:
    """Return the `async` body that runs a `def` body in a thread of its own."""

    async def body(context: Context[Any], *input: Any) -> Any:
        return await BodyThread(function, context, input).serve()

    return body


def _nothing() -> None:
    """What is left of a body's call when it is over, so that its input and what it returned can go."""
