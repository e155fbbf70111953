"""Actions: who did what through `Operator`, and why."""

from datetime import datetime

from outlast.database.sqlite.instant import from_number
from outlast.database.transaction import Transaction
from outlast.inspector import ActionView
from outlast.native.upkeep import NewAction

from .tables import Tables


class Actions(Tables):
    """The part of the store that keeps what operators did."""

    def record_action(self, tx: Transaction, action: NewAction, now: datetime | None = None) -> int:
        row = {"action": action.action, "actor": action.actor, "reason": action.reason, "run": action.run_id, "queue": action.queue}
        return int(tx.run(self._sql["insert_action"], {**row, "affected": action.affected, "now": self._now(now)}).all()[0][0])

    def add_to_action(self, tx: Transaction, action_id: int, affected: int) -> None:
        tx.run(self._sql["add_to_action"], {"action": action_id, "affected": affected})

    def list_actions(self, tx: Transaction, run_id: str | None, limit: int) -> list[ActionView]:
        statement = "list_actions" if run_id is None else "list_actions_of_run"
        return [ActionView(from_number(at), *rest) for at, *rest in tx.run(self._sql[statement], {"run": run_id, "limit": limit}).all()]
