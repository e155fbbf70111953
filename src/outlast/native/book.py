"""Book: one effect's entries in the ledger, on behalf of a claim of its run. Each is one transaction that tests the claim first.

The claim is tested by locking the run's row under its token, as in a transactional step: what a frozen worker writes after
another has claimed its run is undone. Rows are locked in one order: the run, the operation, the decision.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec

from outlast.database.transaction import Transaction
from outlast.decision import DecisionState
from outlast.decisions.store import DecisionStore, NewDecision
from outlast.effect import Effect
from outlast.errors import HistoryMismatchError, LeaseLostError, OperationConflictError, PayloadError, UsageError
from outlast.ledger.asking import Answered, meaning_of, new_question
from outlast.ledger.entries import Begun, OperationMovedError
from outlast.ledger.operation import (
    Await,
    Begin,
    Change,
    InProgress,
    Move,
    Operation,
    OperationAttempt,
    OperationChange,
    Owner,
    Plan,
    Reconcile,
    Return,
    is_leased,
    is_same,
    next_move,
)
from outlast.ledger.store import LedgerStore

from .backend import Backend
from .store import Hold, StepCheckpoint

NOBODY = 0
"""The token of an operation that was given up: a run's first claim has 1."""
_UNFIT = "the answer {answer!r} was given, and its result does not fit: {error}"
_WITHDRAWN = "the question before was withdrawn when the run was over"


@dataclass(frozen=True, slots=True)
class Decided:
    """A person has answered: what it means is to be recorded, and the answer consumed."""

    answered: Answered
    decision: str


@dataclass(frozen=True, slots=True)
class Taken:
    """What the effect finds, and what is next."""

    move: Move | Begun | Decided
    operation: Operation
    died_at: datetime | None = None
    """When the worker of the current attempt was proven dead."""


