"""The native engine's parts on one SQLite file, put together. Nothing is opened before it is used."""

import os

from outlast.clock import Clock
from outlast.database.sqlite import Journal, SqliteDatabase
from outlast.decisions.sqlite import SqliteDecisionStore
from outlast.ledger.sqlite import SqliteLedgerStore
from outlast.native.backend import Backend

from .examiner import SqliteExaminer
from .keeping import Keeping
from .liveness import SqliteLiveness
from .schema import SqliteSchema
from .store import SqliteStore
from .wakes import SqliteWakes


def sqlite_backend(path: str | os.PathLike[str], *, journal: Journal = "auto", clock: Clock | None = None) -> Backend:
    """Return the backend on the file at `path`."""
    database = SqliteDatabase(path, journal=journal, clock=clock)
    return Backend(
        database=database,
        schema=SqliteSchema(database),
        store=SqliteStore(clock),
        ledger=SqliteLedgerStore(clock),
        decisions=SqliteDecisionStore(clock),
        keeping=Keeping(),
        liveness=SqliteLiveness(database.path),
        wakes=SqliteWakes(database.path),
        examiner=lambda: SqliteExaminer(database.path, clock),
    )
