"""The doctor on real PostgreSQL servers: each check is seen failing for a cause of its own, and nothing is changed."""

import asyncio
import itertools
import json
from datetime import datetime, timedelta

import psycopg
import pytest
from click.testing import CliRunner
from tests.concurrency.pooler_stand_in import PoolerStandIn
from tests.concurrency.postgres_world import LANE, World

from outlast.cli import main
from outlast.clock import SystemClock
from outlast.finding import Check, Level
from outlast.native.doctor import examine, growth, snapshots
from outlast.native.postgres import examiner
from outlast.native.postgres.examiner import PostgresExaminer
from outlast.native.postgres.wakes import PostgresWakes
from outlast.testing.postgres_server import PostgresServer

OK, WARNING, PROBLEM, NOT_APPLICABLE = Level.OK, Level.WARNING, Level.PROBLEM, Level.NOT_APPLICABLE
ILL = {"fsync": "off", "full_page_writes": "off", "autovacuum": "off", "max_connections": "12", "idle_session_timeout": "600s"}

_numbers = itertools.count()


@pytest.fixture(scope="module")
def sound_server():
    """A server with settings as they should be."""
    with PostgresServer(is_private=True, settings={"max_prepared_transactions": "2", "autovacuum_naptime": "1d"}) as server:
        yield server


@pytest.fixture(scope="module")
def ill_server():
    """A server on which nothing is as it should be."""
    with PostgresServer(is_private=True, settings=ILL) as server:
        yield server


@pytest.fixture
def url(sound_server):
    """A new database without the tables."""
    return sound_server.create_database(f"doctor_{next(_numbers)}")


@pytest.fixture
def world(url):
    """A new database with the tables and one lane."""
    world = World(url)
    yield world
    world.close()


def findings(url, check=None, *, direct_url=None, tasks=(), **options):
    found = asyncio.run(examine(PostgresExaminer(url, direct_url=direct_url, connections=4), tasks, **options))
    return found if check is None else [finding for finding in found if finding.check is check]


def levels(url, check, **options):
    return [finding.level for finding in findings(url, check, **options)]


def only(url, check, **options):
    (finding,) = findings(url, check, **options)
    return finding


def execute(url, *statements):
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


def query(url, statement):
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(statement).fetchall()


def test_a_sound_database_has_no_finding(world):
    """Every check has its line, none of them is wrong, and the command says so."""
    world.worker()
    world.accept(3)
    found = findings(world.url)
    assert {finding.check for finding in found} == set(Check)
    assert [finding for finding in found if finding.level in (WARNING, PROBLEM)] == []
    assert [finding.check for finding in found if finding.level is NOT_APPLICABLE] == [Check.FILES, Check.GROWTH]
    done = CliRunner().invoke(main, ["doctor", "--database", world.url, "--json"])
    assert (done.exit_code, len(json.loads(done.output)["findings"])) == (0, len(found))


def test_nothing_is_changed(world):
    """Every row of every table is as it was."""
    world.worker()
    world.accept(3)
    tables = [name for (name,) in query(world.url, "SELECT tablename FROM pg_tables WHERE schemaname = 'outlast'")]

    def rows():
        return {table: query(world.url, f"SELECT t.xmin::text, t.ctid::text, t.* FROM outlast.{table} t ORDER BY 2") for table in tables}

    before = rows()
    findings(world.url, tasks={("greet", 1)})
    assert rows() == before


def test_before_the_first_migration_the_server_is_looked_at(url):
    """The missing tables are one problem; what needs them is left out, and nothing is made."""
    found = findings(url)
    assert [finding.check for finding in found if finding.level is PROBLEM] == [Check.SCHEMA]
    left_out = [Check.FILES, Check.CONNECTIONS, Check.PLAN, Check.SNAPSHOTS, Check.LANES, Check.GROWTH]
    assert [finding.check for finding in found if finding.level is NOT_APPLICABLE] == left_out
    assert query(url, "SELECT count(*) FROM pg_namespace WHERE nspname = 'outlast'") == [(0,)]


