"""Transacting: one attempt of a transactional step: it opens the application's transaction and drives the talk with it.

Theory of operation. What a transaction commits is decided in the database; this decides what is done after it. Another
transaction's victim (a serialization failure, a deadlock, a busy file) runs again as a whole. A commit of unknown outcome,
and a record that is there already, are resolved by reading what is there, and else by running again: whatever an earlier
try may yet commit, the record's primary key lets only one of them stay.

The place of the record in the order of records is taken on the loop, where the replay lives, in the moment before it is
written; a driver that blocks runs on a thread, and asks the loop for it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future as ThreadFuture
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from outlast.database.borrowed import AsyncBorrowing, Borrowing, Kept, Misfortune, Placing, Remembering, Want, borrowing_of, is_certain, misfortune_of
from outlast.database.transaction import Ask, Dialect, Transaction
from outlast.driver import StepCall
from outlast.errors import FinalError, OutlastError, UsageError
from outlast.limits import LOOP_ANSWER_TIMEOUT, TRANSACTION_TRIES_MAX

from .calls import Backoff, Calls
from .history import Record
from .keeping import Keeping
from .store import Hold, StepCheckpoint, Store

if TYPE_CHECKING:
    from .call import Call
    from .driver import NativeDriver

T = TypeVar("T")
logger = logging.getLogger("outlast")


class Transactions:
    """What the transactional steps of one worker share: the engine's tables, and which database they are in."""

    def __init__(self, calls: Calls, store: Store, keeping: Keeping) -> None:
        self._calls = calls
        self._store = store
        self.keeping = keeping
        self._identity: str | None = None

    async def get_identity(self) -> str:
        if self._identity is None:
            self._identity = await self._calls.read("find_identity", self._find_identity)
        return self._identity

    def _find_identity(self, tx: Transaction) -> str:
        return str(tx.run(*self.keeping.find_identity()).all()[0][0])

    async def find_record(self, hold: Hold, call: Call) -> Record | None:
        """Return the record of a call, if it is there. Raises what the database says."""
        contexts = await self._calls.read("find_transaction", lambda tx: self._store.read_contexts(tx, [hold]))
        context = contexts.get(hold)
        return None if context is None else next((record for record in context.history.records if record.key == call.key), None)


class _OwnTables:
    """The engine's tables for one claim."""

    def __init__(self, keeping: Keeping, identity: str, hold: Hold, generation: int) -> None:
        self._keeping = keeping
        self._hold = hold
        self._generation = generation
        self.identity = identity

    @property
    def dialect(self) -> Dialect:
        return self._keeping.dialect

    def has_schema(self) -> Ask:
        return self._keeping.has_schema()

    def find_identity(self) -> Ask:
        return self._keeping.find_identity()

    def hold(self) -> Ask:
        return self._keeping.hold(self._hold, self._generation)

    def keep(self, record: StepCheckpoint) -> Sequence[Ask]:
        return self._keeping.keep(record)


