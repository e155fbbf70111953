"""PostgresDecisionStore: the tables of decisions on PostgreSQL. It holds no state, and never begins or commits."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from outlast.database.statements import load_statements
from outlast.database.transaction import Transaction
from outlast.decision import DecisionState, DecisionView
from outlast.decisions.rows import answer_columns, decision_from_row, found_states, question_columns
from outlast.decisions.store import NewAnswer, NewDecision

_SQL = load_statements("outlast.decisions.postgres")


class PostgresDecisionStore:
    """See `outlast.decisions.store.DecisionStore`, which says what each method promises."""

    def open_decision(self, tx: Transaction, decision: NewDecision, now: datetime | None = None) -> None:
        lists = {"options": list(decision.options), "needs_result": list(decision.needs_result)}
        tx.run(_SQL["open_decision"], {**question_columns(decision), **lists, "now": now})

    def find_decision(self, tx: Transaction, decision_id: str) -> DecisionView | None:
        row = tx.run(_SQL["find_decision"], {"id": decision_id}).first()
        return None if row is None else _decision(row)

    def lock_decision(self, tx: Transaction, decision_id: str) -> DecisionView | None:
        row = tx.run(_SQL["lock_decision"], {"id": decision_id}).first()
        return None if row is None else _decision(row)

    def answer_decision(self, tx: Transaction, decision_id: str, digest: str, answer: NewAnswer, now: datetime | None = None) -> bool:
        return tx.run(_SQL["answer_decision"], {**answer_columns(decision_id, digest, answer), "now": now}).count == 1

    def close_decision(self, tx: Transaction, decision_id: str, state: DecisionState, now: datetime | None = None) -> bool:
        return tx.run(_SQL["close_decision"], {"id": decision_id, "state": state, "found": found_states(state), "now": now}).count == 1

    def withdraw_decisions(self, tx: Transaction, run_ids: Sequence[str], now: datetime | None = None) -> int:
        if not run_ids:
            return 0
        asked = {"runs": list(run_ids), "found": found_states(DecisionState.WITHDRAWN), "now": now}
        return tx.run(_SQL["withdraw_decisions"], asked).count

    def list_decisions(self, tx: Transaction, state: DecisionState | None, limit: int, before: str | None) -> list[DecisionView]:
        asked = {"state": state, "limit": limit, "before": before}
        statement = "list_open" if state is DecisionState.OPEN else "list_decisions"
        return [_decision(row) for row in tx.run(_SQL[statement], asked).all()]

    def list_of_run(self, tx: Transaction, run_id: str) -> list[DecisionView]:
        return [_decision(row) for row in tx.run(_SQL["list_of_run"], {"run": run_id}).all()]


def _decision(row: tuple[Any, ...]) -> DecisionView:
    *facts, options, needs_result, opened_at, answered_at, closed_at = row
    return decision_from_row(facts, options, needs_result, (opened_at, answered_at, closed_at))
