"""Deciding: a person's answer to a question, and his result for what had failed. Each is one transaction, which changes all or nothing.

Rows are locked in the order in which everybody locks them: the run, the operation, the decision.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from outlast.database.transaction import Transaction
from outlast.decision import NO_RESULT, DecisionState, DecisionView, decision_topic
from outlast.decisions.store import NewAnswer
from outlast.effect import find_effect
from outlast.errors import UsageError
from outlast.ids import run_id as new_id
from outlast.ledger.asking import fitting_result
from outlast.ledger.operation import ALLOWED, Change, OperationChange, OperationStatus
from outlast.payload import codec_for
from outlast.run import RunStatus, RunView

from .history import RecordKind
from .mailbox import NewSignal
from .runtime import Runtime
from .upkeep import NewAction, Resumed

_PLAIN = codec_for(Any)


@dataclass(frozen=True)
class Answering:
    """One answer to one decision."""

    decision_id: str
    option: str
    result: str | None
    """JSON text; None for no result."""
    note: str
    actor: str

    def answer(self, runtime: Runtime, tx: Transaction) -> DecisionView:
        """Answer it, send the signal that wakes its run, and keep who did it. Raises `UsageError` where that cannot be."""
        decisions, store, now = runtime.backend.decisions, runtime.store, runtime.at()
        seen = decisions.find_decision(tx, self.decision_id)
        if seen is None:
            raise no_decision(self.decision_id)
        status = None if seen.run is None else store.lock_run(tx, seen.run)
        decision = decisions.lock_decision(tx, self.decision_id) or seen
        self._ensure_open(decision, status)
        answer = NewAnswer(self.option, self.actor, self.note, self._fitting(decision))
        if not decisions.answer_decision(tx, decision.id, decision.digest, answer, now):
            raise UsageError(f"decision {decision.id} has changed meanwhile: look at it again")
        if decision.run is not None:
            store.append_signal(tx, NewSignal(new_id(), decision_topic(decision.id), decision.run), now)
        reason = f"{self.option}: {self.note}" if self.note else self.option
        store.record_action(tx, NewAction("decide", self.actor, f"decision {decision.id}: {reason}", decision.run), now)
        answered = decisions.find_decision(tx, decision.id)
        assert answered is not None  # its row is locked
        return answered

    def _ensure_open(self, decision: DecisionView, run_status: RunStatus | None) -> None:
        if decision.answered_at is not None:
            when = f"{decision.answered_at:%Y-%m-%d %H:%M:%S}Z"
            raise UsageError(f"decision {decision.id} was answered by {decision.answered_by} at {when}: {decision.answer}; an answer is given once")
        if decision.state is not DecisionState.OPEN:
            raise UsageError(f"decision {decision.id} is {decision.state}: nobody waits for an answer any more")
        if run_status is not None and run_status.is_terminal:
            raise UsageError(f"decision {decision.id} is about run {decision.run}, which is {run_status}: nobody waits for an answer any more")

    def _fitting(self, decision: DecisionView) -> str | None:
        """Return the result as it is to be kept; it is checked against the effect's type where this process has the effect."""
        if self.option not in decision.options:
            raise UsageError(f"option is {self.option!r}: write one of {', '.join(decision.options)}")
        if self.option not in decision.needs_result:
            if self.result is not None:
                raise UsageError(f"result is given, and option {self.option} takes none: leave it out")
            return None
        if self.result is None:
            raise UsageError(f"option {self.option} needs a result, as JSON: give result, or --result on the command line")
        effect = None if decision.effect is None else find_effect(decision.effect)
        return self.result if effect is None else fitting_result(effect, self.result)


def no_decision(decision_id: str) -> UsageError:
    return UsageError(f"there is no decision {decision_id}: `outlast attention` lists those that are open")


def plain_json(result: Any) -> str | None:
    """Return a result that a person gave as JSON text, None for none; PayloadError, which names the field, for what is no plain JSON value."""
    return None if result is NO_RESULT else _PLAIN.encode(result, "result")


def resume(runtime: Runtime, tx: Transaction, run_id: str, result: str, actor: str, reason: str) -> tuple[Resumed | None, RunView | None]:
    """Give a result to what failed a run, in its history and, for an effect, in the ledger too; return the run as it is then."""
    now = runtime.at()
    resumed = runtime.store.resume_run(tx, run_id, result, actor, reason, now)
    if resumed is not None and resumed.kind is RecordKind.EFFECT:
        _resume_operation(runtime, tx, run_id, resumed, result)
    return resumed, runtime.store.find_run(tx, run_id, now)


_RESUMABLE = ALLOWED[Change.RESUME][0] | {OperationStatus.ATTEMPTING}


def _resume_operation(runtime: Runtime, tx: Transaction, run_id: str, resumed: Resumed, result: str) -> None:
    """Note that an effect counts as done, whatever its last attempt did: the run is over and locked, so that nobody acts for it.

    One that somebody else acts for by now is his: the run has its result all the same.
    """
    ledger, now = runtime.backend.ledger, runtime.at()
    place = (resumed.generation, str(resumed.key))
    for operation in ledger.list_operations(tx, run_id, now):
        if (operation.owner.generation, operation.owner.step) == place and operation.status in _RESUMABLE:
            attempt = 0 if operation.attempt is None else operation.attempt.number
            change = OperationChange(operation.name, Change.DOUBT, operation.owner, attempt)
            if operation.status is OperationStatus.ATTEMPTING:
                ledger.change_operation(tx, change, now)  # it was cut off, and its attempt is over
            ledger.change_operation(tx, replace(change, change=Change.RESUME, result=result), now)
            if operation.decision is not None:
                runtime.backend.decisions.close_decision(tx, operation.decision, DecisionState.WITHDRAWN, now)
