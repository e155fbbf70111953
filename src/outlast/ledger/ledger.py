"""Ledger: effects without an engine. Plan, attempt and result are in the application's database, and nothing is done blindly twice."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol, TypeVar

from outlast.clock import Clock, SystemClock
from outlast.database.transaction import Database, Transaction
from outlast.decision import NO_RESULT, DecisionView
from outlast.decisions.store import DecisionStore, NewAnswer
from outlast.duration import Duration, as_duration
from outlast.effect import Effect, find_effect
from outlast.errors import UsageError
from outlast.ids import caller_token
from outlast.inspector import OperationView
from outlast.limits import ENQUEUE_TIMEOUT, LEDGER_LEASE
from outlast.payload import codec_for, digest
from outlast.scope import inside_body

from .asking import fitting_result
from .calling import Calling
from .entries import Entries, IsClaimed
from .operation import OperationName, Owner, Plan
from .performing import Performing
from .store import LedgerStore
from .threads import Threads
from .view import operation_view

R = TypeVar("R")


class Services(Protocol):
    """The application's services, entered with the ledger and left with it."""

    async def enter(self) -> Any: ...
    async def leave(self) -> None: ...


class Ledger:
    """Effects of a program that has no engine; `connect_ledger` makes one, and `async with` opens and closes it."""

    def __init__(
        self,
        database: Database,
        store: LedgerStore,
        decisions: DecisionStore,
        *,
        services: Services,
        is_claimed: IsClaimed,
        prepare: Callable[[], None],
        clock: Clock | None = None,
        lease: timedelta = LEDGER_LEASE,
    ) -> None:
        self._database = database
        self._store = store
        self._decisions = decisions
        self._scope = services
        self._services: Any = None
        self._is_claimed = is_claimed
        self._prepare = prepare
        self._clock = clock or SystemClock()
        self._lease = lease
        self._threads: Threads | None = None
        self._performing: Performing | None = None

    async def __aenter__(self) -> Ledger:
        self._threads = Threads(self._database, self._clock)
        self._performing = Performing(self._threads)
        try:
            await self._threads.other(self._prepare)
            self._services = await self._scope.enter()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        try:
            await self._scope.leave()
        finally:
            await self._close()

    async def _close(self) -> None:
        if self._threads is not None:
            await self._threads.other(self._database.close)
            self._threads.close()
            self._threads = None

    async def run(self, effect: Effect[..., R], /, *args: Any, key: str, wait: Duration | None = None) -> R:
        """Do what `effect` does with these arguments, unless it was done under this key; return its result, then or now.

        Args:
            effect: What to do, by its own policy and time-out.
            args: Its arguments, as after the attempt; they are stored.
            key: Names the operation, 1 to 512 characters, for everybody who uses this database, runs included. In UTF-8 it has at most
                2,600 bytes together with the effect's name.
            wait: How long to wait for another caller who acts for the same key; None for as long as it takes, 0 for not at all.

        The plan and each attempt are durable before anything is done. A process that dies in the middle leaves an attempt without a
        result: once its lease of 30 s is over the next caller asks the effect's reconciler, and does nothing before.

        Raises:
            EffectFailedError: It was not done, and is not tried again in this call. A later call tries again.
            OperationInProgressError: Another caller acts for it, and did not finish within `wait`.
            OperationUnsureError: Nobody can tell whether it was done: answer its decision, and call again.
            OperationConflictError: The key was used with other arguments.
            StepStuckError: A plain function did not end within twice its time-out, and goes on in its thread. While it does, nobody
                begins another attempt but by a person's word.
            UnavailableError: The database does not answer. An attempt that was begun is reconciled by the next call.
        """
        threads, performing = self._opened()
        patience = _checked_wait(wait)
        if not isinstance(effect, Effect):
            raise UsageError(f"run takes an effect, not {effect!r:.80}: decorate the function with @effect")
        if inside_body():
            raise UsageError(f"ledger.run({effect.name}, ...) inside a task body would not be remembered: write `await ctx.effect({effect.__name__}, ...)`")
        named = effect.with_options(key=key)
        assert named.options.key is not None  # checked by with_options
        step = effect.step
        try:
            arguments = step.signature.encode_arguments(args, {}, step.arguments_field)
        except TypeError as error:
            raise UsageError(str(error)) from None
        owner = Owner("", 0, "", caller_token(), None)
        plan = Plan(OperationName(effect.name, named.options.key), arguments, digest(arguments) if arguments else "", owner)
        entries = Entries(self._store, self._decisions, self._is_claimed, plan, effect, self._lease)
        calling = Calling(entries, plan, effect, threads=threads, performing=performing, services=lambda: self._services, clock=self._clock, lease=self._lease)
        result: R = step.signature.result.decode(await calling.run(patience), step.result_field)
        return result

    async def find(self, effect: Effect[..., Any] | str, key: str) -> OperationView | None:
        """Return what the ledger has under this key: plan, attempts and result; None when it was never planned."""
        threads, _ = self._opened()
        name = OperationName(effect.name if isinstance(effect, Effect) else effect, key)

        def read(tx: Transaction) -> OperationView | None:
            operation = self._store.find_operation(tx, name)
            return None if operation is None else operation_view(operation, self._store.list_attempts(tx, [name])[name])

        return await threads.read(read)

    async def decide(self, decision_id: str, option: str, /, *, result: Any = NO_RESULT, by: str, note: str = "") -> DecisionView:
        """Answer what `OperationUnsureError` asked; the next call under the key uses the answer.

        Args:
            decision_id: As the error names it.
            option: `"done"` with the result that it had, `"again"` for another attempt, `"fail"` for none.
            result: For `"done"`: what the effect returned, None for nothing. It is checked against the effect's type where this process
                has imported it, else by the next call, which asks anew if it does not fit.
            by: Who decides.
            note: Why.

        Raises `UsageError` for a question that is not there or was answered, and for an option that it does not have. When the answer of
        the database to a commit is lost, and it was made, this is found out here: one's own answer is no fault.
        """
        threads, _ = self._opened()
        if not isinstance(by, str) or not by:
            raise UsageError("by is empty: write who decides")
        in_doubt = False

        def doubt() -> None:
            nonlocal in_doubt
            in_doubt = True

        def answer(tx: Transaction) -> DecisionView:
            view = self._decisions.lock_decision(tx, decision_id)
            if view is None:
                raise UsageError(f"there is no decision {decision_id!r}: its id is what OperationUnsureError names")
            if option not in view.options:
                raise UsageError(f"decision {decision_id} has no option {option!r}: write one of {', '.join(view.options)}")
            if view.run is not None:
                raise UsageError(
                    f"decision {decision_id} is about run {view.run}, which waits for it: answer it by `outlast decide`, or by engine.operator.decide"
                )
            text = _result_text(view, option, result)
            if in_doubt and (view.answer, view.result, view.answered_by, view.note) == (option, text, by, note):
                return view  # an earlier try was committed
            if not self._decisions.answer_decision(tx, decision_id, view.digest, NewAnswer(option, by, note, text)):
                raise UsageError(f"decision {decision_id} is {view.state}: only an open one can be answered")
            answered = self._decisions.find_decision(tx, decision_id)
            assert answered is not None  # it is locked
            return answered

        decided, _ = await threads.write(answer, ENQUEUE_TIMEOUT, doubt)
        return decided

    def _opened(self) -> tuple[Threads, Performing]:
        if self._threads is None or self._performing is None:
            raise UsageError("the ledger is not open: write `async with connect_ledger(...) as ledger:`")
        return self._threads, self._performing


def _checked_wait(wait: Duration | None) -> timedelta | None:
    try:
        return None if wait is None else as_duration(wait, "wait")
    except ValueError as error:
        raise UsageError(str(error)) from None


def _result_text(view: DecisionView, option: str, result: Any) -> str | None:
    """Return a given result as JSON text, by the effect's type if this process knows it; else it is checked where it is used."""
    if option not in view.needs_result:
        if result is not NO_RESULT:
            raise UsageError(f"result is given, and option {option} takes none: leave it out")
        return None
    if result is NO_RESULT:
        raise UsageError(f"option {option} needs a result: write what the effect returned, result=None for nothing")
    effect = None if view.effect is None else find_effect(view.effect)
    if effect is None:
        return codec_for(Any).encode(result, "result")
    text = effect.step.signature.result.encode(result, effect.step.result_field)
    return fitting_result(effect, text)
