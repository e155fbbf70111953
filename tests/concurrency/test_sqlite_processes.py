"""Several processes on one SQLite file: claims, proofs of life and death, wake-ups."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from outlast import ids
from outlast.errors import LeaseLostError
from outlast.native.backend import Backend
from outlast.native.sqlite import sqlite_backend
from outlast.native.sqlite.liveness import SqliteLiveness
from outlast.native.sqlite.wakes import SqliteWakes
from outlast.native.store import WorkerRow
from outlast.testing.store_suite.world import World, step

CHILD = Path(__file__).with_name("sqlite_child.py")


class Child:
    """A process of its own, told what to do line by line."""

    def __init__(self, file: Path, journal: str) -> None:
        self.process = subprocess.Popen([sys.executable, str(CHILD), str(file), journal], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def send(self, command: str, *arguments: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([command, *arguments]) + "\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def ask(self, command: str, *arguments: Any) -> Any:
        self.send(command, *arguments)
        return self.answer()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        self.kill()


@pytest.fixture(params=["wal", "delete"])
def journal(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "outlast.db"


@pytest.fixture
def world(file: Path, journal: str) -> Iterator[World]:
    backend: Backend = sqlite_backend(file, journal=journal)  # type: ignore[arg-type]  # one of the two
    backend.schema.ensure("create")
    yield World(backend)
    backend.liveness.close()
    backend.database.close()


@pytest.fixture
def start(file: Path, journal: str) -> Iterator[Callable[[], Child]]:
    children: list[Child] = []

    def start() -> Child:
        children.append(Child(file, journal))
        return children[-1]

    yield start
    for child in children:
        child.close()


def test_two_processes_never_share_a_claim(world: World, start: Callable[[], Child]) -> None:
    """Two processes that race for the same runs each get their own, and all are claimed once."""
    run_ids = {world.enqueue() for _ in range(60)}
    lane = world.lane()
    children = [start(), start()]
    for child in children:
        child.send("claim", world.worker(), 60, lane)
    claims = [run_id for child in children for run_id, _token in child.answer()]
    assert sorted(claims) == sorted(run_ids)


def test_a_flush_waits_for_another_process_and_is_kept(world: World, start: Callable[[], Child]) -> None:
    """A writer that meets another process's open transaction waits for it instead of failing."""
    worker = world.worker()
    run = world.claimed(worker)
    child = start()
    child.ask("begin")
    began, refused = threading.Event(), []

    def flush() -> None:
        began.set()
        refused.append(world.commit(worker, step(run)))

    thread = threading.Thread(target=flush)
    thread.start()
    assert began.wait(10)
    child.ask("commit")
    thread.join(10)
    assert refused == [[]]


def test_a_flush_after_the_end_of_its_worker_is_void(world: World) -> None:
    """Whichever of flush and end comes first, the other sees it whole."""
    worker = world.worker()
    run = world.claimed(worker)
    started = threading.Barrier(2)
    outcome: list[object] = []

    def flush() -> None:
        started.wait(10)
        try:
            outcome.append(world.commit(worker, step(run)))
        except LeaseLostError:
            outcome.append("lost")

    thread = threading.Thread(target=flush)
    thread.start()
    started.wait(10)
    world.end_worker(worker)
    thread.join(10)
    [orphan] = world.orphans()
    assert (outcome, orphan.progress_mark) in (([[]], 1), (["lost"], 0))


def row_of(world: World, worker: int) -> WorkerRow:
    return world.workers()[worker]


def test_a_killed_process_is_proven_dead_at_once(world: World, start: Callable[[], Child]) -> None:
    """The lock of a worker is held while its process lives and free as soon as it was killed."""
    child = start()
    worker = world.worker(process=child.ask("nonce"))
    child.ask("hold", worker)
    liveness = world.backend.liveness
    assert liveness.is_proof_possible(row_of(world, worker))
    assert not liveness.is_free(row_of(world, worker))
    child.kill()
    assert liveness.is_free(row_of(world, worker))


def test_looking_at_a_living_worker_does_not_take_its_lock(world: World, start: Callable[[], Child]) -> None:
    """However often others look, a living worker stays alive."""
    child = start()
    worker = world.worker(process=child.ask("nonce"))
    child.ask("hold", worker)
    assert [world.backend.liveness.is_free(row_of(world, worker)) for _ in range(20)] == 20 * [False]


