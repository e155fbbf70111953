"""Entries: what one call without an engine reads and writes in the ledger, each method inside one transaction.

Whoever acts owns the operation and renews the lease of its attempt. The operation is taken from another owner only where he
does not act any more, and every change names owner and attempt: a frozen process that comes back is refused. Rows are locked
in one order: the operation, the decision.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import msgspec

from outlast.database.transaction import Transaction
from outlast.decision import DecisionState
from outlast.decisions.store import DecisionStore
from outlast.effect import Effect
from outlast.errors import OperationConflictError, OutlastError, PayloadError
from outlast.failure import Failure

from .asking import meaning_of, new_question
from .operation import (
    Await,
    Begin,
    Change,
    InProgress,
    Operation,
    OperationAttempt,
    OperationChange,
    OperationStatus,
    Owner,
    Plan,
    Reconcile,
    Return,
    is_leased,
    is_same,
    next_move,
)
from .store import LedgerStore

IsClaimed = Callable[[Transaction, Owner], bool]
"""Whether the claim of a run that owns an operation is current."""


class OperationMovedError(OutlastError):
    """Somebody else has changed the operation meanwhile: look at it anew."""


@dataclass(frozen=True, slots=True)
class Begun:
    """An attempt has begun: perform it."""

    attempt: OperationAttempt


@dataclass(frozen=True, slots=True)
class GivenUp:
    """It is not done, and not tried again: a person said so, or whoever this call waited for."""

    error: Failure | None


@dataclass(frozen=True, slots=True)
class Taken:
    """What the call finds, and what is next."""

    move: Return | Begun | Reconcile | Await | InProgress | GivenUp
    operation: Operation


class Entries:
    """The entries of one call."""

    def __init__(self, store: LedgerStore, decisions: DecisionStore, is_claimed: IsClaimed, plan: Plan, effect: Effect[..., Any], lease: timedelta) -> None:
        self._store = store
        self._decisions = decisions
        self._is_claimed = is_claimed
        self._plan = plan
        self._effect = effect
        self._lease = lease

    # --- finding out what is next --------------------------------------------------------------------------------------
    def take(self, tx: Transaction, new_id: str, *, shares_failure: bool) -> Taken:
        """Record the plan, become the operation's owner where nobody else acts for it, and begin an attempt where that is next.

        `new_id` is for a question, if one has to be put anew. `shares_failure`: a failure that is found
        is this call's too, because it has waited for it; who comes new tries again.
        """
        self._store.record_plan(tx, self._plan)
        operation = self._store.lock_operation(tx, self._plan.name)
        if operation is None:
            raise OperationMovedError  # deleted between the two statements
        if operation.digest != self._plan.digest:
            raise OperationConflictError(self._plan.name.effect, self._plan.name.key)
        if shares_failure and operation.status is OperationStatus.FAILED:
            return Taken(GivenUp(operation.error), operation)
        move = next_move(operation, self._plan.owner, is_owner_active=self._is_active(tx, operation))
        if isinstance(move, Await):
            return self._take_decided(tx, operation, move.decision, new_id)
        if isinstance(move, Return | InProgress):
            return Taken(move, operation)
        operation = self._own(tx, operation)
        if isinstance(move, Begin):
            return self._begin(tx, operation, is_revived=move.is_revived)
        self.renew(tx, move.attempt.number, self._lease)
        return Taken(move, operation)

    def _is_active(self, tx: Transaction, operation: Operation) -> bool:
        return self._is_claimed(tx, operation.owner) if operation.owner.run else is_leased(operation)

    def _own(self, tx: Transaction, operation: Operation) -> Operation:
        if not is_same(operation.owner, self._plan.owner):
            self._store.own_operation(tx, self._plan.name, self._plan.owner)
        return msgspec.structs.replace(operation, owner=self._plan.owner)

    def _begin(self, tx: Transaction, operation: Operation, *, is_revived: bool = False) -> Taken:
        if is_revived:
            self.change(tx, [self.of(operation, Change.REVIVE)])
        begin = self.of(operation, Change.BEGIN)
        attempt = self._store.begin_attempt(tx, begin, self._effect.timeout, self._effect.options.settle, self._lease)
        if attempt is None:
            raise OperationMovedError
        return Taken(Begun(attempt), operation)

    def _take_decided(self, tx: Transaction, operation: Operation, decision_id: str, new_id: str) -> Taken:
        decision = self._decisions.lock_decision(tx, decision_id)
        if decision is not None and decision.state is DecisionState.OPEN:
            return Taken(Await(decision_id), operation)
        operation = self._own(tx, operation)
        if decision is None or decision.state is not DecisionState.ANSWERED:
            return self._ask_anew(tx, operation, new_id, "the question before was withdrawn")
        try:
            answered = meaning_of(self._effect, decision)
        except PayloadError as error:
            self._decisions.close_decision(tx, decision_id, DecisionState.SUPERSEDED)
            return self._ask_anew(tx, operation, new_id, f"the answer {decision.answer!r} was given, and its result does not fit: {error}")
        self.change(tx, [replace(self.of(operation, answered.change), result=answered.result, error=answered.error)])
        if not self._decisions.close_decision(tx, decision_id, DecisionState.CONSUMED):
            raise OperationMovedError
        match answered.change:
            case Change.ANSWER_DONE:
                return Taken(Return(answered.result or "null"), operation)
            case Change.ANSWER_AGAIN:
                return self._begin(tx, operation)
            case _:
                return Taken(GivenUp(answered.error), operation)

    def _ask_anew(self, tx: Transaction, operation: Operation, new_id: str, reason: str) -> Taken:
        self._open(tx, operation, new_id, reason, Change.ASK_AGAIN)
        return Taken(Await(new_id), operation)

    # --- taking note of what came ----------------------------------------------------------------------------------------
    def change(self, tx: Transaction, changes: Sequence[OperationChange]) -> None:
        for change in changes:
            if not self._store.change_operation(tx, change):
                raise OperationMovedError

    def cut_off(self, tx: Transaction, attempt: OperationAttempt, *, lingers: bool = False) -> None:
        """Nobody acts for the attempt any more, and nobody knows how it ended: whoever comes next need not wait for the lease.

        `lingers`: a thread of it goes on.
        """
        self._store.change_operation(tx, self.of_attempt(attempt, Change.DOUBT))
        self.renew(tx, attempt.number, timedelta(0))
        if lingers:
            self._store.mark_lingering(tx, self._plan.name, attempt.number, attempt.token, True)

    def thread_ended(self, tx: Transaction, attempt: OperationAttempt) -> None:
        """The thread that went on goes on no more, whoever acts for the operation by now."""
        self._store.mark_lingering(tx, self._plan.name, attempt.number, attempt.token, False)

    def count_reconcile(self, tx: Transaction, operation: Operation) -> None:
        if not self._store.count_reconcile(tx, self.of(operation, Change.DOUBT)):
            raise OperationMovedError

    def ask(self, tx: Transaction, operation: Operation, new_id: str, reason: str) -> None:
        """Ask a person what became of the current attempt."""
        self._open(tx, operation, new_id, reason, Change.ASK)

    def renew(self, tx: Transaction, attempt: int, lease: timedelta) -> bool:
        return self._store.renew_attempt(tx, OperationChange(self._plan.name, Change.BEGIN, self._plan.owner, attempt), lease)

    def offer(self, tx: Transaction, attempt: OperationAttempt, result: str) -> bool:
        """Believe a result that nobody waits for any more, if its attempt is still the current one.

        Else it is kept beside the attempt, and changes nothing; returns False.
        """
        if self._store.change_operation(tx, self.of_attempt(attempt, Change.FOUND_DONE, result=result)):
            return True
        self._store.record_late(tx, self._plan.name, attempt.number, attempt.token, result)
        return False

    def settle_late(self, tx: Transaction, attempt: OperationAttempt, result: str) -> bool:
        """Tell whether a result that was refused is there all the same, from a commit of unknown outcome; else keep it beside its attempt."""
        operation = self._store.lock_operation(tx, self._plan.name)
        current = None if operation is None else operation.attempt
        if operation is not None and current is not None and current.token == attempt.token and operation.result == result:
            return True
        self._store.record_late(tx, self._plan.name, attempt.number, attempt.token, result)
        return False

    # --- small parts -----------------------------------------------------------------------------------------------------
    def of(self, operation: Operation, change: Change, *, decision: str | None = None) -> OperationChange:
        number = 0 if operation.attempt is None else operation.attempt.number
        return OperationChange(self._plan.name, change, self._plan.owner, number, decision=decision)

    def of_attempt(self, attempt: OperationAttempt, change: Change, *, result: str | None = None, error: Failure | None = None) -> OperationChange:
        return OperationChange(self._plan.name, change, self._plan.owner, attempt.number, result=result, error=error)

    def _open(self, tx: Transaction, operation: Operation, new_id: str, reason: str, change: Change) -> None:
        assert operation.attempt is not None  # only an attempt is asked about
        self._decisions.open_decision(tx, new_question(new_id, self._effect, operation, operation.attempt, reason))
        self.change(tx, [self.of(operation, change, decision=new_id)])