class Transacting:
    """One attempt."""

    def __init__(self, transactions: Transactions, driver: NativeDriver, call: Call, identity: str, ensure_wanted: Callable[[], None]) -> None:
        assert call.step is not None  # only steps are performed
        self._transactions = transactions
        self._driver = driver
        self._call = call
        self._step = call.step.step
        self._function: Callable[..., Any] = call.step.step.function
        self._arguments = call.step.arguments
        self._loop = asyncio.get_running_loop()
        self._started_at = driver.clock()
        own = _OwnTables(transactions.keeping, identity, driver.hold, driver.claim.generation)
        self.is_in_doubt = False
        """A try may have been committed, or may yet be: only what is there tells."""
        self._was_there_already = False
        claim = driver.claim
        self._remembering: Remembering[StepCheckpoint] = Remembering(own, claim.id, claim.generation, str(call.key), claim.token, ensure_wanted)

    @property
    def may_commit(self) -> bool:
        """True once what the function wrote is about to be committed, and nothing that is decided here can stop it."""
        return self.is_in_doubt or self._remembering.is_keeping

    async def run_awaited(self, borrowing: AsyncBorrowing) -> Kept[StepCheckpoint]:
        """Run it with a driver that is awaited."""
        backoff = Backoff()
        for tries_left in reversed(range(TRANSACTION_TRIES_MAX)):
            try:
                return await self._once_awaited(borrowing)
            except asyncio.CancelledError:
                self._note_doubt(None)
                raise
            except Exception as error:
                found = await self._resolve(error, tries_left)
                if found is not None:
                    return found
            await asyncio.sleep(backoff.next())
        raise AssertionError("the last try returns or raises")

    def run_blocking(self, borrowing: Borrowing) -> Kept[StepCheckpoint]:
        """Run it on this thread, which is not the loop's."""
        backoff = Backoff()
        for tries_left in reversed(range(TRANSACTION_TRIES_MAX)):
            try:
                return self._once_blocking(borrowing)
            except Exception as error:
                resolving = asyncio.run_coroutine_threadsafe(self._resolve(error, tries_left), self._loop)
                found = resolving.result(TRANSACTION_TRIES_MAX * LOOP_ANSWER_TIMEOUT.total_seconds())
                if found is not None:
                    return found
            threading.Event().wait(backoff.next())
        raise AssertionError("the last try returns or raises")

    async def _resolve(self, error: Exception, tries_left: int) -> Kept[StepCheckpoint] | None:
        """After a try that failed: return what is there all the same, None to run again, or raise."""
        misfortune = misfortune_of(error)
        was_keeping = self._note_doubt(error)
        is_there_already = was_keeping and misfortune is Misfortune.DUPLICATE
        if self.is_in_doubt or is_there_already:
            record = await self._find_record()
            if record is not None and record.result is not None:
                return Kept(record.result, StepCheckpoint(self._driver.hold, self._driver.claim.generation, record))
        goes_on = self.is_in_doubt or misfortune is Misfortune.AGAIN or (is_there_already and not self._was_there_already)
        self._was_there_already = is_there_already
        if tries_left and goes_on:
            logger.debug("transaction %s of run %s runs again: %s", self._call.key, self._driver.claim.id, misfortune.name.lower())
            return None
        raise error

    def _note_doubt(self, error: Exception | None) -> bool:
        """Remember that a commit was under way whose outcome nobody told; a later try that is refused does not take that away.

        Return whether the function had returned; without doubt this try is undone.
        """
        if self._remembering.is_committing and (error is None or not is_certain(error)):
            self.is_in_doubt = True
        is_keeping, self._remembering.is_keeping = self._remembering.is_keeping, False
        return is_keeping

    async def _find_record(self) -> Record | None:
        backoff = Backoff()
        for _ in range(TRANSACTION_TRIES_MAX):
            try:
                return await self._transactions.find_record(self._driver.hold, self._call)
            except OutlastError as error:
                logger.debug("transaction %s of run %s is looked for again after: %s", self._call.key, self._driver.claim.id, error)
                await asyncio.sleep(backoff.next())
        return None

    # --- one try -----------------------------------------------------------------------------------------------------
    async def _once_awaited(self, borrowing: AsyncBorrowing) -> Kept[StepCheckpoint]:
        args, kwargs = self._step.signature.decode_arguments(self._arguments, self._step.arguments_field)
        kept: Kept[StepCheckpoint] | None = None
        async with borrowing.open() as borrowed:
            talk = self._remembering.talk(borrowed.dialect)
            ask: Callable[[], Any] = lambda: next(talk)  # noqa: E731 - it is replaced at each turn
            try:
                while True:
                    wanted = ask()
                    try:
                        if wanted is Want.VALUE:
                            answer: Any = self._encode(await self._function(borrowed.connection, *args, **kwargs))
                        elif isinstance(wanted, Placing):
                            answer = self._place(wanted)
                        else:
                            answer = await borrowed.run(*wanted)
                    except Exception as error:
                        ask = _thrown(talk, error)
                    else:
                        ask = _sent(talk, answer)
            except StopIteration as stop:
                kept = stop.value
        return self._kept(kept)

    def _once_blocking(self, borrowing: Borrowing) -> Kept[StepCheckpoint]:
        args, kwargs = self._step.signature.decode_arguments(self._arguments, self._step.arguments_field)
        kept: Kept[StepCheckpoint] | None = None
        with borrowing.open() as borrowed:
            talk = self._remembering.talk(borrowed.dialect)
            ask: Callable[[], Any] = lambda: next(talk)  # noqa: E731 - as above
            try:
                while True:
                    wanted = ask()
                    try:
                        if wanted is Want.VALUE:
                            answer: Any = self._encode(self._function(borrowed.connection, *args, **kwargs))
                        elif isinstance(wanted, Placing):
                            answer = self._on_loop(partial(self._place, wanted))
                        else:
                            answer = borrowed.run(*wanted)
                    except Exception as error:
                        ask = _thrown(talk, error)
                    else:
                        ask = _sent(talk, answer)
            except StopIteration as stop:
                kept = stop.value
        return self._kept(kept)

    def _kept(self, kept: Kept[StepCheckpoint] | None) -> Kept[StepCheckpoint]:
        if kept is None:  # a driver's own way to end a block quietly, such as psycopg's Rollback
            raise FinalError("the function given to ctx.transaction ended its transaction by itself: leave commit and rollback to the engine")
        self._remembering.is_committing = False
        return kept

    def _place(self, placing: Placing) -> StepCheckpoint:
        return self._driver.place(self._call, placing.result, self._started_at)

    def _encode(self, value: Any) -> str:
        return self._step.signature.result.encode(value, self._step.result_field)

    def _on_loop(self, function: Callable[[], T]) -> T:
        """Call a function on the loop and wait for what it returns; at the loop's end the transaction is undone."""
        answer: ThreadFuture[T] = ThreadFuture()

        def call() -> None:
            try:
                answer.set_result(function())
            except BaseException as error:
                answer.set_exception(error)

        self._loop.call_soon_threadsafe(call)
        return answer.result(LOOP_ANSWER_TIMEOUT.total_seconds())


def _sent(talk: Any, answer: Any) -> Callable[[], Any]:
    return lambda: talk.send(answer)


def _thrown(talk: Any, error: Exception) -> Callable[[], Any]:
    return lambda: talk.throw(error)


def ensure_fits(call: StepCall) -> None:
    """Raise `UsageError` where a transactional step's function cannot run on what it is given."""
    if borrowing_of(call.on).is_async != call.step.is_async:
        needed, given = ("an `async def` function", "a `def`") if not call.step.is_async else ("a `def` function", "an `async def`")
        raise UsageError(f"ctx.transaction on {type(call.on).__qualname__} takes {needed}, and {call.step.options.name} is {given}")
