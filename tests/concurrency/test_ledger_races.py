"""Callers of the ledger's store at once, on real connections to PostgreSQL: one plan, one attempt, one end."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TypeVar

import pytest

from outlast.database.transaction import Refusal, RefusedError, Transaction
from outlast.ledger.operation import Change, OperationAttempt, OperationChange, OperationName, OperationStatus, Owner, Plan
from outlast.native.backend import Backend
from outlast.native.postgres import postgres_backend

from .postgres_world import WAIT

R = TypeVar("R")
CALLERS = 6
ROUNDS = 25
TIMEOUT = timedelta(seconds=60)
OWNERS = [Owner("", 0, "", number, None) for number in range(CALLERS)]


@pytest.fixture
def backend(postgres_url: str) -> Iterator[Backend]:
    backend = postgres_backend(postgres_url, connections=CALLERS)
    backend.schema.ensure("create")
    yield backend
    backend.database.close()


def insisting(backend: Backend, function: Callable[[Transaction], R]) -> R:
    """Run it in a transaction of its own until no other one is in the way."""
    while True:
        try:
            with backend.database.transaction() as tx:
                return function(tx)
        except RefusedError as error:
            if error.refusal is not Refusal.BUSY:
                raise


def at_once(act: Callable[[Owner], R]) -> list[R]:
    """Let every caller act at the same moment, and return what came of it."""
    gate = threading.Barrier(CALLERS)

    def called(owner: Owner) -> R:
        gate.wait(WAIT)
        return act(owner)

    with ThreadPoolExecutor(CALLERS) as pool:
        return list(pool.map(called, OWNERS))


def test_callers_at_once_begin_one_attempt(backend: Backend) -> None:
    """All plan the same operation and begin it: one plan stands, one attempt begins, and its owner is who planned it."""
    tokens = []
    for turn in range(ROUNDS):
        name = OperationName("pay", f"key {turn}")

        def plan_and_begin(owner: Owner, name: OperationName = name) -> OperationAttempt | None:
            def act(tx: Transaction) -> OperationAttempt | None:
                backend.ledger.record_plan(tx, Plan(name, "[5]", "digest", owner))
                operation = backend.ledger.lock_operation(tx, name)
                assert operation is not None
                if operation.status is not OperationStatus.PLANNED:
                    return None
                assert operation.owner == owner
                return backend.ledger.begin_attempt(tx, OperationChange(name, Change.BEGIN, owner, 0), TIMEOUT, TIMEOUT)

            return insisting(backend, act)

        [begun] = [attempt for attempt in at_once(plan_and_begin) if attempt is not None]
        with backend.database.reading() as tx:
            operation = backend.ledger.find_operation(tx, name)
            assert operation is not None
            assert (operation.owner.token, backend.ledger.list_attempts(tx, [name])[name]) == (begun.run_token, [begun])
        tokens.append(begun.token)
    assert tokens == sorted(set(tokens))


def test_who_waited_for_the_row_sees_the_attempt_that_began_meanwhile(backend: Backend) -> None:
    """The lock is had after another's commit: operation and attempt are of one moment, the later one."""
    name, owner = OperationName("pay", "key"), OWNERS[0]
    with backend.database.transaction() as tx:
        backend.ledger.record_plan(tx, Plan(name, "[5]", "digest", owner))
    seen = []

    def take() -> None:
        seen.append(insisting(backend, lambda tx: backend.ledger.lock_operation(tx, name)))

    thread = threading.Thread(target=take)
    with backend.database.transaction() as tx:
        assert backend.ledger.lock_operation(tx, name) is not None
        thread.start()
        _wait_for_a_waiter(backend)
        begun = backend.ledger.begin_attempt(tx, OperationChange(name, Change.BEGIN, owner, 0), TIMEOUT, TIMEOUT)
        assert begun is not None
    thread.join(WAIT)
    [operation] = seen
    assert operation is not None
    assert (operation.status, operation.attempt) == (OperationStatus.ATTEMPTING, begun)


def test_of_two_ends_at_once_one_stands(backend: Backend) -> None:
    """A result and a "not done" of one attempt: the second is refused, whichever it is."""
    owner = OWNERS[0]
    for turn in range(ROUNDS):
        name = OperationName("pay", f"key {turn}")
        with backend.database.transaction() as tx:
            backend.ledger.record_plan(tx, Plan(name, "[5]", "digest", owner))
            assert backend.ledger.begin_attempt(tx, OperationChange(name, Change.BEGIN, owner, 0), TIMEOUT, TIMEOUT) is not None

        def end(caller: Owner, name: OperationName = name) -> Change | None:
            change = Change.RESULT if caller.token % 2 else Change.NOT_DONE
            made = OperationChange(name, change, owner, 1, result=str(caller.token) if change is Change.RESULT else None)
            return change if insisting(backend, lambda tx: backend.ledger.change_operation(tx, made)) else None

        [stands] = [change for change in at_once(end) if change is not None]
        with backend.database.reading() as tx:
            operation = backend.ledger.find_operation(tx, name)
        assert operation is not None
        assert operation.status is (OperationStatus.DONE if stands is Change.RESULT else OperationStatus.PLANNED)
        assert (operation.result is not None) == (stands is Change.RESULT)


def test_tokens_are_taken_in_the_order_of_the_attempts_of_one_operation(backend: Backend) -> None:
    """While others take tokens for their own operations, each operation's attempts have growing ones, and no token is there twice."""

    def begin_often(owner: Owner) -> list[int]:
        name, tokens = OperationName("pay", f"key of {owner.token}"), []
        for number in range(ROUNDS):

            def act(tx: Transaction, number: int = number) -> OperationAttempt | None:
                backend.ledger.record_plan(tx, Plan(name, "[5]", "digest", owner))
                begun = backend.ledger.begin_attempt(tx, OperationChange(name, Change.BEGIN, owner, number), TIMEOUT, TIMEOUT)
                assert backend.ledger.change_operation(tx, OperationChange(name, Change.NOT_DONE, owner, number + 1))
                return begun

            begun = insisting(backend, act)
            assert begun is not None
            tokens.append(begun.token)
        return tokens

    taken = at_once(begin_often)
    assert all(tokens == sorted(tokens) for tokens in taken)
    assert len({token for tokens in taken for token in tokens}) == CALLERS * ROUNDS


def _wait_for_a_waiter(backend: Backend) -> None:
    """Return once another session waits for a row that this one has."""
    gate = threading.Event()
    for _ in range(2_000):
        with backend.database.reading() as tx:
            [(count,)] = tx.run("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").all()
        if count:
            return
        gate.wait(0.005)
    raise AssertionError("nobody waits for the row")
