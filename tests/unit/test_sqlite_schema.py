"""The schema on SQLite: made when missing, altered only when asked, and refused when it does not fit."""

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from outlast.database.migrations import load_migrations
from outlast.database.sqlite import SqliteDatabase
from outlast.errors import SchemaError
from outlast.native.sqlite.schema import CODE_VERSION, SqliteSchema


@pytest.fixture
def database(tmp_path: Path) -> Iterator[SqliteDatabase]:
    database = SqliteDatabase(tmp_path / "x.db")
    yield database
    database.close()


def tables(database: SqliteDatabase) -> set[str]:
    with database.reading() as tx:
        return {name for (name,) in tx.run("SELECT name FROM sqlite_schema WHERE type = 'table'").all()}


def set_versions(database: SqliteDatabase, version: int, oldest_code: int) -> None:
    with database.transaction() as tx:
        tx.run("UPDATE outlast_meta SET version = :version, oldest_code = :oldest_code", {"version": version, "oldest_code": oldest_code})


def test_a_missing_schema_is_made_once(database: SqliteDatabase) -> None:
    """`create` makes the tables, and again does nothing."""
    schema = SqliteSchema(database)
    schema.ensure("create")
    schema.ensure("create")
    schema.check()
    assert {"outlast_run", "outlast_run_step", "outlast_worker"} <= tables(database)
    assert schema.migrate() == []


def test_nothing_is_made_unasked(database: SqliteDatabase) -> None:
    """`False` makes no table and names the remedy."""
    with pytest.raises(SchemaError, match="outlast migrate"):
        SqliteSchema(database).ensure(False)
    assert tables(database) == set()


def test_a_migration_is_named(database: SqliteDatabase) -> None:
    """What was applied is told by name, in the order of the numbers."""
    assert SqliteSchema(database).migrate() == [migration.name for migration in load_migrations("outlast.native.sqlite")]


def test_a_schema_that_is_too_old_is_refused(database: SqliteDatabase) -> None:
    """Code does not work with tables that lack what it needs, and `create` does not alter them."""
    schema = SqliteSchema(database)
    schema.ensure("create")
    set_versions(database, 0, 0)
    with pytest.raises(SchemaError, match="run `outlast migrate`"):
        schema.ensure("create")


def test_code_of_version_1_works_beside_the_second_migration(database: SqliteDatabase) -> None:
    """A schema of version 1 is upgraded only when asked, keeps its rows, allows the older code, and takes what that code writes."""
    schema = SqliteSchema(database)
    first, *_ = load_migrations("outlast.native.sqlite")
    schema._apply(first.number, first.sql)
    written = "INSERT INTO outlast_action (at, actor, action, run, reason) VALUES (1, 'ann', 'retry', 'r1', 'why not')"
    with database.transaction() as tx:
        tx.run(written)
    with pytest.raises(SchemaError, match="run `outlast migrate`"):
        schema.ensure("create")
    schema.ensure(True)
    with database.transaction() as tx:
        assert tx.run("SELECT oldest_code FROM outlast_meta").all() == [(1,)]
        tx.run(written)
        assert tx.run("SELECT actor, queue, affected FROM outlast_action").all() == [("ann", None, None)] * 2


def test_code_that_is_too_old_is_refused(database: SqliteDatabase) -> None:
    """A schema that older code would spoil refuses it, also while it runs."""
    schema = SqliteSchema(database)
    schema.ensure("create")
    set_versions(database, CODE_VERSION + 2, CODE_VERSION + 1)
    with pytest.raises(SchemaError, match="deploy"):
        schema.check()


def test_a_newer_schema_may_allow_older_code(database: SqliteDatabase) -> None:
    """A rolling deploy goes on across a migration that older code survives."""
    schema = SqliteSchema(database)
    schema.ensure("create")
    set_versions(database, CODE_VERSION + 1, CODE_VERSION)
    schema.check()
    schema.ensure(True)


def test_a_failing_migration_leaves_nothing(database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    """A migration is applied whole or not at all."""
    schema = SqliteSchema(database)
    migration, *_ = load_migrations("outlast.native.sqlite")
    with pytest.raises(SchemaError):
        schema._apply(1, migration.sql + "\nINSERT INTO no_such_table VALUES (1);\n")
    assert tables(database) == set()


def test_the_script_makes_the_same_schema(database: SqliteDatabase, tmp_path: Path) -> None:
    """What is printed for the application's own migration tool gives the same tables, and fits this code."""
    schema = SqliteSchema(database)
    schema.migrate()
    other = sqlite3.connect(tmp_path / "other.db")
    other.executescript(schema.script())
    other.close()
    described = []
    for file in ("x.db", "other.db"):
        opened = SqliteDatabase(tmp_path / file)
        SqliteSchema(opened).check()
        with opened.reading() as tx:
            described.append(tx.run("SELECT type, name, sql FROM sqlite_schema ORDER BY type, name").all())
        opened.close()
    assert described[0] == described[1]


@pytest.mark.parametrize("name", ["0002_later", "0001_first"])
def test_a_gap_in_the_numbers_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Migrations count from 1, so that a lost file is noticed."""
    package: Callable[[str], Path] = lambda _name: tmp_path  # noqa: E731 - the shape of importlib's function
    (tmp_path / "migrations").mkdir()
    (tmp_path / "migrations" / f"{name}.sql").write_text("SELECT 1;\n")
    monkeypatch.setattr("outlast.database.migrations.files", package)
    if name == "0001_first":
        assert [migration.name for migration in load_migrations.__wrapped__("anything")] == [name]
    else:
        with pytest.raises(ValueError, match="without a gap"):
            load_migrations.__wrapped__("anything")
