"""Ending: the one place that makes a run terminal, with all that follows from it in the same transaction."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from outlast.database.transaction import Transaction
from outlast.failure import Failure
from outlast.native.encoding import batch_to_json, failure_to_json
from outlast.native.store import Hold
from outlast.run import RunStatus
from outlast.step_key import StepKey

from .tables import Tables


@dataclass(frozen=True, slots=True)
class End:
    """A run that is to end, and in which state it has to be found for that."""

    hold: Hold
    status: RunStatus
    is_held: bool
    """Found `running`; else `pending` or `waiting`, or with `is_over` a dead letter."""
    has_key: bool = True
    """False only if it is known that no idempotency key belongs to the run."""
    attempts: int | None = None
    output: str | None = None
    error: Failure | None = None
    failed_key: StepKey | None = None
    verdict: str | None = None
    passes_cancel: bool = True
    is_over: bool = False
    """Found `failed` or `dead`: an operator discards it, and what it failed with stays."""
    may_have_asked: bool = False
    """A question of it may be open although it succeeded: its body gave it up."""


class Ending(Tables):
    """The part of the store that makes runs terminal."""

    def _end(self, tx: Transaction, ends: Sequence[End], now: int) -> set[Hold]:
        """End runs, and return the holds of those that were found as said."""
        if not ends:
            return set()
        rows = tx.run(self._sql["end_runs"], {"batch": batch_to_json([_state_row(end) for end in ends]), "now": now}).all()
        ended = {Hold(*row) for row in rows}
        self._keep_ends(tx, [end for end in ends if not end.is_over and end.hold in ended])
        if keyed := [end.hold.run_id for end in ends if end.has_key and end.hold in ended]:
            tx.run(self._sql["end_keys"], {"run_ids": batch_to_json(keyed)})
        if ended:
            run_ids = {"run_ids": batch_to_json(sorted(hold.run_id for hold in ended))}
            tx.run(self._sql["delete_waits"], run_ids)
            tx.run(self._sql["delete_activity"], run_ids)
        if asking := sorted(end.hold.run_id for end in ends if (end.may_have_asked or end.status is not RunStatus.SUCCEEDED) and end.hold in ended):
            run_ids = {"run_ids": batch_to_json(asking)}
            tx.run(self._sql["withdraw_decisions"], {**run_ids, "now": now})
            tx.run(self._sql["delete_signals"], run_ids)
        return ended

    def _keep_ends(self, tx: Transaction, ends: Sequence[End]) -> None:
        if ends:
            tx.run(self._sql["keep_ends"], {"batch": batch_to_json([_end_row(end) for end in ends])})

    def _retire(self, tx: Transaction, run_id: str, generation: int, key: StepKey) -> None:
        """Move a failed record among the failed attempts, which then count against nothing; its step begins afresh."""
        named = {"run": run_id, "generation": generation, "path": key.path_text, "name": key.name, "number": key.number}
        tx.run(self._sql["retire_failures"], named)
        tx.run(self._sql["retire_record"], named)
        if (row := tx.run(self._sql["delete_record"], named).first()) is not None:
            tx.run(self._sql["delete_withdrawals"], {"run": run_id, "generation": generation, "seq": row[0]})
            tx.run(self._sql["note_retired_seq"], {"run": run_id, "seq": row[0]})


def _state_row(end: End) -> dict[str, Any]:
    return {
        "run": end.hold.run_id,
        "token": end.hold.token,
        "is_held": end.is_held,
        "status": end.status,
        "attempts": end.attempts,
        "passes_cancel": end.passes_cancel,
        "is_over": end.is_over,
    }


def _end_row(end: End) -> dict[str, Any]:
    return {
        "run": end.hold.run_id,
        "output": end.output,
        "error": failure_to_json(end.error),
        "failed_path": end.failed_key and end.failed_key.path_text,
        "failed_name": end.failed_key and end.failed_key.name,
        "failed_number": end.failed_key and end.failed_key.number,
        "verdict": end.verdict,
    }
