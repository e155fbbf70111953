"""Commits whose outcome is in doubt, on a server of our own that waits for a standby which never comes."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from outlast.database.postgres import PostgresDatabase
from outlast.errors import CommitUnknownError
from outlast.testing.postgres_server import PostgresServer

from .postgres_world import WAIT


@pytest.fixture
def lonely_server() -> Iterator[PostgresServer]:
    """A server that confirms a commit only when a standby has it, and has none."""
    with PostgresServer(is_private=True, settings={"fsync": "off", "synchronous_standby_names": "nobody"}) as server:
        yield server


def write(database: PostgresDatabase) -> None:
    with database.transaction() as tx:
        tx.run("INSERT INTO thing VALUES (1)")


def test_a_commit_that_no_standby_confirmed_is_unknown(lonely_server: PostgresServer) -> None:
    """The server says COMMIT with a mere warning when its wait is cut short; it is not taken for a promise."""
    url = lonely_server.url("postgres")
    with psycopg.connect(url, autocommit=True) as other:
        other.execute("SET synchronous_commit = local")
        other.execute("CREATE TABLE thing (id bigint)")
        database = PostgresDatabase(url)
        with ThreadPoolExecutor(1) as pool:
            written = pool.submit(write, database)
            for _ in range(100_000):
                waiting = other.execute("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'").fetchall()
                if waiting:
                    break
            assert waiting == [(True,)], "nobody came to wait for the standby"
            with pytest.raises(CommitUnknownError, match="standby"):
                written.result(WAIT)
        database.close()
        assert other.execute("SELECT id FROM thing").fetchall() == [(1,)]
