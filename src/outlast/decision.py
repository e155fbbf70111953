"""Decisions: questions put to a person, whose answers are recorded and used once. What people see and say of them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any


class DecisionState(StrEnum):
    """Where a decision stands. The words are persisted and never change."""

    OPEN = "open"
    ANSWERED = "answered"
    """Somebody has decided, and the run has not yet used it."""
    CONSUMED = "consumed"
    """The run has used the answer; the record of that was committed with it."""
    SUPERSEDED = "superseded"
    """The run went on without it, or the answer did not fit and it was asked anew."""
    WITHDRAWN = "withdrawn"
    """The run is over."""


@dataclass(frozen=True, slots=True)
class DecisionView:
    """A question as people see it."""

    id: str
    state: DecisionState
    run: str | None
    """The run that waits for the answer; None where an effect without an engine asks."""
    step: str
    """Which durable call of the run asks."""
    question: str
    about: str
    """JSON text: what it is about, such as an effect's arguments and what its reconciler said."""
    digest: str
    """Of `about`, so that nobody answers a question that has changed under his eyes."""
    options: tuple[str, ...]
    needs_result: tuple[str, ...]
    """The options that come with a result, as JSON."""
    effect: str | None
    """`module:qualname` of the effect whose result type an answer is checked against."""
    opened_at: datetime
    answer: str | None = None
    """The option that was chosen."""
    result: str | None = None
    """JSON text."""
    answered_by: str | None = None
    note: str = ""
    answered_at: datetime | None = None
    closed_at: datetime | None = None
    """When it was consumed, superseded or withdrawn."""


class _NoResult:
    """Stands for a result that was not given, apart from None, which is one."""

    def __repr__(self) -> str:
        return "NO_RESULT"


NO_RESULT: Any = _NoResult()
"""An answer without a result."""


def decision_topic(decision_id: str) -> str:
    """Return the reserved topic on which a run waits for an answer."""
    return f"$decision:{decision_id}"


def decision_of(topic: str | None) -> str | None:
    """Return the decision whose answer comes on a topic, None for any other."""
    return topic.removeprefix("$decision:") if topic is not None and topic.startswith("$decision:") else None
