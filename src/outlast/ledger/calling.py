"""Calling: one call of `Ledger.run`, from its plan to a result, an error, or a question to a person.

Theory of operation. A loop of two halves, as for a run's effects. `Entries.take` finds out in one transaction what is next,
and begins an attempt where that is it; what is done then ends the call, or leads to another take. The attempt is durable
before `perform` is called. While the call acts it renews the attempt's lease; when the process dies the lease runs out, and
the next caller finds an attempt without a result, which is reconciled before anything else is done.

A commit of unknown outcome is looked at by taking anew. An attempt that such a take has begun was performed by nobody, and is
performed. A thread that ends after nobody waits for it offers its result by itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

from outlast.clock import Clock, StoreClock
from outlast.database.backoff import Backoff
from outlast.database.transaction import Transaction
from outlast.effect import Attempt, Done, Effect, NotDone, Unsure, Verdict
from outlast.errors import EffectFailedError, OperationInProgressError, OperationUnsureError, PayloadError, StepStuckError
from outlast.failure import Failure, capture
from outlast.ids import jitter, run_id
from outlast.limits import ENQUEUE_TIMEOUT, LEDGER_POLL_MAX
from outlast.this_step import StepAttempt

from .abandoned import Abandoned
from .entries import Begun, Entries, GivenUp, OperationMovedError, Taken
from .lease import leased
from .operation import Await, Change, InProgress, OperationAttempt, OperationChange, Plan, Reconcile, Return
from .performing import Performing, RaisedError
from .threads import Threads
from .verdict import Believed, Doubted, TooSoon, checked_verdict, failure_of, is_not_done, retry_in, worth

R = TypeVar("R")
logger = logging.getLogger("outlast")


class Calling:
    """One call."""

    def __init__(
        self,
        entries: Entries,
        plan: Plan,
        effect: Effect[..., Any],
        *,
        threads: Threads,
        performing: Performing,
        services: Callable[[], Any],
        clock: Clock,
        lease: timedelta,
    ) -> None:
        self._entries = entries
        self._plan = plan
        self._effect = effect
        self._threads = threads
        self._performing = performing
        self._services = services
        self._clock = clock
        self._time = StoreClock(clock)
        self._lease = lease
        self._failures = 0
        """Attempts of this call that were not done; those of earlier calls do not count against it."""
        self._shares_failure = False
        """It has waited for another call, or made what may have been the end itself: a failure that it finds is its own."""

    async def run(self, wait: timedelta | None) -> str:
        """Return the result as JSON text; wait for another caller so long at most, None for as long as it takes."""
        patience = Backoff(LEDGER_POLL_MAX.total_seconds())
        give_up_at = None if wait is None else self._clock.monotonic() + wait.total_seconds()
        self._decode()  # what cannot be read is found before anything is planned
        while True:
            try:
                taken = None if self._performing.is_lingering(self._plan.name) else await self._take()
                if taken is None or isinstance(taken.move, InProgress):
                    await self._wait("" if taken is None else taken.operation.owner.run, patience, give_up_at)
                    continue
                result = await self._go_on(taken)
            except OperationMovedError:
                logger.debug("operation %s of effect %s has moved: looked at anew", self._plan.name.key, self._plan.name.effect)
                await asyncio.sleep(patience.next())
                continue
            if result is not None:
                return result

    async def _take(self) -> Taken:
        new_id = run_id()
        taken, in_doubt = await self._write_with(lambda tx: self._entries.take(tx, new_id, shares_failure=self._shares_failure))
        self._time.correct(taken.operation.now)
        match taken.move:
            case Reconcile(attempt) if in_doubt and attempt.outcome is None and attempt.run_token == self._plan.owner.token:
                return Taken(Begun(attempt), taken.operation)
        return taken

    async def _wait(self, run: str, patience: Backoff, give_up_at: float | None) -> None:
        delay = patience.next()
        if give_up_at is not None:
            rest = give_up_at - self._clock.monotonic()
            if rest <= 0:
                raise OperationInProgressError(self._plan.name.effect, self._plan.name.key, run)
            delay = min(delay, rest)
        self._shares_failure = True
        await asyncio.sleep(delay)

    async def _go_on(self, taken: Taken) -> str | None:
        """Do what is next; None to take again."""
        match taken.move:
            case Return(result):
                return result
            case Begun(attempt):
                return await self._perform(attempt)
            case Reconcile(attempt):
                return await self._reconcile(attempt, taken)
            case Await(decision):
                raise self._unsure(decision)
            case GivenUp(error):
                raise self._failed(taken.operation.attempt, error or capture(NotDone()))
        raise AssertionError(f"a move that nobody knows: {taken.move}")

    # --- performing --------------------------------------------------------------------------------------------------------
    async def _perform(self, attempt: OperationAttempt) -> str | None:
        step = self._effect.step
        abandoned = self._abandoned(attempt)
        try:
            async with leased(self._threads, lambda tx: self._entries.renew(tx, attempt.number, self._lease), self._lease):
                value = await self._call(step, attempt, abandoned)
                result = step.signature.result.encode(value, step.result_field)
        except asyncio.CancelledError as error:
            if _is_canceled():
                await abandoned.cut_off()
                raise
            await self._doubt(attempt, error)  # the effect canceled itself
        except RaisedError as raised:
            await self._after_raised(attempt, raised.error)
        except StepStuckError:
            await abandoned.cut_off()
            raise
        except Exception as error:  # its time-out, or a result that cannot be kept
            await self._doubt(attempt, error)
        else:
            await self._record(attempt, result)
            return result
        return None

    async def _record(self, attempt: OperationAttempt, result: str) -> None:
        """Keep a result, insisting for as long as the lease lasts; one that is refused is kept beside its attempt."""
        try:
            await self._write([self._entries.of_attempt(attempt, Change.RESULT, result=result)], self._lease)
        except OperationMovedError:
            is_kept, _ = await self._write_with(lambda tx: self._entries.settle_late(tx, attempt, result))
            if not is_kept:
                self._abandoned(attempt).warn_late()
                raise

    async def _after_raised(self, attempt: OperationAttempt, error: BaseException) -> None:
        """The function itself raised it, so that it may say that nothing was done."""
        if is_not_done(self._effect, error):
            await self._not_done(attempt, failure_of(error), error)
        else:
            await self._doubt(attempt, error)

    async def _doubt(self, attempt: OperationAttempt, error: BaseException) -> None:
        await self._write([self._entries.of_attempt(attempt, Change.DOUBT, error=failure_of(error))])

    async def _not_done(self, attempt: OperationAttempt, failure: Failure, error: BaseException) -> None:
        """An attempt failed and nothing was done: another one by the policy, or the end."""
        self._failures += 1
        changes = [self._entries.of_attempt(attempt, Change.NOT_DONE, error=failure)]
        delay = retry_in(self._effect, error, failure, self._failures, jitter())
        if delay is None:
            changes.append(self._entries.of_attempt(attempt, Change.GIVE_UP, error=failure))
            await self._write(changes)
            raise self._failed(attempt, failure)
        await self._write(changes)
        await asyncio.sleep(delay.total_seconds())

    # --- reconciling -------------------------------------------------------------------------------------------------------
    async def _reconcile(self, attempt: OperationAttempt, taken: Taken) -> str | None:
        try:
            async with leased(self._threads, lambda tx: self._entries.renew(tx, attempt.number, self._lease), self._lease):
                return await self._find_out(attempt, taken)
        except asyncio.CancelledError:
            if _is_canceled():
                await self._abandoned(attempt).cut_off()
            raise

    async def _find_out(self, attempt: OperationAttempt, taken: Taken) -> str | None:
        if self._effect.reconciler is None:
            raise await self._ask(taken, "it has no reconciler")
        try:
            verdict = checked_verdict(self._effect, await self._call(self._effect.reconciler, attempt))
        except (Exception, asyncio.CancelledError) as error:
            if _is_canceled():
                raise
            await self._reconcile_failed(taken, error.error if isinstance(error, RaisedError) else error, is_stuck=isinstance(error, StepStuckError))
            return None
        return await self._believe(verdict, attempt, taken)

    async def _believe(self, verdict: Verdict[Any], attempt: OperationAttempt, taken: Taken) -> str | None:
        match verdict:
            case Done(value):
                step = self._effect.step
                try:
                    result = step.signature.result.encode(value, step.result_field)
                except PayloadError as error:
                    raise await self._ask(taken, f"its reconciler found it done, with a result that cannot be kept: {error}") from error
                await self._write([self._entries.of_attempt(attempt, Change.FOUND_DONE, result=result)])
                return result
            case NotDone():
                await self._not_done_found(verdict, attempt, taken)
                return None
            case Unsure(reason):
                raise await self._ask(taken, reason)

    async def _not_done_found(self, verdict: NotDone, attempt: OperationAttempt, taken: Taken) -> None:
        asked_at = taken.operation.now  # before it looked: what it saw then says nothing about what came while it looked
        match worth(verdict, attempt, asked_at):
            case TooSoon(rest):
                await asyncio.sleep((asked_at + rest - self._time.now()).total_seconds())
            case Doubted(reason):
                raise await self._ask(taken, reason)
            case Believed() if attempt.error is not None:  # it ended with an error, and counts
                await self._not_done(attempt, attempt.error, verdict)
            case Believed():
                await self._write([self._entries.of_attempt(attempt, Change.NOT_DONE)])

    async def _reconcile_failed(self, taken: Taken, error: BaseException, *, is_stuck: bool) -> None:
        """The reconciler itself raised: it is asked again by the effect's policy, and then a person is."""
        policy, failures, failure = self._effect.step.options.retry, taken.operation.reconciles + 1, capture(error)
        if is_stuck or policy.is_exhausted(failures, failure):
            raise await self._ask(taken, f"its reconciler raised {failure}") from error
        await self._write_with(lambda tx: self._entries.count_reconcile(tx, taken.operation))
        await asyncio.sleep(policy.delay(failures, jitter()).total_seconds())

    async def _ask(self, taken: Taken, reason: str) -> OperationUnsureError:
        new_id = run_id()
        await self._write_with(lambda tx: self._entries.ask(tx, taken.operation, new_id, reason))
        return self._unsure(new_id)

    # --- calling the application ---------------------------------------------------------------------------------------------
    def _decode(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        step = self._effect.step
        return step.signature.decode_arguments(self._plan.arguments, step.arguments_field)

    async def _call(self, step: Any, attempt: OperationAttempt, abandoned: Abandoned | None = None) -> Any:
        """Call `perform` or `reconcile` with the arguments as they are stored."""
        args, kwargs = self._decode()
        around: StepAttempt[Any] = StepAttempt(
            run_id="",
            key=self._plan.name.effect,
            attempt=attempt.number,
            fencing_token=attempt.token,
            services=self._services,
            log=lambda: logger,
            last_progress=None,
            on_progress=lambda attempt, progress: None,
        )
        seen: Attempt[Any] = Attempt(around, key=self._plan.name.key, number=attempt.number, token=attempt.token)
        return await self._performing.call(self._effect, step, lambda: step.function(seen, *args, **kwargs), around, self._plan.name, abandoned)

    # --- writing -----------------------------------------------------------------------------------------------------------
    async def _write(self, changes: list[OperationChange], patience: timedelta = ENQUEUE_TIMEOUT) -> None:
        await self._write_with(lambda tx: self._entries.change(tx, changes), patience)

    async def _write_with(self, function: Callable[[Transaction], R], patience: timedelta = ENQUEUE_TIMEOUT) -> tuple[R, bool]:
        return await self._threads.write(function, patience, self._note_doubt)

    def _note_doubt(self) -> None:
        self._shares_failure = True

    def _abandoned(self, attempt: OperationAttempt) -> Abandoned:
        return Abandoned(self._entries, self._threads, self._effect, self._plan.name.key, attempt, self._lease)

    def _unsure(self, decision: str) -> OperationUnsureError:
        return OperationUnsureError(self._plan.name.effect, self._plan.name.key, decision)

    def _failed(self, attempt: OperationAttempt | None, failure: Failure) -> EffectFailedError:
        return EffectFailedError(self._effect.name, 0 if attempt is None else attempt.number, failure)


def _is_canceled() -> bool:
    """Tell a cancel of the caller from one that the application's function made up."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
