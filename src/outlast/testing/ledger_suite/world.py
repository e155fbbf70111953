"""World: a ledger's store with an instant that a test moves by hand, and short ways to bring an operation into a state."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from outlast import ids
from outlast.database.transaction import Transaction
from outlast.failure import Failure
from outlast.ledger.operation import Change, Operation, OperationAttempt, OperationChange, OperationName, OperationStatus, Owner, Plan
from outlast.native.backend import Backend
from outlast.native.store import LaneName, NewRun

START = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
ERROR = Failure(type="builtins.OSError", message="no route to the host", bases=("builtins.Exception",))
RUN = "0197c2a0-0000-7000-8000-000000000001"
OWNER = Owner(RUN, 0, "add_torrent", 3, 77)
NAME = OperationName("add_torrent", f"{RUN}/0/add_torrent")
TIMEOUT, SETTLE = timedelta(seconds=60), timedelta(seconds=10, microseconds=7)

_WAYS: dict[OperationStatus, tuple[Change, ...]] = {
    OperationStatus.PLANNED: (),
    OperationStatus.ATTEMPTING: (Change.BEGIN,),
    OperationStatus.UNKNOWN: (Change.BEGIN, Change.DOUBT),
    OperationStatus.ASKED: (Change.BEGIN, Change.DOUBT, Change.ASK),
    OperationStatus.DONE: (Change.BEGIN, Change.RESULT),
    OperationStatus.FAILED: (Change.BEGIN, Change.NOT_DONE, Change.GIVE_UP),
}


def after(seconds: float) -> datetime:
    """Return the instant so long after every test's start."""
    return START + timedelta(seconds=seconds)


class LedgerWorld:
    """One empty database and what a test does to its ledger. `now` is START unless a call says otherwise."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.ledger = backend.ledger

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        with self.backend.database.transaction() as tx:
            yield tx

    def plan(
        self, name: OperationName = NAME, owner: Owner = OWNER, arguments: str = '["a"]', now: datetime = START, digest: str = "digest-of-arguments"
    ) -> None:
        with self.writing() as tx:
            self.ledger.record_plan(tx, Plan(name, arguments, digest, owner), now)

    def lock(self, name: OperationName = NAME, now: datetime = START) -> Operation | None:
        with self.writing() as tx:
            return self.ledger.lock_operation(tx, name, now)

    def find(self, name: OperationName = NAME, now: datetime = START) -> Operation | None:
        with self.backend.database.reading() as tx:
            return self.ledger.find_operation(tx, name, now)

    def operation(self, name: OperationName = NAME, now: datetime = START) -> Operation:
        operation = self.find(name, now)
        assert operation is not None
        return operation

    def attempts(self, name: OperationName = NAME) -> list[OperationAttempt]:
        with self.backend.database.reading() as tx:
            return self.ledger.list_attempts(tx, [name])[name]

    def begin(
        self, attempt: int = 0, name: OperationName = NAME, owner: Owner = OWNER, lease: timedelta | None = None, now: datetime = START
    ) -> OperationAttempt | None:
        with self.writing() as tx:
            return self.ledger.begin_attempt(tx, OperationChange(name, Change.BEGIN, owner, attempt), TIMEOUT, SETTLE, lease, now)

    def begun(self, attempt: int = 0, **changes: Any) -> OperationAttempt:
        begun = self.begin(attempt, **changes)
        assert begun is not None
        return begun

    def change(self, change: Change, attempt: int, *, name: OperationName = NAME, owner: Owner = OWNER, now: datetime = START, **what: Any) -> bool:
        """Make a change of whatever kind, the beginning of an attempt too."""
        if change is Change.BEGIN:
            return self.begin(attempt, name, owner, now=now) is not None
        with self.writing() as tx:
            return self.ledger.change_operation(tx, OperationChange(name, change, owner, attempt, **what), now)

    def bring(self, status: OperationStatus, name: OperationName = NAME, owner: Owner = OWNER, now: datetime = START) -> int:
        """Plan an operation and bring it into a state; return the number of its current attempt."""
        self.plan(name, owner, now=now)
        number = 0
        for change in _WAYS[status]:
            what: dict[str, Any] = {"result": '"done"'} if change is Change.RESULT else {"decision": "a-question"} if change is Change.ASK else {}
            assert self.change(change, number, name=name, owner=owner, now=now, **what)
            number += change is Change.BEGIN
        return number

    def count_reconcile(self, attempt: int, owner: Owner = OWNER, name: OperationName = NAME) -> bool:
        with self.writing() as tx:
            return self.ledger.count_reconcile(tx, OperationChange(name, Change.DOUBT, owner, attempt))

    def renew(self, attempt: int, lease: timedelta, owner: Owner = OWNER, now: datetime = START) -> bool:
        with self.writing() as tx:
            return self.ledger.renew_attempt(tx, OperationChange(NAME, Change.BEGIN, owner, attempt), lease, now)

    def own(self, owner: Owner, name: OperationName = NAME) -> None:
        with self.writing() as tx:
            self.ledger.own_operation(tx, name, owner)

    def late(self, attempt: int, token: int, late: str) -> bool:
        with self.writing() as tx:
            return self.ledger.record_late(tx, NAME, attempt, token, late)

    def linger(self, attempt: int, token: int, lingers: bool) -> bool:
        with self.writing() as tx:
            return self.ledger.mark_lingering(tx, NAME, attempt, token, lingers)

    def operations(self, run_id: str = RUN) -> list[Operation]:
        with self.backend.database.reading() as tx:
            return self.ledger.list_operations(tx, run_id, START)

    def delete_old(self, older_than: timedelta, now: datetime, limit: int = 100) -> int:
        """Walk through all operations page by page and return how many were deleted."""
        count, place = 0, None
        while True:
            with self.writing() as tx:
                deleted, place = self.ledger.delete_old_operations(tx, older_than, limit, place, now)
            count += deleted
            if place is None:
                return count

    def accept_run(self) -> str:
        """Return the id of a run that is there."""
        name, run_id = LaneName("default", "import_asset", 1), ids.run_id()
        with self.writing() as tx:
            lane = self.backend.store.ensure_lanes(tx, [name])[name]
            run = NewRun(run_id, lane, "import_asset", 1, 0, None, None, 7, "null", "digest-of-input", None, "[]", "{}")
            self.backend.store.record_runs(tx, [run], START)()
        return run_id


def new_name(key: str | None = None) -> OperationName:
    """Return the name of an operation that no other test has."""
    return OperationName("add_torrent", key or ids.run_id())


class LedgerWorldSuite:
    """What every part of the suite stands on."""

    @pytest.fixture
    def world(self, backend: Backend) -> LedgerWorld:
        return LedgerWorld(backend)
