"""The schema on PostgreSQL: made once by callers at once, never altered unasked, refused where it does not fit."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta

import psycopg
import pytest

from outlast.database.migrations import load_migrations
from outlast.database.postgres import PostgresDatabase
from outlast.errors import SchemaError, UsageError
from outlast.native.postgres import schema as module
from outlast.native.postgres.schema import PostgresSchema

from .postgres_world import WAIT


@pytest.fixture
def database(postgres_url: str) -> Iterator[PostgresDatabase]:
    database = PostgresDatabase(postgres_url)
    yield database
    database.close()


def test_callers_at_once_make_it_once(postgres_url: str) -> None:
    """Six processes that start on an empty database all go on, and each migration was applied by exactly one of them."""
    databases = [PostgresDatabase(postgres_url) for _ in range(6)]
    with ExitStack() as stack:
        for database in databases:
            stack.callback(database.close)
        applied = migrate_at_once(databases)
    assert sorted(applied) == [migration.name for migration in load_migrations("outlast.native.postgres")]


def migrate_at_once(databases: list[PostgresDatabase]) -> list[str]:
    gate = threading.Barrier(6)

    def migrate(database: PostgresDatabase) -> list[str]:
        gate.wait(WAIT)
        schema = PostgresSchema(database)
        applied = schema.migrate()
        schema.check()
        return applied

    with ThreadPoolExecutor(6) as pool:
        return [name for names in pool.map(migrate, databases) for name in names]


def test_a_missing_schema_is_made_only_if_asked_for(database: PostgresDatabase) -> None:
    """False makes nothing and says what to run; the default makes it; both then find it."""
    schema = PostgresSchema(database)
    with pytest.raises(SchemaError, match="outlast migrate"):
        schema.ensure(False)
    schema.ensure("create")
    schema.ensure(False)
    schema.ensure(True)
    assert schema.migrate() == []


def test_an_older_schema_is_not_altered_unasked(database: PostgresDatabase, postgres_url: str) -> None:
    """The default refuses an old schema instead of upgrading it beside code that still runs."""
    schema = PostgresSchema(database)
    schema.ensure("create")
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("UPDATE outlast.meta SET version = 0")
    with pytest.raises(SchemaError, match="version 0"):
        schema.ensure("create")


def test_code_of_version_1_works_beside_the_second_migration(database: PostgresDatabase, postgres_url: str) -> None:
    """A schema of version 1 is upgraded only when asked, keeps its rows, allows the older code, and takes what that code writes."""
    schema = PostgresSchema(database)
    schema._apply(load_migrations("outlast.native.postgres")[0])
    written = "INSERT INTO outlast.action (at, actor, action, run, reason) VALUES (now(), 'ann', 'retry', NULL, 'why not')"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(written)
        with pytest.raises(SchemaError, match="run `outlast migrate`"):
            schema.ensure("create")
        schema.ensure(True)
        assert connection.execute("SELECT oldest_code FROM outlast.meta").fetchall() == [(1,)]
        connection.execute(written)
        assert connection.execute("SELECT actor, queue, affected FROM outlast.action").fetchall() == [("ann", None, None)] * 2


def test_a_schema_that_is_too_new_is_refused(database: PostgresDatabase, postgres_url: str) -> None:
    """Code that is older than `oldest_code` stops, and a newer version that still allows it does not."""
    schema = PostgresSchema(database)
    schema.ensure("create")
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("UPDATE outlast.meta SET version = 99")
        schema.check()
        connection.execute("UPDATE outlast.meta SET oldest_code = 99")
    with pytest.raises(SchemaError, match="deploy newer code"):
        schema.check()


def test_an_unknown_mode_is_a_mistake(database: PostgresDatabase) -> None:
    """A word that means nothing is refused and not taken for yes."""
    with pytest.raises(UsageError):
        PostgresSchema(database).ensure("creat")


def test_the_script_makes_the_same_schema(database: PostgresDatabase, postgres_url: str) -> None:
    """What an application runs with its own migration tool is what `migrate` does."""
    schema = PostgresSchema(database)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(schema.script())
    schema.ensure(False)
    assert schema.migrate() == []


def test_a_migration_waits_for_another_and_then_gives_up_with_a_reason(database: PostgresDatabase, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting has a bound, and nothing was made."""
    monkeypatch.setattr(module, "ENQUEUE_TIMEOUT", timedelta(seconds=1))
    with psycopg.connect(postgres_url) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s)", [module._SCHEMA_LOCK])
        with pytest.raises(SchemaError, match="waited"):
            PostgresSchema(database).migrate()
        other.rollback()
    with pytest.raises(SchemaError):
        PostgresSchema(database).check()
