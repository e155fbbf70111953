"""What only the SQLite store has: its plans, paused queues, the journal of actions, and what writes nothing."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast.database.statements import load_statements
from outlast.native.backend import Backend
from outlast.native.sqlite import sqlite_backend
from outlast.run import RunStatus
from outlast.testing.store_suite.world import START, World, after, end, step


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    backend: Backend = sqlite_backend(tmp_path / "outlast.db")
    backend.schema.ensure("create")
    yield World(backend)
    backend.database.close()


def plan(world: World, statement: str, **parameters: object) -> str:
    with world.writing() as tx:
        rows = tx.run(f"EXPLAIN QUERY PLAN {load_statements('outlast.native.sqlite')[statement]}", parameters).all()
    return "\n".join(detail for *_, detail in rows)


@pytest.mark.parametrize("statement", ["probe_lanes", "probe_priority", "list_priorities", "look"])
def test_probes_search_the_claim_index(world: World, statement: str) -> None:
    """A probe costs the same whatever else there is: it is a search in its index, without sorting."""
    asked = {"lane": 1, "priority": 0, "now": 0, "limit": 9, "with_suspects": True, "suspect_losses": 2, "lanes": "[1]"}
    text = plan(world, statement, **asked)
    assert "USING INDEX outlast_run_claim" in text
    assert "SCAN outlast_run" not in text
    assert "ORDER BY" not in text


@pytest.mark.parametrize(
    ("statement", "index"),
    [
        ("wake_due", "outlast_run_timer"),
        ("lock_overdue", "outlast_run_deadline"),
        ("list_flagged", "outlast_run_worker"),
        ("list_held", "outlast_run_worker"),
        ("list_orphans", "outlast_run_worker"),
    ],
)
def test_sweeps_read_their_index(world: World, statement: str, index: str) -> None:
    """A sweep is a search in an index that holds only what it may find."""
    text = plan(world, statement, now=0, limit=9, worker=1)
    assert index in text
    assert "SCAN outlast_run" not in text
    assert "SCAN run" not in text


GROUPS = [
    "end_runs",
    "release_runs",
    "claim_runs",
    "recover_runs",
    "insert_records",
    "insert_failures",
    "keep_ends",
    "end_keys",
    "reopen_key",
    "delete_ended_waits",
    "delete_ended_activity",
    "count_reports",
    "count_losses",
    "wake_overdue",
    "insert_waits",
    "find_changes",
]


@pytest.mark.parametrize("statement", GROUPS)
def test_groups_look_rows_up_by_key(world: World, statement: str) -> None:
    """A group goes from its rows to the tables and never through a whole table."""
    text = plan(world, statement, batch="[]", run_ids="[]", holds="[]", run="", now=0, limit=1, worker=1)
    scanned = [line for line in text.splitlines() if line.startswith("SCAN") and "json_each" not in line and "new" not in line]
    assert scanned == []


def test_a_paused_queue_is_not_claimed_from(world: World) -> None:
    """Neither probe nor look sees the runs of a paused queue, and a view says so."""
    run_id, lane = world.enqueue(), world.lane()
    with world.writing() as tx:
        tx.run("INSERT INTO outlast_queue (name, paused_at) VALUES ('default', 1)")
    with world.database.reading() as tx:
        assert world.store.probe_lanes(tx, [lane], 9, with_suspects=True, now=START)() == []
        assert world.store.probe_oldest(tx, [lane], 9, with_suspects=True, now=START)() == []
        assert not world.store.look(tx, [lane], START).has_pending
    assert world.view(run_id).why == "queue default is paused"
    with world.writing() as tx:
        tx.run("UPDATE outlast_queue SET paused_at = NULL")
    with world.database.reading() as tx:
        assert len(world.store.probe_lanes(tx, [lane], 9, with_suspects=True, now=START)()) == 1


def test_a_retry_is_written_down(world: World) -> None:
    """Who retried a run, when and why is kept; a retry that changed nothing is not."""
    worker = world.worker()
    run = world.claimed(worker)
    world.commit(worker, end(run, RunStatus.FAILED))
    world.retry(run.id)
    world.retry(run.id)
    with world.database.reading() as tx:
        assert tx.run("SELECT actor, action, run, reason FROM outlast_action").all() == [("ann", "retry", run.id, "the disk is back")]


def test_saying_the_same_again_writes_nothing(world: World) -> None:
    """An idle worker that says so again does not change the file, and so wakes nobody."""
    worker = world.worker()
    with world.writing() as tx:
        world.store.set_idle(tx, worker, True)
    files = [Path(f"{world.database.url.removeprefix('sqlite:///')}{suffix}") for suffix in ("", "-wal", "-journal")]
    before = [file.stat() for file in files if file.exists()]
    with world.writing() as tx:
        world.store.set_idle(tx, worker, True)
        world.store.wake_due(tx, 100, START)
        assert world.store.claim_runs(tx, worker, ["nothing"], 1, START)() == []
    after_it = [file.stat() for file in files if file.exists()]
    assert [(found.st_mtime_ns, found.st_size) for found in before] == [(found.st_mtime_ns, found.st_size) for found in after_it]


def test_the_system_clock_decides_when_nothing_else_does(world: World) -> None:
    """Without a given instant the machine's time is the database's."""
    run_id = world.enqueue()
    worker = world.worker()
    with world.writing() as tx:
        [run] = world.store.claim_runs(tx, worker, [run_id], 1)()
    assert run.claimed_at > START
    with world.writing() as tx:
        world.store.commit_checkpoints(tx, [step(run), end(run)])
    assert world.view(run_id).finished_at != after(0)


def test_rows_hang_together(world: World) -> None:
    """After a run's life nothing dangles, and the file is sound."""
    worker = world.worker()
    run = world.claimed(worker)
    world.commit(worker, step(run), end(run, output="1"))
    with world.database.reading() as tx:
        assert tx.run("PRAGMA foreign_key_check").all() == []
        assert tx.run("PRAGMA integrity_check").all() == [("ok",)]
    assert os.path.exists(world.database.url.removeprefix("sqlite:///"))
