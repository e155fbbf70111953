"""Keeping: a record that is written in a transaction of the application's, in the engine's own tables on SQLite."""

from collections.abc import Sequence

from outlast.database.statements import load_statements
from outlast.database.transaction import Ask, Dialect
from outlast.native.encoding import batch_to_json
from outlast.native.history import ASKING
from outlast.native.store import Hold, StepCheckpoint

from .committing import key_row, step_row

_SQL = load_statements("outlast.native.sqlite")


class Keeping:
    """See `outlast.native.keeping.Keeping`."""

    dialect = Dialect.SQLITE

    def has_schema(self) -> Ask:
        return Ask(_SQL["has_meta"], {})

    def find_identity(self) -> Ask:
        return Ask(_SQL["find_identity"], {})

    def hold(self, hold: Hold, generation: int) -> Ask:
        return Ask(_SQL["hold_run"], {"run": hold.run_id, "token": hold.token, "generation": generation})

    def keep(self, checkpoint: StepCheckpoint) -> Sequence[Ask]:
        kept = [Ask(_SQL["insert_records"], {"batch": batch_to_json([step_row(checkpoint)])})]
        if checkpoint.was_open and checkpoint.record.kind in ASKING:
            named = {"batch": batch_to_json([key_row(checkpoint, checkpoint.record.key)])}
            kept += [Ask(_SQL["delete_heard"], named), Ask(_SQL["delete_ended_waits"], named)]
        if checkpoint.was_open:
            kept.append(Ask(_SQL["delete_ended_activity"], {"batch": batch_to_json([key_row(checkpoint, checkpoint.record.key)])}))
        return kept
