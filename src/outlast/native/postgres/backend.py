"""The native engine's parts on one PostgreSQL database, put together. Nothing is connected before it is used."""

from outlast.database.postgres import PostgresDatabase
from outlast.decisions.postgres import PostgresDecisionStore
from outlast.ledger.postgres import PostgresLedgerStore
from outlast.limits import CONNECTIONS_MAX
from outlast.native.backend import Backend

from .examiner import PostgresExaminer
from .keeping import Keeping
from .liveness import PostgresLiveness
from .parameters import PREPARED
from .schema import PostgresSchema
from .store import PostgresStore
from .wakes import PostgresWakes


def postgres_backend(url: str, *, direct_url: str | None = None, connections: int = CONNECTIONS_MAX, role: str = "") -> Backend:
    """Return the backend on the database at `url`. `direct_url` reaches the server itself where `url` goes through a pooler."""
    database = PostgresDatabase(url, direct_url=direct_url, connections=connections, role=role, prepared=PREPARED)
    return Backend(
        database=database,
        schema=PostgresSchema(database),
        store=PostgresStore(),
        ledger=PostgresLedgerStore(),
        decisions=PostgresDecisionStore(),
        keeping=Keeping(),
        liveness=PostgresLiveness(database),
        wakes=PostgresWakes(database),
        examiner=lambda: PostgresExaminer(url, direct_url=direct_url, connections=connections),
    )
