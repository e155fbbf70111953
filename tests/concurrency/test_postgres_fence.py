"""The fence between a worker's open transactions and whoever ends the worker, on two real connections."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from outlast.database.transaction import Refusal, RefusedError
from outlast.errors import LeaseLostError

from .postgres_world import WAIT, World, finish, opened, record


@pytest.fixture
def world(postgres_url: str) -> Iterator[World]:
    with opened(postgres_url) as world:
        yield world


def end_worker(world: World, worker_id: int) -> bool:
    with world.database.transaction() as tx:
        return world.store.end_worker(tx, worker_id, "dead")


def wait_until_blocked(url: str) -> None:
    """Return when some session waits for an advisory lock."""
    with psycopg.connect(url, autocommit=True) as connection:
        for _ in range(10_000):
            if connection.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted").fetchone() != (0,):
                return
    pytest.fail("nobody came to wait for the advisory lock")


def test_who_ends_a_worker_waits_for_its_open_flush(world: World, postgres_url: str) -> None:
    """A flush that passed the fence commits in full before its worker is ended, so that no taker misses what it wrote."""
    worker_id = world.worker()
    (run,) = world.claim(worker_id, world.accept())
    with ThreadPoolExecutor(1) as pool:
        with world.database.transaction() as tx:
            world.store.fence(tx, worker_id)
            refused = world.store.commit_checkpoints(tx, [record(run.hold), finish(run.hold)])
            tx.run("SELECT 1").all()
            ended = pool.submit(end_worker, world, worker_id)
            wait_until_blocked(postgres_url)
            assert not ended.done()
        assert ended.result(WAIT) is True
    assert refused() == []
    assert world.status(run.id) == "succeeded"


def test_a_flush_after_the_end_of_its_worker_is_void(world: World) -> None:
    """Once a worker was ended nothing of its later flush is there, and it is told that its lease is lost."""
    worker_id = world.worker()
    (run,) = world.claim(worker_id, world.accept())
    assert end_worker(world, worker_id)
    with pytest.raises(LeaseLostError), world.database.transaction() as tx:
        world.store.fence(tx, worker_id)
        world.store.commit_checkpoints(tx, [record(run.hold), finish(run.hold)])
    assert world.status(run.id) == "running"
    with world.database.reading() as tx:
        assert world.store.list_steps(tx, run.id) == []


def test_a_claim_after_the_end_of_its_worker_is_void(world: World) -> None:
    """A worker that was ended claims nothing, although it did not know when it began."""
    worker_id = world.worker()
    run_ids = world.accept()
    assert end_worker(world, worker_id)
    with pytest.raises(LeaseLostError):
        world.claim(worker_id, run_ids)
    assert world.status(run_ids[0]) == "pending"


def test_the_fence_sees_an_end_that_was_committed_while_it_waited(world: World, postgres_url: str) -> None:
    """The fence reads the worker after it has the lock: with the snapshot from before, it would let the flush through."""
    worker_id = world.worker()
    (run,) = world.claim(worker_id, world.accept())

    def flush() -> None:
        with world.database.transaction() as tx:
            tx.run("SELECT set_config('lock_timeout', '10s', true)")
            world.store.fence(tx, worker_id)
            world.store.commit_checkpoints(tx, [finish(run.hold)])

    with ThreadPoolExecutor(1) as pool:
        with world.database.transaction() as tx:
            assert world.store.end_worker(tx, worker_id, "dead")
            flushed = pool.submit(flush)
            wait_until_blocked(postgres_url)
        with pytest.raises(LeaseLostError):
            flushed.result(WAIT)
    assert world.status(run.id) == "running"


def test_a_flush_behind_a_stranger_fails_as_busy_within_its_lock_time_out(world: World, postgres_url: str) -> None:
    """A group never waits for whoever holds one of its rows: it fails soon, and nothing of it is there."""
    worker_id = world.worker()
    first, second = world.claim(worker_id, world.accept(2))
    with psycopg.connect(postgres_url) as stranger:
        stranger.execute("SELECT FROM outlast.run WHERE id = %s FOR UPDATE", [second.id])
        before = world.database.now()
        with pytest.raises(RefusedError) as raised, world.database.transaction() as tx:
            world.store.fence(tx, worker_id)
            world.store.commit_checkpoints(tx, [finish(first.hold), finish(second.hold)])
        assert raised.value.refusal is Refusal.BUSY
        assert (world.database.now() - before).total_seconds() < 1.5  # the time-out is 0.1 s, and never one of seconds
        stranger.rollback()
    assert [world.status(run.id) for run in (first, second)] == ["running", "running"]


def test_flushes_of_one_worker_do_not_wait_for_each_other(world: World) -> None:
    """The fence is shared: a second connection of the same worker passes while the first one's transaction is open."""
    worker_id = world.worker()
    passed = threading.Event()

    def pass_the_fence() -> None:
        with world.database.transaction() as tx:
            world.store.fence(tx, worker_id)
        passed.set()

    with ThreadPoolExecutor(1) as pool, world.database.transaction() as tx:
        world.store.fence(tx, worker_id)
        tx.run("SELECT 1").all()
        pool.submit(pass_the_fence)
        assert passed.wait(WAIT), "the second transaction did not pass the fence"
