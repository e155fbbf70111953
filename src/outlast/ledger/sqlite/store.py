"""SqliteLedgerStore: the ledger's tables on SQLite. It never begins or commits; the machine's clock is the database's."""

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from outlast.clock import Clock, SystemClock
from outlast.database.sqlite.instant import from_number, span_from_number, span_to_number, to_number
from outlast.database.statements import load_statements
from outlast.database.transaction import Transaction
from outlast.ledger.operation import Operation, OperationAttempt, OperationChange, OperationName, Owner, Plan
from outlast.ledger.rows import (
    CHANGED_AT,
    ENDED_AT,
    LEASE_UNTIL,
    OPERATION_COLUMNS,
    PLANNED_AT,
    SETTLE,
    STARTED_AT,
    TIMEOUT,
    attempt_from_row,
    change_columns,
    found_states,
    held_columns,
    late_columns,
    name_columns,
    names_to_json,
    operation_from_row,
    owner_columns,
    plan_columns,
)

_SQL = load_statements("outlast.ledger.sqlite")
Row = tuple[Any, ...]


class SqliteLedgerStore:
    """See `outlast.ledger.store.LedgerStore`, which says what each method promises."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()

    def record_plan(self, tx: Transaction, plan: Plan, now: datetime | None = None) -> None:
        tx.run(_SQL["insert_operation"], plan_columns(plan) | {"now": self._now(now)})

    def lock_operation(self, tx: Transaction, name: OperationName, now: datetime | None = None) -> Operation | None:
        return self.find_operation(tx, name, now)

    def own_operation(self, tx: Transaction, name: OperationName, owner: Owner) -> None:
        tx.run(_SQL["own_operation"], name_columns(name) | owner_columns(owner))

    def begin_attempt(
        self, tx: Transaction, change: OperationChange, timeout: timedelta, settle: timedelta, lease: timedelta | None = None, now: datetime | None = None
    ) -> OperationAttempt | None:
        at, held = self._now(now), held_columns(change)
        begun = tx.run(_SQL["begin_attempt"], held | {"found": _found(change), "now": at}).first()
        if begun is None:
            return None
        taken = tx.run(_SQL["take_token"]).all()[0][0]
        spans = {"timeout": span_to_number(timeout), "settle": span_to_number(settle), "lease": None if lease is None else span_to_number(lease)}
        return _attempt(tx.run(_SQL["insert_attempt"], held | spans | {"number": begun[0], "attempt_token": taken, "now": at}).all()[0])

    def change_operation(self, tx: Transaction, change: OperationChange, now: datetime | None = None) -> bool:
        columns = change_columns(change) | {"found": _found(change), "now": self._now(now)}
        if tx.run(_SQL["change_operation"], columns).count == 0:
            return False
        if columns["outcome"] is not None:
            tx.run(_SQL["end_attempt"], columns)
        return True

    def count_reconcile(self, tx: Transaction, change: OperationChange) -> bool:
        return tx.run(_SQL["count_reconcile"], held_columns(change)).count == 1

    def record_late(self, tx: Transaction, name: OperationName, attempt: int, token: int, late: str) -> bool:
        return tx.run(_SQL["record_late"], late_columns(name, attempt, token, late)).count == 1

    def mark_lingering(self, tx: Transaction, name: OperationName, attempt: int, token: int, lingers: bool) -> bool:
        return tx.run(_SQL["mark_lingering"], name_columns(name) | {"attempt": attempt, "token": token, "lingers": int(lingers)}).count == 1

    def renew_attempt(self, tx: Transaction, change: OperationChange, lease: timedelta, now: datetime | None = None) -> bool:
        return tx.run(_SQL["renew_attempt"], held_columns(change) | {"lease": span_to_number(lease), "now": self._now(now)}).count == 1

    def find_operation(self, tx: Transaction, name: OperationName, now: datetime | None = None) -> Operation | None:
        row = tx.run(_SQL["find_operation"], name_columns(name)).first()
        return None if row is None else _operation(row, self._at(now))

    def list_operations(self, tx: Transaction, run_id: str, now: datetime | None = None) -> list[Operation]:
        at = self._at(now)
        return [_operation(row, at) for row in tx.run(_SQL["list_operations"], {"run": run_id}).all()]

    def list_attempts(self, tx: Transaction, names: Sequence[OperationName]) -> dict[OperationName, list[OperationAttempt]]:
        found: dict[OperationName, list[OperationAttempt]] = {name: [] for name in names}
        for effect, key, *row in tx.run(_SQL["list_attempts"], {"names": names_to_json(names)}).all():
            attempt = _attempt(row)
            assert attempt is not None  # its number is part of the unique key
            found[OperationName(effect, key)].append(attempt)
        return found

    def delete_old_operations(
        self, tx: Transaction, older_than: timedelta, limit: int, after: OperationName | None, now: datetime | None = None
    ) -> tuple[int, OperationName | None]:
        at = self._now(now)
        asked = name_columns(after or OperationName("", "")) | {"cutoff": at - span_to_number(older_than), "now": at, "limit": limit}
        page = tx.run(_SQL["list_old_operations"], asked).all()
        old = [OperationName(effect, key) for effect, key, may_go in page if may_go]
        deleted = 0
        if old:
            tx.run(_SQL["delete_attempts"], {"names": names_to_json(old)})
            deleted = tx.run(_SQL["delete_operations"], {"names": names_to_json(old)}).count
        return deleted, OperationName(page[-1][0], page[-1][1]) if len(page) == limit else None

    def _at(self, now: datetime | None) -> datetime:
        return now or self._clock.now()

    def _now(self, now: datetime | None) -> int:
        return to_number(self._at(now))


def _found(change: OperationChange) -> str:
    return json.dumps(found_states(change))


def _operation(row: Row, now: datetime) -> Operation:
    columns = list(row[:OPERATION_COLUMNS])
    for place in (PLANNED_AT, CHANGED_AT):
        columns[place] = from_number(columns[place])
    return operation_from_row(columns, _attempt(row[OPERATION_COLUMNS:]), now)


def _attempt(row: Sequence[Any]) -> OperationAttempt | None:
    columns = list(row)
    for place in (STARTED_AT, LEASE_UNTIL, ENDED_AT):
        columns[place] = None if columns[place] is None else from_number(columns[place])
    for place in (TIMEOUT, SETTLE):
        columns[place] = None if columns[place] is None else span_from_number(columns[place])
    return attempt_from_row(columns)
