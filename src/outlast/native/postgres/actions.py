"""Actions: who did what through `Operator`, and why."""

from datetime import datetime

from outlast.database.transaction import Transaction
from outlast.inspector import ActionView
from outlast.native.upkeep import NewAction

from .parameters import SQL


def record_action(tx: Transaction, action: NewAction, now: datetime | None) -> int:
    row = {"action": action.action, "actor": action.actor, "reason": action.reason, "run": action.run_id, "queue": action.queue}
    return int(tx.run(SQL["insert_action"], {**row, "affected": action.affected, "now": now}).all()[0][0])


class Actions:
    """The part of the store that keeps what operators did."""

    def record_action(self, tx: Transaction, action: NewAction, now: datetime | None = None) -> int:
        return record_action(tx, action, now)

    def add_to_action(self, tx: Transaction, action_id: int, affected: int) -> None:
        tx.run(SQL["add_to_action"], {"action": action_id, "affected": affected})

    def list_actions(self, tx: Transaction, run_id: str | None, limit: int) -> list[ActionView]:
        return [ActionView(*row) for row in tx.run(SQL["list_actions"], {"run": run_id, "limit": limit}).all()]
