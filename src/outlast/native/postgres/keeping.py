"""Keeping: a record that is written in a transaction of the application's, in the engine's own tables on PostgreSQL."""

from collections.abc import Sequence

from outlast.database.transaction import Ask, Dialect
from outlast.native.encoding import batch_to_json
from outlast.native.history import ASKING
from outlast.native.store import Hold, StepCheckpoint

from .committing import place_columns, step_columns
from .parameters import SQL


class Keeping:
    """See `outlast.native.keeping.Keeping`."""

    dialect = Dialect.POSTGRESQL

    def has_schema(self) -> Ask:
        return Ask(SQL["has_meta"], {})

    def find_identity(self) -> Ask:
        return Ask(SQL["find_identity"], {})

    def hold(self, hold: Hold, generation: int) -> Ask:
        return Ask(SQL["hold_run"], {"run": hold.run_id, "token": hold.token, "generation": generation})

    def keep(self, checkpoint: StepCheckpoint) -> Sequence[Ask]:
        kept = [Ask(SQL["insert_records"], {"batch": batch_to_json([step_columns(checkpoint)])})]
        if checkpoint.was_open and checkpoint.record.kind in ASKING:
            kept.append(Ask(SQL["delete_heard"], {"batch": batch_to_json([place_columns(checkpoint)])}))
        if checkpoint.was_open:
            kept.append(Ask(SQL["close_calls"], {"batch": batch_to_json([place_columns(checkpoint)])}))
        return kept
