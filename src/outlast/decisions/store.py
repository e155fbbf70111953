"""DecisionStore: the port between decisions and their tables.

A decision is answered once and used once: an answer is a change of an open row that names the digest of what was asked, and
it is consumed in the transaction that records what came of it. As everywhere, a method takes an open transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Protocol

from outlast.database.transaction import Transaction
from outlast.decision import DecisionState, DecisionView

ALLOWED: Mapping[DecisionState | None, frozenset[DecisionState]] = MappingProxyType(
    {
        None: frozenset({DecisionState.OPEN}),
        DecisionState.OPEN: frozenset({DecisionState.ANSWERED, DecisionState.SUPERSEDED, DecisionState.WITHDRAWN}),
        DecisionState.ANSWERED: frozenset({DecisionState.CONSUMED, DecisionState.SUPERSEDED, DecisionState.WITHDRAWN}),
    }
)
"""From which state to which; what is absent is final."""


@dataclass(frozen=True, slots=True)
class NewDecision:
    """A question to be put."""

    id: str
    """Made by who asks, so that a repeated call asks once."""
    run: str | None
    generation: int
    step: str
    question: str
    about: str
    """JSON text."""
    digest: str
    options: tuple[str, ...]
    needs_result: tuple[str, ...] = ()
    effect: str | None = None


@dataclass(frozen=True, slots=True)
class NewAnswer:
    """What somebody decided."""

    option: str
    by: str
    note: str = ""
    result: str | None = None
    """JSON text, for an option that needs it."""


class DecisionStore(Protocol):
    """The tables of decisions; both databases pass `outlast.testing.decision_suite`."""

    def open_decision(self, tx: Transaction, decision: NewDecision, now: datetime | None = None) -> None:
        """Put a question; one with this id that is there already stays as it is."""
        ...

    def find_decision(self, tx: Transaction, decision_id: str) -> DecisionView | None: ...

    def lock_decision(self, tx: Transaction, decision_id: str) -> DecisionView | None:
        """Return it with its row locked until the transaction ends."""
        ...

    def answer_decision(self, tx: Transaction, decision_id: str, digest: str, answer: NewAnswer, now: datetime | None = None) -> bool:
        """Answer it, if it is open and still about what has this digest; of two at once one is True."""
        ...

    def close_decision(self, tx: Transaction, decision_id: str, state: DecisionState, now: datetime | None = None) -> bool:
        """Make it `consumed` (only from `answered`), `superseded` or `withdrawn`; False when `ALLOWED` has no such change."""
        ...

    def withdraw_decisions(self, tx: Transaction, run_ids: Sequence[str], now: datetime | None = None) -> int:
        """Withdraw what runs that are over have asked and not used; return how many."""
        ...

    def list_decisions(self, tx: Transaction, state: DecisionState | None, limit: int, before: str | None) -> list[DecisionView]:
        """Return a page, the latest asked first; `before` is the last id of the page before. Open ones have an index of their own."""
        ...

    def list_of_run(self, tx: Transaction, run_id: str) -> list[DecisionView]:
        """Return all that a run has asked, in order."""
        ...
