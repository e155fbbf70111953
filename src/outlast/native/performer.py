"""Performer: runs attempts of steps, as coroutines, in threads or in processes of their own, and says how they ended.

Attempts belong to the worker and not to the body: they run in a context that names no body, so that what a step does
with asyncio is its own business. An attempt that was stopped may go on in its thread; it is remembered as lingering,
and its run is not executed again in this process before it has ended.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable
from concurrent.futures import Future as ThreadFuture
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from outlast.database.borrowed import Kept, borrowing_of
from outlast.driver import Condition
from outlast.effect import NotDone
from outlast.errors import FinalError, PayloadError, RetryLater, StepStuckError
from outlast.events import Events
from outlast.failure import Failure, capture, type_name
from outlast.ids import jitter
from outlast.limits import CONCURRENCY_MAX
from outlast.scope import STEP
from outlast.step import Step
from outlast.this_step import StepAttempt

from .activity import Activities
from .attempt import Attempt
from .call import Call
from .carrier import Carriers
from .conclusion import Committed, Conclusion
from .effecting import Effecting, Effects
from .process_step import ProcessFailedError, run_in_process
from .step_timeout import timed_out
from .store import ClaimedRun, StepCheckpoint
from .transacting import Transacting, Transactions
from .waiting import Waits

if TYPE_CHECKING:
    from .driver import NativeDriver

logger = logging.getLogger("outlast")


class Performer:
    """Attempts of one worker."""

    def __init__(
        self,
        *,
        concurrency: int,
        events: Events,
        activities: Activities,
        services: Callable[[], Any],
        now: Callable[[], datetime],
        transactions: Transactions | None = None,
        effects: Effects | None = None,
        waits: Waits | None = None,
    ) -> None:
        self._threads = ThreadPoolExecutor(min(concurrency * 2, CONCURRENCY_MAX), thread_name_prefix="outlast-step")
        self._events = events
        self._attempts = activities.attempts
        self._carriers = Carriers(self._attempt)
        self._services = services
        self._now = now
        self._transactions = transactions
        self._effects = effects
        self._waits = waits
        self._lingering: dict[str, set[ThreadFuture[Any]]] = {}
        self._ending: dict[str, set[Call]] = {}

    def begin(self, call: Call, driver: NativeDriver) -> None:
        """Begin one attempt; the driver is told how it ended, unless it was stopped before."""
        call.work = self._attempts[call] = attempt = Attempt(call, driver, self._services)
        self._carriers.begin(attempt)

    def stop(self, call: Call, reason: str) -> None:
        """Tell what goes on for a call to end, and wait for nothing."""
        call.is_stopped = True
        attempt = self._attempts.get(call)
        if attempt is not None:
            if attempt.started_at is not None:
                attempt.tell(reason)
                self._ending.setdefault(attempt.run_id, set()).add(call)
            else:
                del self._attempts[call]  # it has not begun, and will not
        call.stop()

    def tasks_of(self, run_id: str) -> list[asyncio.Task[None]]:
        """Return what carries the attempts of a run that have begun and have not ended."""
        return [attempt.task for attempt in self._attempts.values() if attempt.task is not None and attempt.run_id == run_id]

    def attempts_of(self, run_id: str) -> list[StepAttempt[Any]]:
        return [attempt.see() for attempt in self._attempts.values() if attempt.started_at is not None and attempt.run_id == run_id]

    def lingering(self, run_id: str) -> set[ThreadFuture[Any]]:
        """Return the threads in which attempts of this run still go on although they were stopped."""
        return self._lingering.get(run_id, set())

    def has_lingering(self, run_id: str) -> bool:
        """Tell whether a stopped attempt of this run still goes on: a thread, a process, or a coroutine that takes its time."""
        return run_id in self._lingering or run_id in self._ending

    @property
    def lingering_runs(self) -> set[str]:
        return self._lingering.keys() | self._ending.keys()

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def report_refused(self, claim: ClaimedRun, what: str) -> None:
        """Say that the database refused a write of a claim that is not current any more."""
        logger.warning("run %s: the database refused %s, because token %d is not current any more", claim.id, what, claim.token)
        self._events.emit("write_refused", run=claim.id, token=claim.token, what=what)

    # --- one attempt -----------------------------------------------------------------------------------------------------
    async def _attempt(self, attempt: Attempt) -> None:
        call, driver = attempt.call, attempt.driver
        assert call.step is not None  # only steps are performed; timers come due
        started_at = attempt.started_at = self._now()
        STEP.set(attempt.see)
        if self._events.is_heard("step_attempt_started"):
            self._events.emit("step_attempt_started", run=attempt.run_id, step=str(call.key), attempt=call.attempts + 1)
        try:
            if not driver.checkpoints.has_room:
                await driver.checkpoints.wait_for_room()
            step = call.step.step
            conclusion: Conclusion | None = None
            if call.step.on is not None:
                conclusion = await self._transact(call, attempt.see(), driver)
                value = None
            elif call.step.effect is not None:
                conclusion = await self._affect(call, attempt.see(), driver)
                value = None
            elif call.awaited is not None:
                conclusion = await self._check(call, attempt.see(), driver)
                value = None
            elif step.is_plain:
                args, kwargs = step.signature.decode_arguments(call.step.arguments, step.arguments_field)
                value = await step.function(*args, **kwargs)
            else:
                value = await self._run(call, attempt.see())
            result = step.signature.result.encode(value, step.result_field) if conclusion is None else ""
            self._forget(attempt)
        except asyncio.CancelledError as error:
            self._forget(attempt)
            if not call.is_stopped:  # the step canceled itself
                driver.attempt_failed(call, capture(error), started_at, self._retry_in(call, capture(error), error))
        except BaseException as error:  # SystemExit too: it must not end the worker
            self._forget(attempt)
            if not call.is_stopped:
                failure = _failure_of(error)
                driver.attempt_failed(call, failure, started_at, self._retry_in(call, failure, error))
        else:
            if conclusion is None:
                driver.attempt_succeeded(call, result, started_at)
            else:
                conclusion.tell(driver, call, started_at)

    def _forget(self, attempt: Attempt) -> None:
        """An attempt has ended, before the driver is told how."""
        call = attempt.call
        self._attempts.pop(call, None)
        call.work = attempt.task = None
        if self._ending:
            _discard(self._ending, attempt.run_id, call)
        call.progress = attempt.progress or call.progress
        call.was_reported = call.was_reported or attempt.was_taken

    async def _run(self, call: Call, attempt: StepAttempt[Any]) -> Any:
        assert call.step is not None  # as in _attempt
        step, options = call.step.step, call.step.step.options
        if options.process:
            return await run_in_process(step, call.step.arguments, attempt, options.timeout)
        args, kwargs = step.signature.decode_arguments(call.step.arguments, step.arguments_field)
        if step.is_async and options.timeout is not None:
            return await self._run_coroutine(step.function(*args, **kwargs), call, options.timeout)
        return await self._run_thread(lambda: step.function(*args, **kwargs), call, attempt, options.timeout)

    async def _affect(self, call: Call, attempt: StepAttempt[Any], driver: NativeDriver) -> Conclusion:
        assert self._effects is not None  # a worker always has them

        async def run(step: Step[..., Any], function: Callable[[], Any], timeout: timedelta) -> Any:
            if step.is_async:
                return await self._run_coroutine(function(), call, timeout)
            return await self._run_thread(function, call, attempt, timeout)

        effecting = Effecting(self._effects, driver, call, attempt, run)
        call.transacting = effecting
        return await effecting.run()

    async def _check(self, call: Call, attempt: StepAttempt[Any], driver: NativeDriver) -> Conclusion:
        assert isinstance(call.awaited, Condition)  # no other wait has a function
        assert self._waits is not None  # a worker always has them
        after = await self._waits.before_check(driver, call.awaited)
        step = call.awaited.check.step
        if step.is_plain:
            args, kwargs = step.signature.decode_arguments(call.awaited.check.arguments, step.arguments_field)
            value = await step.function(*args, **kwargs)
        else:
            value = await self._run(call, attempt)
        return await self._waits.after_check(call, driver, call.awaited, value, after)

    async def _transact(self, call: Call, attempt: StepAttempt[Any], driver: NativeDriver) -> Committed:
        assert call.step is not None  # as in _attempt
        assert self._transactions is not None  # a worker always has them
        borrowing, timeout = borrowing_of(call.step.on), call.step.step.options.timeout
        transacting = Transacting(self._transactions, driver, call, await self._transactions.get_identity(), attempt.raise_if_canceled)
        call.transacting = transacting
        kept: Kept[StepCheckpoint]
        if not borrowing.is_async:
            kept = await self._run_thread(partial(transacting.run_blocking, borrowing), call, attempt, timeout)
        elif timeout is None:
            kept = await transacting.run_awaited(borrowing)
        else:
            kept = await self._run_coroutine(transacting.run_awaited(borrowing), call, timeout)
        return Committed(kept)

    async def _run_coroutine(self, coroutine: Any, call: Call, timeout: timedelta) -> Any:
        try:
            async with asyncio.timeout(timeout.total_seconds()) as limit:
                return await coroutine
        except TimeoutError:
            if limit.expired():
                raise timed_out(call, timeout) from None
            raise

    async def _run_thread(self, function: Callable[[], Any], call: Call, attempt: StepAttempt[Any], timeout: timedelta | None) -> Any:
        variables = contextvars.copy_context()
        thread = self._threads.submit(variables.run, _called, function)
        waiter = asyncio.wrap_future(thread)
        waiter.add_done_callback(look_at)
        seconds = None if timeout is None else timeout.total_seconds()
        try:
            done, _ = await asyncio.wait({waiter}, timeout=seconds)
            if done:
                return waiter.result()
            attempt.tell("the attempt timed out")
            done, _ = await asyncio.wait({waiter}, timeout=seconds)
        except asyncio.CancelledError:
            self.linger(attempt.run_id, thread)
            raise
        assert timeout is not None  # without one the first wait ends only with the thread
        if not done:
            self.linger(attempt.run_id, thread)
            raise StepStuckError(str(call.key), call.attempts + 1, capture(timed_out(call, timeout)))
        if call.step is not None and call.step.on is not None and waiter.exception() is None:
            return waiter.result()  # late, and committed
        if call.step is not None and call.step.effect is not None and (waiter.exception() is None or isinstance(waiter.exception(), NotDone)):
            return waiter.result()  # late, and still the current attempt's word
        raise timed_out(call, timeout)

    def linger(self, run_id: str, thread: ThreadFuture[Any]) -> None:
        """Remember a thread that goes on although it was stopped: its run is not executed here before it has ended."""
        if thread.cancel() or thread.done():
            return
        self._lingering.setdefault(run_id, set()).add(thread)
        loop = asyncio.get_running_loop()

        def ended(thread: ThreadFuture[Any]) -> None:
            try:
                loop.call_soon_threadsafe(self._end_lingering, run_id, thread)
            except RuntimeError:
                logger.debug("a stopped step of run %s ended after its worker's loop", run_id)

        thread.add_done_callback(ended)

    def _end_lingering(self, run_id: str, thread: ThreadFuture[Any]) -> None:
        _discard(self._lingering, run_id, thread)

    def _retry_in(self, call: Call, failure: Failure, error: BaseException) -> timedelta | None:
        """Return the delay before the next attempt, or None when this was the last."""
        assert call.step is not None  # as in _attempt
        policy, attempts = call.step.step.options.retry, call.attempts + 1
        if isinstance(error, StepStuckError | PayloadError) or policy.is_exhausted(attempts, failure):
            return None
        return error.delay if isinstance(error, RetryLater) else policy.delay(attempts, jitter())


def _discard(sets: dict[str, set[Any]], run_id: str, member: object) -> None:
    members = sets.get(run_id)
    if members is not None:
        members.discard(member)
        if not members:
            del sets[run_id]


def _called(function: Callable[[], Any]) -> Any:
    try:
        return function()
    except StopIteration as error:  # a future cannot hold one, and who waits for the thread would wait for ever
        raise RuntimeError("the step raised StopIteration") from error


def _failure_of(error: BaseException) -> Failure:
    if isinstance(error, ProcessFailedError):
        return error.failure
    if isinstance(error, StepStuckError):
        return Failure(type_name(StepStuckError), str(error), bases=(), is_final=True)
    return capture(error, is_final=isinstance(error, FinalError | PayloadError))


def look_at(future: asyncio.Future[Any]) -> None:
    """Look at the outcome of a thread that nobody waits for any more, so that asyncio does not report it."""
    if not future.cancelled():
        future.exception()
