"""Asking: the question that an effect puts to a person when nobody else can tell, and what the answer means. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from outlast.decision import DecisionView
from outlast.decisions.store import NewDecision
from outlast.effect import Effect, NotDone
from outlast.errors import UsageError
from outlast.failure import Failure, storable_text, type_name
from outlast.limits import QUESTION_CHARACTERS_MAX
from outlast.payload import digest

from .operation import Change, Operation, OperationAttempt

_encode = msgspec.json.Encoder().encode


class Option(StrEnum):
    """What may be answered. The words are persisted and never change."""

    DONE = "done"
    """It was done, with the result that the answer brings."""
    AGAIN = "again"
    """It was not done: another attempt."""
    FAIL = "fail"
    """It was not done, and is not tried again."""


OPTIONS = tuple(map(str, Option))
NEEDS_RESULT = (str(Option.DONE),)


@dataclass(frozen=True, slots=True)
class Answered:
    """What an answer makes of the operation."""

    change: Change
    result: str | None = None
    error: Failure | None = None


def new_question(decision_id: str, effect: Effect[..., Any], operation: Operation, attempt: OperationAttempt, reason: str) -> NewDecision:
    """Return the question whether the current attempt was done; `reason` is why nobody else can tell."""
    owner, name = operation.owner, operation.name
    why = storable_text(reason, QUESTION_CHARACTERS_MAX // 2)
    asked = f"Was {name.effect} done? Attempt {attempt.number} has no result" + (f": {why}" if why else ".")
    about = about_attempt(operation, attempt, why)
    return NewDecision(
        id=decision_id,
        run=owner.run or None,
        generation=owner.generation,
        step=owner.step,
        question=storable_text(asked, QUESTION_CHARACTERS_MAX),
        about=about,
        digest=digest(about),
        options=OPTIONS,
        needs_result=NEEDS_RESULT,
        effect=effect.place,
    )


def about_attempt(operation: Operation, attempt: OperationAttempt, reason: str) -> str:
    """Return as JSON text what a person has to know: which operation and attempt, its arguments, and what was said of it."""
    facts = {
        "effect": operation.name.effect,
        "key": operation.name.key,
        "arguments": msgspec.Raw((operation.arguments or "[]").encode()),
        "attempt": attempt.number,
        "token": attempt.token,
        "started_at": attempt.started_at,
        "reason": reason,
        "error": None if operation.error is None else str(operation.error),
    }
    return _encode(facts).decode()


def meaning_of(effect: Effect[..., Any], decision: DecisionView) -> Answered:
    """Return what an answered decision makes of the operation. PayloadError when its result does not fit the effect's type."""
    match decision.answer:
        case Option.DONE:
            return Answered(Change.ANSWER_DONE, fitting_result(effect, decision.result))
        case Option.AGAIN:
            return Answered(Change.ANSWER_AGAIN)
        case Option.FAIL:
            return Answered(Change.ANSWER_FAIL, error=given_up_by(decision))
        case _:
            raise UsageError(f"decision {decision.id} was answered {decision.answer!r}: the options are {', '.join(OPTIONS)}")


def fitting_result(effect: Effect[..., Any], text: str | None) -> str:
    """Return a result that a person gave, as the effect's own would be stored; PayloadError where its type does not take it."""
    codec = effect.step.signature.result
    return codec.encode(codec.decode("null" if text is None else text, effect.step.result_field), effect.step.result_field)


def given_up_by(decision: DecisionView) -> Failure:
    """Return why an operation failed that a person said is not to be tried again."""
    note = f": {decision.note}" if decision.note else ""
    return Failure(type_name(NotDone), f"{decision.answered_by} decided that it was not done and is not tried again{note}", is_final=True)
