"""World: the decisions of one database, and short ways to bring one into a state. It asserts nothing but its own steps."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from outlast import ids
from outlast.decision import DecisionState, DecisionView
from outlast.decisions.store import NewAnswer, NewDecision
from outlast.native.backend import Backend

START = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
DIGEST = "digest-of-about"
ANSWER = NewAnswer("again", "ann", "the order is not in their books")
PATHS: dict[DecisionState, tuple[DecisionState, ...]] = {
    DecisionState.OPEN: (),
    DecisionState.ANSWERED: (DecisionState.ANSWERED,),
    DecisionState.CONSUMED: (DecisionState.ANSWERED, DecisionState.CONSUMED),
    DecisionState.SUPERSEDED: (DecisionState.SUPERSEDED,),
    DecisionState.WITHDRAWN: (DecisionState.WITHDRAWN,),
}
"""How a decision comes to each state."""


def after(seconds: float) -> datetime:
    """Return the instant so long after every test's start."""
    return START + timedelta(seconds=seconds)


def question(**changes: Any) -> NewDecision:
    """Return a question to be put, ordinary but for `changes`."""
    ordinary: dict[str, Any] = {
        "id": ids.run_id(),
        "run": ids.run_id(),
        "generation": 0,
        "step": "0.1/pay:2",
        "question": "Was pay done? Attempt 1 has no result.",
        "about": '{"amount":1e22,"b":1,"a":2}',
        "digest": DIGEST,
        "options": ("done", "again", "fail"),
        "needs_result": ("done",),
        "effect": "shop.money:pay",
    }
    return NewDecision(**{**ordinary, **changes})


class World:
    """One empty database and what a test does to its decisions. `now` is START unless a call says otherwise."""

    def __init__(self, backend: Backend) -> None:
        self.database = backend.database
        self.store = backend.decisions

    def open(self, now: datetime = START, **changes: Any) -> str:
        """Put a question and return its id."""
        decision = question(**changes)
        with self.database.transaction() as tx:
            self.store.open_decision(tx, decision, now)
        return decision.id

    def answer(self, decision_id: str, answer: NewAnswer = ANSWER, digest: str = DIGEST, now: datetime = START) -> bool:
        with self.database.transaction() as tx:
            return self.store.answer_decision(tx, decision_id, digest, answer, now)

    def close(self, decision_id: str, state: DecisionState, now: datetime = START) -> bool:
        with self.database.transaction() as tx:
            return self.store.close_decision(tx, decision_id, state, now)

    def withdraw(self, *run_ids: str, now: datetime = START) -> int:
        with self.database.transaction() as tx:
            return self.store.withdraw_decisions(tx, run_ids, now)

    def move(self, decision_id: str, state: DecisionState) -> bool:
        """Try to bring a decision into a state, in the one way that there is."""
        return self.answer(decision_id) if state is DecisionState.ANSWERED else self.close(decision_id, state)

    def opened_in(self, state: DecisionState, **changes: Any) -> str:
        """Return a decision that is in this state."""
        decision_id = self.open(**changes)
        for step in PATHS[state]:
            assert self.move(decision_id, step)
        return decision_id

    def find(self, decision_id: str) -> DecisionView | None:
        with self.database.reading() as tx:
            return self.store.find_decision(tx, decision_id)

    def view(self, decision_id: str) -> DecisionView:
        view = self.find(decision_id)
        assert view is not None
        return view

    def page(self, state: DecisionState | None = None, limit: int = 100, before: str | None = None) -> list[str]:
        with self.database.reading() as tx:
            return [view.id for view in self.store.list_decisions(tx, state, limit, before)]

    def list_of_run(self, run_id: str) -> list[str]:
        with self.database.reading() as tx:
            return [view.id for view in self.store.list_of_run(tx, run_id)]


class WorldSuite:
    """Gives each test its world."""

    @pytest.fixture
    def world(self, backend: Backend) -> World:
        return World(backend)
