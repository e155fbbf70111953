"""A world for ledgers without an engine: something outside that counts what is done to it, and callers who are gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

from outlast import Attempt, Effect, Ledger, OperationView, RetryPolicy, connect_ledger, effect
from outlast.connect import backends
from outlast.database.transaction import Transaction
from outlast.effect import Done, NotDone, Unsure
from outlast.ids import caller_token
from outlast.ledger.operation import Change, OperationChange, OperationName, Owner, Plan
from outlast.native.settings import Settings
from outlast.payload import digest

PATIENCE = 60.0
"""Seconds after which a wait for something named fails."""
AT_ONCE = RetryPolicy(maximum_attempts=3, initial_delay=0, maximum_delay=0)


class Provider:
    """Something outside: what was done to it, by key, and what its answers wait for."""

    def __init__(self) -> None:
        self.done: list[tuple[str, int, int]] = []
        """Key, number and token of every attempt that was served."""
        self.asked: list[int] = []
        """The number of the attempt, each time that the reconciler was asked."""
        self.verdicts: list[Done[int] | NotDone | Unsure | Exception] = []
        """What the reconciler says, one after the other; the last one stands."""
        self.before: Callable[[Attempt[Any]], Any] = lambda attempt: None
        """Awaited, or called, before an attempt is served."""

    def serve(self, attempt: Attempt[Any], amount: int) -> int:
        self.done.append((attempt.key, attempt.number, attempt.token))
        return amount + 1

    def reconcile(self, attempt: Attempt[Any]) -> Done[int] | NotDone | Unsure:
        self.asked.append(attempt.number)
        said = self.verdicts.pop(0) if len(self.verdicts) > 1 else self.verdicts[0]
        if isinstance(said, Exception) and not isinstance(said, NotDone):
            raise said
        return said


def paying(provider: Provider, *, reconciled: bool = True, plain: bool = False, **options: Any) -> Effect[[int], int]:
    """Return an effect on the provider, as a coroutine or a plain function, with or without a reconciler."""
    declare = effect(**{"name": "pay", "retry": AT_ONCE, "not_done": (ConnectionRefusedError,), **options})

    async def pay(attempt: Attempt[Any], amount: int) -> int:
        waited = provider.before(attempt)
        if waited is not None:
            await waited
        return provider.serve(attempt, amount)

    def pay_plainly(attempt: Attempt[Any], amount: int) -> int:
        provider.before(attempt)
        return provider.serve(attempt, amount)

    pays: Effect[[int], int] = declare(pay_plainly if plain else pay)
    if reconciled:

        @pays.reconcile
        async def find_out(attempt: Attempt[Any], amount: int) -> Done[int] | NotDone | Unsure:
            return provider.reconcile(attempt)

    return pays


@asynccontextmanager
async def two_ledgers(url: str, **options: Any) -> AsyncIterator[tuple[Ledger, Ledger]]:
    """Open two ledgers on one database, each with connections of its own, as two processes would."""
    async with connect_ledger(url, **options) as first, connect_ledger(url, **options) as second:
        yield first, second


async def found(ledger: Ledger, key: str = "key") -> OperationView:
    """Return the operation as the ledger has it."""
    view = await ledger.find("pay", key)
    assert view is not None
    return view


async def lease_of(ledger: Ledger, key: str = "key") -> datetime | None:
    """Return until when the current attempt is leased."""
    assert ledger._threads is not None

    def read(tx: Transaction) -> datetime | None:
        operation = ledger._store.find_operation(tx, OperationName("pay", key))
        return None if operation is None or operation.attempt is None else operation.attempt.lease_until

    return await ledger._threads.read(read)


async def happens(what: str, is_so: Callable[[], Any]) -> None:
    """Wait until something is so, coroutine or not; fail with its name after `PATIENCE`."""
    try:
        async with asyncio.timeout(PATIENCE):
            while True:
                answer = is_so()
                if await answer if asyncio.iscoroutine(answer) else answer:
                    return
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"never happened: {what}") from None


async def leave_behind(url: str, pays: Effect[[int], int], *, amount: int = 5, key: str = "key", lease: timedelta = timedelta(0)) -> OperationChange:
    """Leave an attempt as a caller does who died in the middle of it: its lease is over after `lease`, or by `end_lease`."""
    step, name, owner = pays.step, OperationName(pays.name, key), Owner("", 0, "", caller_token(), None)

    def leave() -> None:
        backend, _ = backends(url, Settings({}))
        try:
            backend.schema.ensure("create")
            arguments = step.signature.encode_arguments((amount,), {}, step.arguments_field)
            with backend.database.transaction() as tx:
                backend.ledger.record_plan(tx, Plan(name, arguments, digest(arguments), owner))
                begin = OperationChange(name, Change.BEGIN, owner, 0)
                assert backend.ledger.begin_attempt(tx, begin, pays.timeout, pays.options.settle, lease) is not None
        finally:
            backend.database.close()

    await asyncio.to_thread(leave)
    return OperationChange(name, Change.BEGIN, owner, 1)


async def end_lease(url: str, left: OperationChange) -> None:
    """Let the lease of an attempt that was left behind be over."""

    def end() -> None:
        backend, _ = backends(url, Settings({}))
        try:
            with backend.database.transaction() as tx:
                assert backend.ledger.renew_attempt(tx, left, timedelta(0))
        finally:
            backend.database.close()

    await asyncio.to_thread(end)
