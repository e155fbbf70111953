"""SqliteDecisionStore: the tables of decisions on SQLite. It never begins or commits; the machine's clock is the database's."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from outlast.clock import Clock, SystemClock
from outlast.database.sqlite.instant import from_number_or_none, to_number
from outlast.database.statements import load_statements
from outlast.database.transaction import Transaction
from outlast.decision import DecisionState, DecisionView
from outlast.decisions.rows import answer_columns, decision_from_row, found_states, question_columns
from outlast.decisions.store import NewAnswer, NewDecision

_SQL = load_statements("outlast.decisions.sqlite")


class SqliteDecisionStore:
    """See `outlast.decisions.store.DecisionStore`, which says what each method promises."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()

    def _now(self, now: datetime | None) -> int:
        return to_number(now or self._clock.now())

    def open_decision(self, tx: Transaction, decision: NewDecision, now: datetime | None = None) -> None:
        lists = {"options": json.dumps(decision.options), "needs_result": json.dumps(decision.needs_result)}
        tx.run(_SQL["open_decision"], {**question_columns(decision), **lists, "now": self._now(now)})

    def find_decision(self, tx: Transaction, decision_id: str) -> DecisionView | None:
        row = tx.run(_SQL["find_decision"], {"id": decision_id}).first()
        return None if row is None else _decision(row)

    def lock_decision(self, tx: Transaction, decision_id: str) -> DecisionView | None:
        """The immediate transaction keeps it as it is."""
        return self.find_decision(tx, decision_id)

    def answer_decision(self, tx: Transaction, decision_id: str, digest: str, answer: NewAnswer, now: datetime | None = None) -> bool:
        return tx.run(_SQL["answer_decision"], {**answer_columns(decision_id, digest, answer), "now": self._now(now)}).count == 1

    def close_decision(self, tx: Transaction, decision_id: str, state: DecisionState, now: datetime | None = None) -> bool:
        asked = {"id": decision_id, "state": state, "found": json.dumps(found_states(state)), "now": self._now(now)}
        return tx.run(_SQL["close_decision"], asked).count == 1

    def withdraw_decisions(self, tx: Transaction, run_ids: Sequence[str], now: datetime | None = None) -> int:
        asked = {"runs": json.dumps(list(run_ids)), "found": json.dumps(found_states(DecisionState.WITHDRAWN)), "now": self._now(now)}
        return tx.run(_SQL["withdraw_decisions"], asked).count

    def list_decisions(self, tx: Transaction, state: DecisionState | None, limit: int, before: str | None) -> list[DecisionView]:
        asked = {"state": state, "limit": limit, "before": before}
        statement = "list_open" if state is DecisionState.OPEN else "list_decisions"
        return [_decision(row) for row in tx.run(_SQL[statement], asked).all()]

    def list_of_run(self, tx: Transaction, run_id: str) -> list[DecisionView]:
        return [_decision(row) for row in tx.run(_SQL["list_of_run"], {"run": run_id}).all()]


def _decision(row: tuple[Any, ...]) -> DecisionView:
    *facts, options, needs_result, opened_at, answered_at, closed_at = row
    instants = tuple(map(from_number_or_none, (opened_at, answered_at, closed_at)))
    return decision_from_row(facts, json.loads(options), json.loads(needs_result), instants)