def test_a_server_with_every_fault_shows_them_all(ill_server):
    """fsync, torn pages, sessions that are ended, autovacuum, and a fleet that does not fit."""
    world = World(ill_server.create_database(f"doctor_{next(_numbers)}"))
    try:
        world.worker()
        world.worker()
        assert levels(world.url, Check.SETTINGS) == [PROBLEM, WARNING, WARNING]
        cleaning = only(world.url, Check.SNAPSHOTS)
        assert (cleaning.level, "is off: dead rows stay" in cleaning.message) == (WARNING, True)
        budget = only(world.url, Check.CONNECTIONS)
        assert (budget.level, "14 connections" in budget.message, "has 9" in budget.message) == (PROBLEM, True, True)
    finally:
        world.close()


@pytest.mark.parametrize(
    ("setting", "value"), [("synchronous_commit", "off"), ("default_transaction_isolation", "serializable"), ("idle_session_timeout", "1min")]
)
def test_a_setting_of_the_database_alone_is_seen(world, setting, value):
    """What a session really gets is asked for, not what the configuration file says."""
    name = world.url.rpartition("/")[2]
    execute(world.url, f"ALTER DATABASE {name} SET {setting} = '{value}'")
    found = only(world.url, Check.SETTINGS)
    assert (found.level, setting in found.message) == (WARNING, True)


@pytest.mark.parametrize(("change", "word"), [("version = 0", "outlast migrate"), ("oldest_code = 99, version = 99", "newer outlast")])
def test_a_schema_that_does_not_fit_is_a_problem(world, change, word):
    """Older than this code, or only for newer code."""
    execute(world.url, f"UPDATE outlast.meta SET {change}")
    found = only(world.url, Check.SCHEMA)
    assert (found.level, word in found.remedy) == (PROBLEM, True)


def test_a_pooler_is_seen_at_each_address(world):
    """At the address for listening it is a warning; with a direct one beside it, it is as it should be."""
    with PoolerStandIn(world.url) as pooler:
        assert levels(pooler.url, Check.POOLER) == [WARNING]
        assert levels(pooler.url, Check.POOLER, direct_url=world.url) == [OK]
        assert levels(world.url, Check.POOLER, direct_url=pooler.url) == [WARNING]
        assert "2 each" in only(pooler.url, Check.CONNECTIONS, direct_url=world.url).message
    assert levels(world.url, Check.POOLER) == [OK]


def test_a_direct_address_of_another_database_is_seen(world, sound_server, monkeypatch):
    """Wake-ups do not come back from there, and locks there prove nothing."""
    monkeypatch.setattr(examiner, "LISTENER_TEST_TIMEOUT", timedelta(milliseconds=300))
    elsewhere = sound_server.create_database(f"doctor_{next(_numbers)}")
    found = findings(world.url, direct_url=elsewhere)
    assert [(finding.check, finding.level) for finding in found if finding.remedy] == [(Check.POOLER, PROBLEM), (Check.LISTENER, WARNING)]
    other = World(sound_server.create_database(f"doctor_{next(_numbers)}"))
    other.close()
    assert levels(world.url, Check.POOLER, direct_url=other.url) == [PROBLEM]


def test_a_wake_up_that_is_lost_is_seen_although_the_listener_hears(world, monkeypatch):
    """What has to come back is the wake-up itself; that the listener's own tests arrive is not enough."""
    monkeypatch.setattr(examiner, "LISTENER_TEST_TIMEOUT", timedelta(seconds=2))
    monkeypatch.setattr(PostgresWakes, "send", lambda wakes, lanes=(), workers=(): None)
    assert levels(world.url, Check.LISTENER) == [WARNING]


@pytest.mark.parametrize(("seconds", "level"), [(5, WARNING), (-5, WARNING), (300, PROBLEM)])
def test_a_machine_with_another_time_is_seen(world, monkeypatch, seconds, level):
    """This machine's clock is moved, for the server's cannot be."""

    class Wrong(SystemClock):
        def now(self) -> datetime:
            return super().now() + timedelta(seconds=seconds)

    monkeypatch.setattr(examiner, "SystemClock", Wrong)
    found = only(world.url, Check.CLOCK)
    assert (found.level, ("ahead" if seconds > 0 else "behind") in found.message) == (level, True)


