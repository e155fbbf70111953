"""Statements that a session keeps: prepared once, used on through errors, given up where a pooler shares sessions out."""

import asyncio
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from outlast.database.postgres import PostgresDatabase
from outlast.database.postgres.loop_transaction import _numbered
from outlast.database.transaction import RefusedError
from outlast.errors import UnavailableError
from outlast.native.postgres.parameters import PREPARED

from .pooler_stand_in import PoolerStandIn
from .postgres_world import opened

ADD = "INSERT INTO thing VALUES (%(id)s::bigint)"
NAMES = "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE 'INSERT INTO thing%%'"
SETTINGS = ("enable_hashjoin", "enable_mergejoin", "enable_seqscan", "enable_bitmapscan", "enable_material")


@pytest.fixture
def database(postgres_url: str) -> Iterator[PostgresDatabase]:
    database = PostgresDatabase(postgres_url, connections=1, prepared={ADD})
    with database.transaction() as tx:
        tx.run("CREATE TABLE thing (id bigint PRIMARY KEY)")
    add(database)  # the first transaction finds out whose the session is
    yield database
    database.close()


def add(database: PostgresDatabase, *ids: int, after: str = "SELECT 1") -> Any:
    """Add things in one transaction that the loop drives, and return what its last statement says."""

    async def write() -> Any:
        opened = database.on_loop()
        assert opened is not None, "the connection was not given back"
        async with opened as tx:
            for each in ids:
                tx.run(ADD, {"id": each})
            said = tx.run(after)
        return said.first()

    return asyncio.run(asyncio.wait_for(write(), 60))


def test_a_statement_is_prepared_once_and_used_again(database: PostgresDatabase) -> None:
    """Also when one transaction runs it twice before the session has said that it has it."""
    assert add(database, 1, 2, after=NAMES) == (1,)
    assert add(database, 3, after=NAMES) == (1,)
    assert add(database, after="SELECT count(*) FROM thing") == (3,)


def test_what_was_prepared_outlives_an_error(database: PostgresDatabase) -> None:
    """A transaction that was undone leaves the statement where it was prepared before the error, and none where it came after."""
    with pytest.raises(RefusedError, match="division"):
        add(database, after="SELECT 1 / 0")
    with pytest.raises(RefusedError, match="duplicate"):
        add(database, 1, 1)
    assert add(database, 1, after=NAMES) == (1,)


def test_a_statement_behind_an_error_is_prepared_the_next_time(database: PostgresDatabase) -> None:
    """The server skips what follows an error, and so the session does not have it."""

    async def write() -> None:
        opened = database.on_loop()
        assert opened is not None, "the connection was not given back"
        async with opened as tx:
            tx.run("SELECT 1 / 0")
            tx.run(ADD, {"id": 1})

    with pytest.raises(RefusedError, match="division"):
        asyncio.run(asyncio.wait_for(write(), 60))
    assert add(database, 1, after=NAMES) == (1,)


def test_a_session_that_lost_what_was_prepared_is_used_without(database: PostgresDatabase) -> None:
    """It is said once as something that passes, and nothing is prepared any more; nothing of that transaction is there."""
    add(database, 1)
    with database.transaction() as tx:
        tx.run("DEALLOCATE ALL")
    with pytest.raises(UnavailableError, match="prepared"):
        add(database, 2)
    assert add(database, 2, after=NAMES) == (0,)


def test_nothing_is_prepared_behind_a_pooler(database: PostgresDatabase, postgres_url: str) -> None:
    """The next transaction may have another session of the server."""
    with PoolerStandIn(postgres_url) as pooler:
        pooled = PostgresDatabase(pooler.url, connections=1, prepared={ADD})
        with pooled.transaction() as tx:
            tx.run("SELECT 1")
        assert add(pooled, 1, after=NAMES) == (0,)
        assert add(pooled, 2, after=NAMES) == (0,)
        pooled.close()


def test_a_plan_that_is_kept_reads_by_key_whatever_the_tables_hold(postgres_url: str) -> None:
    """It may have been made when a table had one row, and serve when it has a million."""
    with opened(postgres_url), psycopg.connect(postgres_url, autocommit=True, prepare_threshold=None) as connection:
        for filled in (False, True):
            if filled:
                connection.execute(
                    "INSERT INTO outlast.run (id, lane, kind, version, priority, status, due_at, created_at) "
                    "SELECT gen_random_uuid(), 1, 'kind', 1, 0, 'running', now(), now() FROM generate_series(1, 2)"
                )
            connection.execute("ANALYZE")
            for setting in SETTINGS:
                connection.execute(f"SET {setting} = off")
            connection.execute("SET plan_cache_mode = force_generic_plan")
            for sql in PREPARED:
                text, names = _numbered(sql)
                connection.execute(b"PREPARE kept AS " + text)
                plan = [line for (line,) in connection.execute(f"EXPLAIN EXECUTE kept({', '.join(['NULL'] * len(names))})")]
                connection.execute("DEALLOCATE kept")
                reads = [plan[number : number + 2] for number, line in enumerate(plan) if "Scan using" in line or "Seq Scan" in line]
                assert all("Index Cond" in lines[-1] for lines in reads), "\n".join(plan)
