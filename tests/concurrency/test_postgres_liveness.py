"""Proofs of life on PostgreSQL: a session's lock that ends with its process, seen from another connection."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import psycopg
import pytest

from outlast.errors import UnavailableError
from outlast.ids import process_nonce
from outlast.native.postgres import postgres_backend
from outlast.native.postgres.liveness import PostgresLiveness
from outlast.native.postgres.parameters import SQL
from outlast.native.store import WorkerRow

from .postgres_world import World, opened

CUT = """SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
    WHERE application_name LIKE '%lock' AND datname = current_database()"""
LOCKS = "SELECT FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"


@pytest.fixture
def world(postgres_url: str) -> Iterator[World]:
    with opened(postgres_url) as world:
        yield world


@pytest.fixture
def watcher(postgres_url: str) -> Iterator[PostgresLiveness]:
    backend = postgres_backend(postgres_url)
    liveness = backend.liveness
    assert isinstance(liveness, PostgresLiveness)
    yield liveness
    liveness.close()
    backend.database.close()


def row(world: World, worker_id: int) -> WorkerRow:
    with world.database.reading() as tx:
        return next(row for row in world.store.list_workers(tx, only_alive=False) if row.id == worker_id)


def cut_lock_connection(url: str) -> None:
    """End every session that holds a worker's lock and wait until they are gone."""
    with psycopg.connect(url, autocommit=True) as connection:
        ended = connection.execute(CUT)
        assert ended.fetchall() == [(True,)]


def test_the_lock_is_free_when_its_session_ended(world: World, watcher: PostgresLiveness, postgres_url: str) -> None:
    """Held while the worker's session lives, free once it was cut, and the worker notices that it lost it."""
    worker_id = world.worker()
    worker = row(world, worker_id)
    world.backend.liveness.hold(worker_id)
    assert (watcher.is_free(worker), world.backend.liveness.is_held(worker_id)) == (False, True)
    cut_lock_connection(postgres_url)
    assert (watcher.is_free(worker), world.backend.liveness.is_held(worker_id)) == (True, False)


def test_a_lost_lock_is_taken_again(world: World, watcher: PostgresLiveness, postgres_url: str) -> None:
    """After its connection was cut a worker that lives holds its lock again by asking for it."""
    worker_id = world.worker()
    world.backend.liveness.hold(worker_id)
    cut_lock_connection(postgres_url)
    assert not world.backend.liveness.is_held(worker_id)
    world.backend.liveness.hold(worker_id)
    assert world.backend.liveness.is_held(worker_id)
    assert not watcher.is_free(row(world, worker_id))


def test_a_released_lock_is_free(world: World, watcher: PostgresLiveness) -> None:
    """A worker that stopped leaves nothing behind; releasing again is nothing."""
    worker_id = world.worker()
    world.backend.liveness.hold(worker_id)
    world.backend.liveness.release(worker_id)
    world.backend.liveness.release(worker_id)
    assert watcher.is_free(row(world, worker_id))
    assert not world.backend.liveness.is_held(worker_id)


def test_a_lock_is_held_by_one(world: World, watcher: PostgresLiveness) -> None:
    """A second session cannot take the lock while the first one lives."""
    worker_id = world.worker()
    world.backend.liveness.hold(worker_id)
    with pytest.raises(UnavailableError, match="older session"):
        watcher.hold(worker_id)


def test_watchers_who_look_at_once_do_not_see_each_other(world: World, watcher: PostgresLiveness, postgres_url: str) -> None:
    """A look is shared: another watcher's look under way does not make a dead worker look alive."""
    worker_id = world.worker()
    with psycopg.connect(postgres_url) as other:
        other.execute("SELECT pg_try_advisory_xact_lock_shared(-(%s::bigint))", [worker_id])
        assert watcher.is_free(row(world, worker_id))
        other.rollback()


def test_a_watcher_s_listing_looks_at_the_locks(world: World, watcher: PostgresLiveness) -> None:
    """One statement reads the beats and then the locks, of those whose lock means something; nobody else's listing touches them."""
    held, free, unprovable = (world.worker() for _ in range(3))
    world.backend.liveness.hold(held)
    with world.database.transaction() as tx:
        world.store.renew_worker(tx, unprovable, is_provable=False)
    with world.database.reading() as tx:
        rows = world.store.list_workers(tx, only_alive=True, counts_runs=False)
        assert {row.id: row.is_lock_free for row in rows} == {held: False, free: True, unprovable: None}
        statements = len(tx.run(LOCKS).all())
        assert watcher.find_free(tx, [row for row in rows if row.is_provable]) == {free}
        assert len(tx.run(LOCKS).all()) == statements
    assert row(world, free).is_lock_free is None


def test_soon_after_a_restart_nothing_is_proven(world: World, watcher: PostgresLiveness) -> None:
    """A free lock of a worker that lived through a restart means nothing until the server has been up for longer than its lease."""
    fresh = row(world, world.worker(lease=timedelta(days=3650)))
    survivor = replace(fresh, started_at=fresh.started_at - timedelta(days=3650))
    assert watcher.is_proof_possible(fresh)
    assert not watcher.is_proof_possible(survivor)
    assert watcher.is_proof_possible(replace(survivor, lease=timedelta(milliseconds=1)))


def test_a_worker_of_this_process_is_not_probed(world: World, watcher: PostgresLiveness) -> None:
    """Its lock could be free for any number of reasons while its process, which asks, plainly lives."""
    assert not watcher.is_proof_possible(replace(row(world, world.worker(lease=timedelta(milliseconds=1))), process=process_nonce()))


def test_through_a_pooler_there_is_no_lock_to_hold(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """When another server process answers than the one that was connected to, the reason names what to set."""
    monkeypatch.setitem(SQL, "find_backend", "SELECT 0")
    with pytest.raises(UnavailableError, match="direct_url"):
        world.backend.liveness.hold(world.worker())