def test_a_claim_without_its_index_is_a_problem(world):
    """The statement that is planned is the very one that workers run, with their settings."""
    assert levels(world.url, Check.PLAN) == [OK]
    execute(world.url, "DROP INDEX outlast.run_claim")
    found = only(world.url, Check.PLAN)
    assert (found.level, "probe_lanes" in found.message) == (PROBLEM, True)


def test_an_invalid_index_is_a_problem(world):
    """As a CREATE INDEX CONCURRENTLY leaves it that was killed."""
    execute(world.url, "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'outlast.run_timer'::regclass")
    found = only(world.url, Check.PLAN)
    assert (found.level, "run_timer" in found.message) == (PROBLEM, True)


def test_a_snapshot_of_another_session_is_seen(world, monkeypatch):
    """By name and age, while it lasts."""
    monkeypatch.setattr(snapshots, "SNAPSHOT_AGE_WARNED", timedelta())
    with psycopg.connect(world.url, autocommit=True, application_name="a report") as other:
        other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        other.execute("SELECT count(*) FROM outlast.run")
        found = only(world.url, Check.SNAPSHOTS)
        assert (found.level, f"session {other.info.backend_pid} (a report)" in found.message) == (WARNING, True)
    assert levels(world.url, Check.SNAPSHOTS) == [OK]


def test_a_forgotten_prepared_transaction_is_seen(world, monkeypatch):
    """It holds back the removal of dead rows across restarts, and no session shows it."""
    monkeypatch.setattr(snapshots, "SNAPSHOT_AGE_WARNED", timedelta())
    execute(world.url, "BEGIN", "CREATE TABLE shop (id int)", "PREPARE TRANSACTION 'forgotten'")
    try:
        found = only(world.url, Check.SNAPSHOTS)
        assert (found.level, "prepared transaction forgotten" in found.message) == (WARNING, True)
    finally:
        execute(world.url, "ROLLBACK PREPARED 'forgotten'")


def test_dead_rows_are_seen(world, monkeypatch):
    """By the server's own counters."""
    monkeypatch.setattr(snapshots, "DEAD_ROWS_WARNED", 10)
    world.accept(20)
    with psycopg.connect(world.url, autocommit=True) as connection:
        for _ in range(5):
            connection.execute("UPDATE outlast.run SET priority = priority + 1")
        connection.execute("SELECT pg_stat_force_next_flush()")
    found = only(world.url, Check.SNAPSHOTS)
    assert (found.level, "dead rows beside" in found.message) == (WARNING, True)


def test_a_table_that_is_never_cleaned_is_seen(world):
    """Autovacuum can be off for one table alone."""
    execute(world.url, "ALTER TABLE outlast.run SET (autovacuum_enabled = off)")
    found = only(world.url, Check.SNAPSHOTS)
    assert (found.level, "autovacuum is off for run" in found.message) == (WARNING, True)


def test_runs_without_a_worker_are_a_problem(world):
    """Until a worker that has them lives."""
    world.accept(3)
    found = only(world.url, Check.LANES)
    assert (found.level, "greet v1" in found.message, "3 runs" in found.message) == (PROBLEM, True, True)
    world.worker()
    assert levels(world.url, Check.LANES) == [OK]
    assert levels(world.url, Check.LANES, tasks={(LANE.kind, 2)}) == [WARNING]
    assert levels(world.url, Check.LANES, tasks={(LANE.kind, 2), (LANE.kind, 1)}) == [OK]


def test_keys_and_outbox_are_measured(world, monkeypatch):
    """The size is the table's own; whether there is an outbox is asked of the catalogue."""
    monkeypatch.setattr(growth, "KEYS_BYTES_WARNED", 0)
    execute(world.url, "CREATE TABLE outlast.outbox_event (id bigint)")
    assert levels(world.url, Check.GROWTH) == [WARNING, WARNING]


def test_a_role_without_privileges_is_told_what_it_lacks(world):
    """What it may not read is a problem of that check, with the server's own words."""
    role = f"nobody_{next(_numbers)}"
    execute(world.url, f"CREATE ROLE {role} LOGIN")
    found = findings(world.url.replace("postgres@", f"{role}@"))
    assert [finding.check for finding in found if finding.level is PROBLEM] == [Check.SCHEMA, Check.CONNECTIONS, Check.PLAN, Check.LANES]
    assert all("permission denied" in finding.message for finding in found if finding.level is PROBLEM)
