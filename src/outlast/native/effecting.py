"""Effecting: one effect of one claim, from what the ledger says of it until it is recorded, parked or failed.

Theory of operation. A loop of two halves. `Book.take` finds out, in one transaction, what is next: the operation is done; an
attempt has just begun; an attempt is there without a result; a person was asked, or has answered. What is done then ends
in a conclusion for the driver, or leads to another take. The plan and the attempt are durable before `perform` is called,
and an attempt of which nobody knows the outcome is reconciled before anything else is done.

A result and the record of the call are committed together. An unknown outcome of that commit is resolved by reading the
record. An attempt that a take has begun in a commit of unknown outcome was performed by nobody, and is performed.

What a function says after nobody waits for it is `EffectAttempt`'s business.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from outlast.branch import detached
from outlast.database.transaction import Refusal, RefusedError, Transaction
from outlast.effect import Attempt, Done, Effect, NotDone, Unsure, Verdict
from outlast.errors import CommitUnknownError, HistoryMismatchError, LeaseLostError, OperationConflictError, OutlastError, PayloadError, StepStuckError
from outlast.events import Events
from outlast.failure import Failure, capture
from outlast.ids import jitter, run_id
from outlast.ledger.entries import Begun, OperationMovedError
from outlast.ledger.operation import Await, Change, InProgress, OperationAttempt, OperationChange, OperationName, Owner, Plan, Reconcile, Return
from outlast.ledger.verdict import Doubted, TooSoon, checked_verdict, failure_of, is_not_done, retry_in, worth
from outlast.limits import OPERATION_POLL
from outlast.step import Step
from outlast.this_step import StepAttempt

from .backend import Backend
from .book import Book, Decided, Taken
from .calls import Backoff, Calls, is_passing
from .conclusion import Asked, Broken, Conclusion, Failed, Later, Recorded
from .effect_attempt import EffectAttempt
from .step_timeout import StepTimeoutError
from .store import StepCheckpoint

if TYPE_CHECKING:
    from .call import Call
    from .driver import NativeDriver

R = TypeVar("R")
_SAFE_SHARE = 0.85  # of the lease: as the pulse, which tells bodies then
logger = logging.getLogger("outlast")


class Run(Protocol):
    """Calls a function of the application's, as a coroutine or on a thread, until its time-out; the performer's."""

    def __call__(self, step: Step[..., Any], function: Callable[[], Any], timeout: timedelta, /) -> Awaitable[Any]: ...


class Effects:
    """What the effects of one worker share."""

    def __init__(
        self,
        backend: Backend,
        calls: Calls,
        events: Events,
        at: Callable[[], datetime | None],
        spawn: Callable[..., object],
        monotonic: Callable[[], float],
        lease: timedelta,
    ) -> None:
        self.monotonic = monotonic
        self.lease = lease.total_seconds()
        self.backend = backend
        self.calls = calls
        self.events = events
        self.at = at
        self.spawn = spawn


class Effecting:
    """One effect call in one claim, until its next conclusion."""

    def __init__(self, effects: Effects, driver: NativeDriver, call: Call, attempt: StepAttempt[Any], run: Run) -> None:
        assert call.step is not None and call.step.effect is not None  # noqa: PT018 - one fact: only effects come here
        self.effects = effects
        self._driver = driver
        self._call = call
        self._step_attempt = attempt
        self._run_function = run
        self.effect: Effect[..., Any] = call.step.effect
        self._arguments = call.step.arguments
        self._started_at = driver.clock()
        self.name = OperationName(self.effect.name, self.effect.options.key or derived_key(driver, call))
        claim = driver.claim
        self.owner = Owner(claim.id, claim.generation, str(call.key), claim.token, driver.checkpoints.worker_id)
        plan = Plan(self.name, self._arguments, call.step.digest, self.owner)
        self.book = Book(effects.backend, claim.hold, plan, self.effect, effects.at)
        self._taken_at = effects.monotonic()
        self.may_commit = False
        """Its record is being committed, and nothing that is decided here can stop it."""

    async def run(self) -> Conclusion:
        """Go on as far as possible. Raises `LeaseLostError` when the claim is not current, and what cannot be helped."""
        backoff = Backoff()
        self._decode_arguments()  # what cannot be read is found before anything is planned
        while True:
            try:
                conclusion = await self._go_on(await self._take())
            except OperationMovedError:
                logger.debug("operation %s of run %s has moved: looked at anew", self.name.key, self.owner.run)
                await asyncio.sleep(backoff.next())
            except OperationConflictError as error:
                return Failed(capture(error, is_final=True), None)
            except (
                HistoryMismatchError,
                RefusedError,
            ) as error:  # no word about the effect: the operation stays as it is, and a retry of the run goes on with it
                return Broken(error)
            else:
                if conclusion is not None:
                    return conclusion

    async def _take(self) -> Taken:
        """Find out what is next, and begin the attempt if that is it. One that was begun for nobody is noted as not done."""
        taking = detached(self._take_whole())
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            taking.add_done_callback(self._taken_in_vain)
            raise

    def _taken_in_vain(self, taking: asyncio.Future[Taken]) -> None:
        if taking.cancelled() or taking.exception() is not None:
            return
        match taking.result().move:
            case Begun(attempt):
                self.effects.spawn(EffectAttempt(self, attempt).withdraw())

    def _ensure_in_time(self) -> None:
        """Raise when this process was frozen since it took the operation: its lease is over, and nothing is begun any more."""
        if self.effects.monotonic() - self._taken_at > self.effects.lease * _SAFE_SHARE:
            raise LeaseLostError("the worker stood still for longer than its lease before the effect began: nothing of it is begun")

    async def _take_whole(self) -> Taken:
        new_id = run_id()
        self._taken_at = self.effects.monotonic()
        taken, in_doubt = await self._write("take_effect", lambda tx: self.book.take(tx, new_id))
        match taken.move:
            case Reconcile(attempt) if in_doubt and attempt.outcome is None and attempt.run_token == self.owner.token:
                return Taken(Begun(attempt), taken.operation)
        return taken

    async def _go_on(self, taken: Taken) -> Conclusion | None:
        """Do what is next; None to take again."""
        match taken.move:
            case Begun(attempt):
                return await self._perform(attempt)
            case Reconcile(attempt):
                return await self._reconcile(attempt, taken)
            case Return(result):
                return await self._record([], attempts=_number_of(taken), result=result)
            case Decided(answered, decision):
                change = OperationChange(self.name, answered.change, self.owner, _number_of(taken), result=answered.result, error=answered.error)
                return await self._record([change], attempts=_number_of(taken), result=answered.result, error=answered.error, decision=decision)
            case Await(decision):
                return self._asked(decision)
            case InProgress():
                return Later(self._driver.clock() + OPERATION_POLL)
        raise AssertionError(f"a move that nobody knows: {taken.move}")

    def _asked(self, decision: str) -> Asked:
        """Of a key that runs share the question may have been put by another one, with whose end it is withdrawn: look again by oneself."""
        return Asked(decision, None if self.effect.options.key is None else self._driver.clock() + 12 * OPERATION_POLL)

    # --- performing --------------------------------------------------------------------------------------------------------
    async def _perform(self, attempt: OperationAttempt) -> Conclusion | None:
        step, events = self.effect.step, self.effects.events
        events.emit("effect_attempt_started", run=self.owner.run, effect=self.name.effect, attempt=attempt.number, token=attempt.token)
        self._ensure_in_time()
        performing = EffectAttempt(self, attempt)
        try:
            value = await performing.call()
        except asyncio.CancelledError:
            if self._call.is_stopped:
                self.effects.spawn(performing.abandon())
                raise
            return await self._after_error(attempt, asyncio.CancelledError("the effect canceled itself"), is_own=False)
        except StepStuckError:
            await performing.abandon()
            raise
        except StepTimeoutError as error:
            return await self._after_error(attempt, error, is_own=False)
        except BaseException as error:
            return await self._after_error(attempt, error, is_own=True)
        try:
            result = step.signature.result.encode(value, step.result_field)
        except PayloadError as error:
            return await self._after_error(attempt, error, is_own=False)
        events.emit("effect_performed", run=self.owner.run, effect=self.name.effect, attempt=attempt.number)
        try:
            return await self._record([self._change(Change.RESULT, attempt, result=result)], attempts=attempt.number, result=result)
        except (LeaseLostError, OperationMovedError):
            await asyncio.to_thread(performing.offer, result)  # a frozen worker that comes back: its word is kept beside the attempt
            raise

    async def _after_error(self, attempt: OperationAttempt, error: BaseException, *, is_own: bool) -> Conclusion | None:
        """`is_own`: the function itself raised it, so that it may say that nothing was done."""
        failure = failure_of(error)
        if is_own and is_not_done(self.effect, error):
            return await self._not_done(attempt, failure, error)
        await self._note("note_effect", [self._change(Change.DOUBT, attempt, error=failure)])
        return None

    async def _not_done(self, attempt: OperationAttempt, failure: Failure, error: BaseException) -> Conclusion:
        """An attempt failed and nothing was done: another one by the policy, or the end."""
        changes = [self._change(Change.NOT_DONE, attempt, error=failure)]
        delay = retry_in(self.effect, error, failure, self._call.attempts + 1, jitter())
        if delay is not None:
            await self._note("note_effect", changes)
            return Failed(failure, delay)
        changes.append(self._change(Change.GIVE_UP, attempt, error=failure))
        return await self._record(changes, attempts=attempt.number, error=failure)

    # --- reconciling -------------------------------------------------------------------------------------------------------
    async def _reconcile(self, attempt: OperationAttempt, taken: Taken) -> Conclusion | None:
        if self.effect.reconciler is None:
            return await self._ask(taken, "it has no reconciler")
        try:
            verdict = checked_verdict(self.effect, await self.call_function(self.effect.reconciler, attempt))
        except asyncio.CancelledError as error:
            if self._call.is_stopped:
                raise
            return await self._reconcile_failed(taken, error)
        except BaseException as error:  # SystemExit too: the question stays, whatever the reconciler does
            return await self._reconcile_failed(taken, error)
        self.effects.events.emit("effect_reconciled", run=self.owner.run, effect=self.name.effect, attempt=attempt.number, verdict=type(verdict).__name__)
        return await self._believe(verdict, attempt, taken)

    async def _believe(self, verdict: Verdict[Any], attempt: OperationAttempt, taken: Taken) -> Conclusion | None:
        match verdict:
            case Done(value):
                try:
                    result = self.effect.step.signature.result.encode(value, self.effect.step.result_field)
                except PayloadError as error:
                    return await self._ask(taken, f"its reconciler found it done, with a result that cannot be kept: {error}")
                return await self._record([self._change(Change.FOUND_DONE, attempt, result=result)], attempts=attempt.number, result=result)
            case NotDone():
                asked_at = taken.operation.now  # before it looked: what it saw then says nothing about what came while it looked
                match worth(verdict, attempt, asked_at, taken.died_at):
                    case TooSoon(rest):
                        return Later(asked_at + rest)
                    case Doubted(reason):
                        return await self._ask(taken, reason)
                if attempt.error is not None:  # it ended with an error, and counts
                    return await self._not_done(attempt, attempt.error, verdict)
                await self._note("note_effect", [self._change(Change.NOT_DONE, attempt)])
                return None
            case Unsure(reason):
                return await self._ask(taken, reason)

    async def _reconcile_failed(self, taken: Taken, error: BaseException) -> Conclusion:
        """The reconciler itself raised: it is asked again by the effect's policy, and then a person is."""
        policy, failures = self.effect.step.options.retry, taken.operation.reconciles + 1
        if isinstance(error, StepStuckError) or policy.is_exhausted(failures, capture(error)):
            return await self._ask(taken, f"its reconciler raised {capture(error)}")
        await self._note_with("note_effect", lambda tx: self.book.count_reconcile(tx, taken.operation))
        return Later(self._driver.clock() + policy.delay(failures, jitter()))

    async def _ask(self, taken: Taken, reason: str) -> Conclusion:
        new_id = run_id()
        await self._note_with("ask_effect", lambda tx: self.book.ask(tx, taken.operation, new_id, reason))
        self.effects.events.emit("decision_opened", run=self.owner.run, effect=self.name.effect, decision=new_id)
        return self._asked(new_id)

    # --- calling the application ---------------------------------------------------------------------------------------------
    def _decode_arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        step = self.effect.step
        return step.signature.decode_arguments(self._arguments, step.arguments_field)

    async def call_function(self, step: Step[..., Any], attempt: OperationAttempt, watched: Callable[[Callable[[], Any]], Any] | None = None) -> Any:
        """Call `perform` or `reconcile` until its time-out; `watched` calls what runs on a thread."""
        args, kwargs = self._decode_arguments()
        seen: Attempt[Any] = Attempt(self._step_attempt, key=self.name.key, number=attempt.number, token=attempt.token, started_at=attempt.started_at)
        function = partial(step.function, seen, *args, **kwargs)
        return await self._run_function(step, function if watched is None else partial(watched, function), self.effect.timeout)

    # --- writing -----------------------------------------------------------------------------------------------------------
    def _change(self, change: Change, attempt: OperationAttempt, *, result: str | None = None, error: Failure | None = None) -> OperationChange:
        return OperationChange(self.name, change, self.owner, attempt.number, result=result, error=error)

    async def _note(self, name: str, changes: list[OperationChange]) -> None:
        await self._note_with(name, lambda tx: self.book.note(tx, changes))

    async def _note_with(self, name: str, function: Callable[[Transaction], None]) -> None:
        """Write something that is refused when it is there already: after a commit of unknown outcome that is taken for an answer."""
        try:
            await self._write(name, function)
        except _DoubtfulMove:
            logger.debug("%s of %s: an earlier try was committed", name, self.name.key)

    async def _write(self, name: str, function: Callable[[Transaction], R]) -> tuple[R, bool]:
        """Write until the database answers; also tell whether an earlier try may have been committed. Ends with the lease."""
        backoff, in_doubt = Backoff(), False
        while True:
            try:
                return await self.effects.calls.write(name, function), in_doubt
            except OperationMovedError:
                if in_doubt:
                    raise _DoubtfulMove from None
                raise
            except OutlastError as error:
                if not is_passing(error):
                    raise
                in_doubt = in_doubt or isinstance(error, CommitUnknownError)
            await asyncio.sleep(backoff.next())

    async def _record(
        self, changes: list[OperationChange], *, attempts: int, result: str | None = None, error: Failure | None = None, decision: str | None = None
    ) -> Conclusion:
        """Commit the end of the call, with all that belongs to it."""
        checkpoint = self._driver.place(self._call, result, self._started_at, error=error, attempts=attempts)
        self.may_commit = True
        try:
            await self._write("record_effect", lambda tx: self.book.record(tx, changes, checkpoint, decision))
        except (_DoubtfulMove, RefusedError, LeaseLostError) as refused:
            if isinstance(refused, RefusedError) and refused.refusal is not Refusal.DUPLICATE:
                self._withdraw()
                raise
            if not await self._is_kept(checkpoint):
                self._withdraw()
                if isinstance(refused, _DoubtfulMove):
                    raise OperationMovedError from refused
                raise
        except OutlastError:
            self._withdraw()
            raise
        self.effects.events.emit("effect_recorded", run=self.owner.run, effect=self.name.effect, step=self.owner.step)
        return Recorded(checkpoint)

    def _withdraw(self) -> None:
        self.may_commit = False
        self._driver.withdraw_place(self._call)

    async def _is_kept(self, checkpoint: StepCheckpoint) -> bool:
        store = self.effects.backend.store
        backoff = Backoff()
        while True:
            try:
                return bool(await self.effects.calls.read("find_effect_record", lambda tx: store.find_kept(tx, [checkpoint])))
            except OutlastError as error:
                if not is_passing(error):
                    raise
            await asyncio.sleep(backoff.next())


class _DoubtfulMove(OutlastError):  # noqa: N818 - no fault: what was to be written is there, or somebody else was quicker
    """A write was refused after an earlier try of it may have been committed."""


def derived_key(driver: NativeDriver, call: Call) -> str:
    """Return the key of an operation that belongs to one call of one run."""
    return f"{driver.claim.id}/{driver.claim.generation}/{call.key}"


def _number_of(taken: Taken) -> int:
    return 0 if taken.operation.attempt is None else taken.operation.attempt.number
