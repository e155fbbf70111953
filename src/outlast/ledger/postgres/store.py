"""PostgresLedgerStore: the ledger's tables on PostgreSQL. It holds no state, and never begins or commits."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from outlast.database.statements import load_statements
from outlast.database.transaction import Transaction
from outlast.ledger.operation import Operation, OperationAttempt, OperationChange, OperationName, Owner, Plan
from outlast.ledger.rows import (
    OPERATION_COLUMNS,
    SETTLE,
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

_SQL = load_statements("outlast.ledger.postgres")
_MICROSECOND = timedelta(microseconds=1)
Row = tuple[Any, ...]


class PostgresLedgerStore:
    """See `outlast.ledger.store.LedgerStore`, which says what each method promises."""

    def record_plan(self, tx: Transaction, plan: Plan, now: datetime | None = None) -> None:
        tx.run(_SQL["insert_operation"], plan_columns(plan) | {"now": now})

    def lock_operation(self, tx: Transaction, name: OperationName, now: datetime | None = None) -> Operation | None:
        locked = tx.run(_SQL["lock_operation"], name_columns(name))
        beside = tx.run(_SQL["find_attempt"], name_columns(name) | {"now": now})
        row = locked.first()
        if row is None:
            return None
        at, *attempt = beside.all()[0]
        return operation_from_row(row, _attempt(attempt), at)

    def own_operation(self, tx: Transaction, name: OperationName, owner: Owner) -> None:
        tx.run(_SQL["own_operation"], name_columns(name) | owner_columns(owner))

    def begin_attempt(
        self, tx: Transaction, change: OperationChange, timeout: timedelta, settle: timedelta, lease: timedelta | None = None, now: datetime | None = None
    ) -> OperationAttempt | None:
        spans = {"timeout": timeout // _MICROSECOND, "settle": settle // _MICROSECOND, "lease": lease}
        row = tx.run(_SQL["begin_attempt"], held_columns(change) | spans | {"found": found_states(change), "now": now}).first()
        return None if row is None else _attempt(row)

    def change_operation(self, tx: Transaction, change: OperationChange, now: datetime | None = None) -> bool:
        return tx.run(_SQL["change_operation"], change_columns(change) | {"found": found_states(change), "now": now}).count == 1

    def count_reconcile(self, tx: Transaction, change: OperationChange) -> bool:
        return tx.run(_SQL["count_reconcile"], held_columns(change)).count == 1

    def record_late(self, tx: Transaction, name: OperationName, attempt: int, token: int, late: str) -> bool:
        return tx.run(_SQL["record_late"], late_columns(name, attempt, token, late)).count == 1

    def mark_lingering(self, tx: Transaction, name: OperationName, attempt: int, token: int, lingers: bool) -> bool:
        return tx.run(_SQL["mark_lingering"], name_columns(name) | {"attempt": attempt, "token": token, "lingers": lingers}).count == 1

    def renew_attempt(self, tx: Transaction, change: OperationChange, lease: timedelta, now: datetime | None = None) -> bool:
        return tx.run(_SQL["renew_attempt"], held_columns(change) | {"lease": lease, "now": now}).count == 1

    def find_operation(self, tx: Transaction, name: OperationName, now: datetime | None = None) -> Operation | None:
        row = tx.run(_SQL["find_operation"], name_columns(name) | {"now": now}).first()
        return None if row is None else _operation(row)

    def list_operations(self, tx: Transaction, run_id: str, now: datetime | None = None) -> list[Operation]:
        return [_operation(row) for row in tx.run(_SQL["list_operations"], {"run": run_id, "now": now}).all()]

    def list_attempts(self, tx: Transaction, names: Sequence[OperationName]) -> dict[OperationName, list[OperationAttempt]]:
        found: dict[OperationName, list[OperationAttempt]] = {name: [] for name in names}
        for effect, key, *row in tx.run(_SQL["list_attempts"], {"names": names_to_json(names)}).all():
            attempt = _attempt(row)
            assert attempt is not None  # its number is part of the primary key
            found[OperationName(effect, key)].append(attempt)
        return found

    def delete_old_operations(
        self, tx: Transaction, older_than: timedelta, limit: int, after: OperationName | None, now: datetime | None = None
    ) -> tuple[int, OperationName | None]:
        age = {"older_than": older_than, "now": now}
        page = tx.run(_SQL["list_old_operations"], name_columns(after or OperationName("", "")) | age | {"limit": limit}).all()
        old = [OperationName(effect, key) for effect, key, may_go in page if may_go]
        deleted = tx.run(_SQL["delete_operations"], {"names": names_to_json(old)} | age).count if old else 0
        return deleted, OperationName(page[-1][0], page[-1][1]) if len(page) == limit else None


def _operation(row: Row) -> Operation:
    return operation_from_row(row[:OPERATION_COLUMNS], _attempt(row[OPERATION_COLUMNS + 1 :]), row[OPERATION_COLUMNS])


def _attempt(row: Sequence[Any]) -> OperationAttempt | None:
    columns = list(row)
    for place in (TIMEOUT, SETTLE):
        columns[place] = None if columns[place] is None else columns[place] * _MICROSECOND
    return attempt_from_row(columns)