def test_a_process_never_judges_its_own_workers(world: World) -> None:
    """A look at one's own lock would drop it, so none is taken."""
    worker = world.worker(process=ids.process_nonce())
    world.backend.liveness.hold(worker)
    assert not world.backend.liveness.is_proof_possible(row_of(world, worker))
    assert not world.backend.liveness.is_free(row_of(world, worker))
    assert world.backend.liveness.is_held(worker)


def test_a_released_worker_leaves_no_file(world: World, file: Path) -> None:
    """A worker that stops removes its lock file, and may take the lock again."""
    liveness, worker = world.backend.liveness, ids.worker_id()
    folder = file.with_name("outlast.db-workers")
    liveness.hold(worker)
    assert len(list(folder.iterdir())) == 1
    liveness.release(worker)
    assert list(folder.iterdir()) == []
    assert not liveness.is_held(worker)
    liveness.hold(worker)
    assert liveness.is_held(worker)


def test_a_lock_whose_file_was_removed_is_not_held(world: World, file: Path) -> None:
    """Somebody who removes the file by hand makes the worker take its lock again."""
    liveness, worker = world.backend.liveness, ids.worker_id()
    liveness.hold(worker)
    for entry in file.with_name("outlast.db-workers").iterdir():
        entry.unlink()
    assert not liveness.is_held(worker)
    liveness.hold(worker)
    assert liveness.is_held(worker)


def test_a_second_liveness_in_a_process_leaves_the_first_ones_locks(file: Path, start: Callable[[], Child], monkeypatch: pytest.MonkeyPatch) -> None:
    """Two engines of one process on one file: what the second cleans up does not drop the first one's lock, which others still see."""
    monkeypatch.setattr("outlast.native.sqlite.liveness._STALE_AFTER_SECONDS", -1)
    first, second = SqliteLiveness(file), SqliteLiveness(file)
    first.hold(1)
    second.hold(2)
    second.close()
    assert first.is_held(1)
    (lock,) = file.with_name("outlast.db-workers").glob("1-*")
    assert not start().ask("try_lock", str(lock))
    first.close()


def test_files_of_killed_processes_are_removed_later(file: Path, start: Callable[[], Child], monkeypatch: pytest.MonkeyPatch) -> None:
    """What a killed process left is cleaned up by the next that starts, and what is held stays."""
    dead, alive = start(), start()
    dead.ask("hold", 1)
    alive.ask("hold", 2)
    dead.kill()
    monkeypatch.setattr("outlast.native.sqlite.liveness._STALE_AFTER_SECONDS", -1)
    liveness = SqliteLiveness(file)
    liveness.hold(3)
    assert {entry.name.partition("-")[0] for entry in file.with_name("outlast.db-workers").iterdir()} == {"2", "3"}
    liveness.close()


def test_a_commit_of_another_process_wakes(world: World, file: Path, start: Callable[[], Child]) -> None:
    """Who listens is told that the file has changed, whatever the journal."""
    lane, child = world.lane(), start()
    wakes, woken = SqliteWakes(file), threading.Event()
    wakes.listen(lambda lanes, workers: woken.set())
    wakes.set_eager(True)
    try:
        for _ in range(3):
            child.ask("enqueue", lane)
            assert woken.wait(10), "no wake-up for another process's commit"
            woken.clear()
    finally:
        wakes.close()


def test_engines_of_one_process_wake_each_other(world: World, file: Path, tmp_path: Path) -> None:
    """A send wakes the others on the same file at once, and nobody on another file or the sender itself."""
    sender, listener, stranger = SqliteWakes(file), SqliteWakes(file), SqliteWakes(tmp_path / "other.db")
    woken: dict[str, threading.Event] = {name: threading.Event() for name in ("sender", "listener", "stranger")}
    for name, wakes in (("sender", sender), ("listener", listener), ("stranger", stranger)):
        wakes.listen(lambda lanes, workers, name=name: woken[name].set())
    try:
        sender.send([1], [2])
        assert woken["listener"].wait(10)
        assert not woken["sender"].is_set()
        assert not woken["stranger"].is_set()
    finally:
        for wakes in (sender, listener, stranger):
            wakes.close()
    assert listener.is_deaf