class Book:
    """The entries of one effect call."""

    def __init__(self, backend: Backend, hold: Hold, plan: Plan, effect: Effect[..., object], at: Callable[[], datetime | None]) -> None:
        self._store = backend.store
        self._keeping = backend.keeping
        self._ledger: LedgerStore = backend.ledger
        self._decisions: DecisionStore = backend.decisions
        self._hold = hold
        self._plan = plan
        self._effect = effect
        self._at = at

    # --- finding out what is next --------------------------------------------------------------------------------------
    def take(self, tx: Transaction, new_id: str) -> Taken:
        """Record the plan, become the operation's owner where nobody else acts for it, and begin an attempt where that is next.

        `new_id` is for a question, if one has to be put anew.
        """
        self._ensure_held(tx)
        self._ledger.record_plan(tx, self._plan, self._at())
        operation = self._ledger.lock_operation(tx, self._plan.name, self._at())
        if operation is None:
            raise OperationMovedError  # pruned between the two statements
        if operation.digest != self._plan.digest:
            raise self._conflict(operation.owner)
        move = next_move(operation, self._plan.owner, is_owner_active=self._is_active(tx, operation))
        if isinstance(move, Return | InProgress):
            return Taken(move, operation)
        if not is_same(operation.owner, self._plan.owner):
            self._ledger.own_operation(tx, self._plan.name, self._plan.owner)
            operation = msgspec.structs.replace(operation, owner=self._plan.owner)
        match move:
            case Begin(is_revived):
                return Taken(Begun(self._begin(tx, operation, is_revived=is_revived)), operation)
            case Await(decision_id):
                return self._take_decided(tx, operation, decision_id, new_id)
            case Reconcile(attempt):
                died_at = None if attempt.worker is None else self._store.find_death(tx, attempt.worker)
                return Taken(move, operation, died_at)
        raise AssertionError(f"a move that nobody knows: {move}")

    def _conflict(self, owner: Owner) -> UsageError:
        """Other arguments: of this very call they are changed code, of another one the key's conflict."""
        mine = self._plan.owner
        if (owner.run, owner.generation, owner.step) == (mine.run, mine.generation, mine.step):
            return HistoryMismatchError(f"{mine.step} with other arguments, which an attempt was made with", f"{mine.step} with these")
        return OperationConflictError(self._plan.name.effect, self._plan.name.key)

    def _is_active(self, tx: Transaction, operation: Operation) -> bool:
        """Tell whether another claim than any of this run's acts for the operation: the run is held, so an older claim of it does not."""
        owner = operation.owner
        if owner.run == self._hold.run_id:
            return (owner.generation, owner.step) != (self._plan.owner.generation, self._plan.owner.step) and owner.token == self._hold.token
        if not owner.run:
            return is_leased(operation)
        return self._store.is_claimed(tx, Hold(owner.run, owner.token))

    def _begin(self, tx: Transaction, operation: Operation, *, is_revived: bool = False) -> OperationAttempt:
        if is_revived:
            self._change(tx, self._of(operation, Change.REVIVE))
        options = self._effect.options
        attempt = self._ledger.begin_attempt(tx, self._of(operation, Change.BEGIN), self._effect.timeout, options.settle, None, self._at())
        if attempt is None:
            raise OperationMovedError
        return attempt

    def _take_decided(self, tx: Transaction, operation: Operation, decision_id: str, new_id: str) -> Taken:
        decision = self._decisions.lock_decision(tx, decision_id)
        if decision is not None and decision.state is DecisionState.OPEN:
            return Taken(Await(decision_id), operation)
        if decision is None or decision.state is not DecisionState.ANSWERED:
            return self._ask_anew(tx, operation, new_id, _WITHDRAWN)
        try:
            answered = meaning_of(self._effect, decision)
        except PayloadError as error:
            self._decisions.close_decision(tx, decision_id, DecisionState.SUPERSEDED, self._at())
            return self._ask_anew(tx, operation, new_id, _UNFIT.format(answer=decision.answer, error=error))
        if answered.change is not Change.ANSWER_AGAIN:
            return Taken(Decided(answered, decision_id), operation)
        self._change(tx, self._of(operation, Change.ANSWER_AGAIN))
        self._consume(tx, decision_id)
        return Taken(Begun(self._begin(tx, operation)), operation)

    def _ask_anew(self, tx: Transaction, operation: Operation, new_id: str, reason: str) -> Taken:
        self._open(tx, operation, new_id, reason, Change.ASK_AGAIN)
        return Taken(Await(new_id), operation)

    # --- taking note of what came ----------------------------------------------------------------------------------------
    def note(self, tx: Transaction, changes: Sequence[OperationChange]) -> None:
        """Make changes to which no record of the run belongs."""
        self._ensure_held(tx)
        for change in changes:
            self._change(tx, change)

    def cut_off(self, tx: Transaction, change: OperationChange, attempt: OperationAttempt, *, lingers: bool) -> None:
        """Nobody waits for an attempt any more, and nobody owns its operation: true whoever holds the run, so the claim is not tested.

        Where the operation has moved on, only that its function goes on is noted.
        """
        if self._ledger.change_operation(tx, change, self._at()):
            self._ledger.own_operation(tx, self._plan.name, msgspec.structs.replace(self._plan.owner, token=NOBODY))
        if lingers:
            self.mark_lingering(tx, attempt, lingers=True)

    def mark_lingering(self, tx: Transaction, attempt: OperationAttempt, *, lingers: bool) -> None:
        """Say whether a function of an attempt goes on although nobody waits for it."""
        self._ledger.mark_lingering(tx, self._plan.name, attempt.number, attempt.token, lingers)

    def count_reconcile(self, tx: Transaction, operation: Operation) -> None:
        """Count one more failure of the reconciler in a row."""
        self._ensure_held(tx)
        if not self._ledger.count_reconcile(tx, self._of(operation, Change.DOUBT)):
            raise OperationMovedError

    def ask(self, tx: Transaction, operation: Operation, new_id: str, reason: str) -> None:
        """Ask a person what became of the current attempt."""
        self._ensure_held(tx)
        self._open(tx, operation, new_id, reason, Change.ASK)

    def record(self, tx: Transaction, changes: Sequence[OperationChange], checkpoint: StepCheckpoint, decision_id: str | None) -> None:
        """End the call: what the ledger knows and what the body will be handed are there together, or neither is."""
        self.note(tx, changes)
        if decision_id is not None:
            self._consume(tx, decision_id)
        if self._store.commit_checkpoints(tx, [checkpoint], self._at())():
            raise LeaseLostError("the record of an effect was refused: its claim is not current any more")

    def record_late(self, tx: Transaction, change: OperationChange, attempt: OperationAttempt, result: str) -> bool:
        """Believe a result that nobody waited for any more, if its attempt is still the current one and the claim too.

        Else it is kept beside the attempt, and changes nothing; returns False.
        """
        if self._is_held(tx) and self._ledger.change_operation(tx, change, self._at()):
            return True
        self._ledger.record_late(tx, self._plan.name, attempt.number, attempt.token, result)
        return False

    # --- small parts -----------------------------------------------------------------------------------------------------
    def _of(self, operation: Operation, change: Change, *, decision: str | None = None) -> OperationChange:
        attempt = 0 if operation.attempt is None else operation.attempt.number
        return OperationChange(self._plan.name, change, self._plan.owner, attempt, decision=decision)

    def _open(self, tx: Transaction, operation: Operation, new_id: str, reason: str, change: Change) -> None:
        assert operation.attempt is not None  # only an attempt is asked about
        question: NewDecision = new_question(new_id, self._effect, operation, operation.attempt, reason)
        self._decisions.open_decision(tx, question, self._at())
        self._change(tx, self._of(operation, change, decision=new_id))

    def _consume(self, tx: Transaction, decision_id: str) -> None:
        if not self._decisions.close_decision(tx, decision_id, DecisionState.CONSUMED, self._at()):
            raise OperationMovedError

    def _change(self, tx: Transaction, change: OperationChange) -> None:
        if not self._ledger.change_operation(tx, change, self._at()):
            raise OperationMovedError

    def _ensure_held(self, tx: Transaction) -> None:
        if not self._is_held(tx):
            raise LeaseLostError("the run is not this worker's any more: nothing of its effect is recorded")

    def _is_held(self, tx: Transaction) -> bool:
        return tx.run(*self._keeping.hold(self._hold, self._plan.owner.generation)).first() is not None
