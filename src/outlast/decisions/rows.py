"""Rows: a decision as both stores select it, in one order of columns, and what they write of one."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from outlast.decision import DecisionState, DecisionView

from .store import ALLOWED, NewAnswer, NewDecision

CLOSED = frozenset({DecisionState.CONSUMED, DecisionState.SUPERSEDED, DecisionState.WITHDRAWN})
"""What a decision can be closed as."""


def decision_from_row(row: Sequence[Any], options: Sequence[str], needs_result: Sequence[str], instants: Sequence[datetime | None]) -> DecisionView:
    """Return a decision from: id, state, run, step, question, about, digest, effect, answer, result, answered_by, note.

    `instants` are: opened_at, answered_at, closed_at.
    """
    decision_id, state, run, step, question, about, digest, effect, answer, result, answered_by, note = row
    opened_at, answered_at, closed_at = instants
    assert opened_at is not None  # the column is NOT NULL
    return DecisionView(
        id=decision_id,
        state=DecisionState(state),
        run=run,
        step=step,
        question=question,
        about=about,
        digest=digest,
        options=tuple(options),
        needs_result=tuple(needs_result),
        effect=effect,
        opened_at=opened_at,
        answer=answer,
        result=result,
        answered_by=answered_by,
        note=note,
        answered_at=answered_at,
        closed_at=closed_at,
    )


def question_columns(decision: NewDecision) -> dict[str, Any]:
    """Return what is kept of a question, apart from its lists."""
    return {
        "id": decision.id,
        "run": decision.run,
        "generation": decision.generation,
        "step": decision.step,
        "question": decision.question,
        "about": decision.about,
        "digest": decision.digest,
        "effect": decision.effect,
    }


def answer_columns(decision_id: str, digest: str, answer: NewAnswer) -> dict[str, Any]:
    return {"id": decision_id, "digest": digest, "answer": answer.option, "result": answer.result, "answered_by": answer.by, "note": answer.note}


def found_states(state: DecisionState) -> list[DecisionState]:
    """Return from which states a decision can be closed as `state`."""
    if state not in CLOSED:
        raise ValueError(f"a decision is not closed as {state}: write one of {', '.join(sorted(CLOSED))}")
    return sorted(found for found, following in ALLOWED.items() if found is not None and state in following)
