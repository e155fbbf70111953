"""LedgerStore: the port between the ledger and its tables.

As in the native engine's store a method takes an open transaction and neither begins nor commits, and `now` is None for
the database's own clock. Who acts for a run tests its claim in the same transaction, before it changes an operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol

from outlast.database.transaction import Transaction

from .operation import Operation, OperationAttempt, OperationChange, OperationName, Owner, Plan


class LedgerStore(Protocol):
    """The ledger's tables; both databases pass `outlast.testing.ledger_suite`."""

    def record_plan(self, tx: Transaction, plan: Plan, now: datetime | None = None) -> None:
        """Insert an operation as `planned`, unless one of its name is there: then nothing is changed."""
        ...

    def lock_operation(self, tx: Transaction, name: OperationName, now: datetime | None = None) -> Operation | None:
        """Return an operation with its current attempt, its row locked until the transaction ends."""
        ...

    def own_operation(self, tx: Transaction, name: OperationName, owner: Owner) -> None:
        """Make another claim its owner. The caller has it locked, and has seen that the one before does not act any more.

        What the reconciler failed at stays counted: a run that parks between two tries is another claim each time.
        """
        ...

    def begin_attempt(
        self, tx: Transaction, change: OperationChange, timeout: timedelta, settle: timedelta, lease: timedelta | None = None, now: datetime | None = None
    ) -> OperationAttempt | None:
        """Begin the attempt after `change.attempt`, with the next token of the store; None when it is refused.

        `change.change` is `Change.BEGIN`. The token is taken under the operation's row lock, so that tokens of one operation
        grow with its attempts.
        """
        ...

    def change_operation(self, tx: Transaction, change: OperationChange, now: datetime | None = None) -> bool:
        """Make a change that `operation.ALLOWED` has, and keep what it says of the attempt; False when it is refused.

        Refused unless status, owner (run, generation, step and token) and attempt are as said: tested in the statement itself.
        `RESULT` and `FOUND_DONE` keep a result that is there: there is at most one, and it never changes.
        """
        ...

    def count_reconcile(self, tx: Transaction, change: OperationChange) -> bool:
        """Count one more failure of the reconciler in a row; anything else that happens to the operation begins anew at 0."""
        ...

    def record_late(self, tx: Transaction, name: OperationName, attempt: int, token: int, late: str) -> bool:
        """Keep, beside an attempt from which none is wanted any more, the result that it came with; the first one stays.

        It changes nothing else, for whoever acts now has decided without it. False when there is no such attempt.
        """
        ...

    def mark_lingering(self, tx: Transaction, name: OperationName, attempt: int, token: int, lingers: bool) -> bool:
        """Keep whether a thread of an attempt goes on that nobody waits for any more. False when there is no such attempt.

        Whoever owns the operation by then: a thread that ends late must be able to say so. A process that dies leaves the mark.
        """
        ...

    def renew_attempt(self, tx: Transaction, change: OperationChange, lease: timedelta, now: datetime | None = None) -> bool:
        """Set the lease of an attempt without an engine anew, also while its caller finds out what became of it; none at all ends it.

        False when it is not the current one any more.
        """
        ...

    def find_operation(self, tx: Transaction, name: OperationName, now: datetime | None = None) -> Operation | None:
        """Return an operation without locking it."""
        ...

    def list_operations(self, tx: Transaction, run_id: str, now: datetime | None = None) -> list[Operation]:
        """Return the operations that a run owns, in the order of their plans."""
        ...

    def list_attempts(self, tx: Transaction, names: Sequence[OperationName]) -> dict[OperationName, list[OperationAttempt]]:
        """Return every attempt of these operations, by number."""
        ...

    def delete_old_operations(
        self, tx: Transaction, older_than: timedelta, limit: int, after: OperationName | None, now: datetime | None = None
    ) -> tuple[int, OperationName | None]:
        """Look at a page of operations, and delete those that were done, failed or planned before the cutoff and for which nobody acts.

        Nobody does where its run is not there any more, and of one that is planned without a run no lease goes on. Returns how many, and
        where the next page begins; None at the end. An operation without a result that may have been done stays, however old it is.
        """
        ...
