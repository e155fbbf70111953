"""A small world for tests on PostgreSQL: a database with the schema, runs, workers, and what they write."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from outlast import ids
from outlast.native.backend import Backend
from outlast.native.history import Outcome, Record, RecordKind
from outlast.native.postgres import postgres_backend
from outlast.native.store import ClaimedRun, Hold, LaneName, NewRun, NewWorker, RunCheckpoint, StepCheckpoint
from outlast.run import RunStatus
from outlast.step_key import StepKey

LANE = LaneName("default", "greet", 1)
WAIT = 20.0
"""Seconds after which a thread that does not get on is a failed test."""


class World:
    """One database; `backend` may be opened again beside it for a second process's connections."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.backend: Backend = postgres_backend(url)
        self.backend.schema.ensure("create")
        self.store = self.backend.store
        self.database = self.backend.database
        with self.database.transaction() as tx:
            self.lane = self.store.ensure_lanes(tx, [LANE])[LANE]

    def close(self) -> None:
        self.backend.liveness.close()
        self.backend.wakes.close()
        self.database.close()

    def new_run(self) -> NewRun:
        return NewRun(ids.run_id(), self.lane, LANE.kind, LANE.version, 0, None, None, 1, "null", "digest", None, "[]", "{}")

    def accept(self, count: int = 1, **changes: object) -> list[str]:
        runs = [replace(self.new_run(), **changes) for _ in range(count)]
        with self.database.transaction() as tx:
            return [accepted.run_id for accepted in self.store.record_runs(tx, runs)()]

    def worker(self, lease: timedelta = timedelta(seconds=30)) -> int:
        worker_id = ids.worker_id()
        with self.database.transaction() as tx:
            self.store.record_worker(tx, NewWorker(worker_id, "a worker", "another process", lease, (self.lane,), "[]"))
        return worker_id

    def claim(self, worker_id: int, run_ids: list[str]) -> list[ClaimedRun]:
        with self.database.transaction() as tx:
            self.store.fence(tx, worker_id)
            return self.store.claim_runs(tx, worker_id, run_ids, len(run_ids))()

    def status(self, run_id: str) -> RunStatus:
        with self.database.reading() as tx:
            view = self.store.find_run(tx, run_id)
        assert view is not None
        return view.status


@contextmanager
def opened(url: str) -> Iterator[World]:
    world = World(url)
    try:
        yield world
    finally:
        world.close()


def finish(hold: Hold) -> RunCheckpoint:
    return RunCheckpoint(hold, 0, RunStatus.SUCCEEDED)


def record(hold: Hold, name: str = "step", seq: int = 1) -> StepCheckpoint:
    now = datetime.now(UTC)
    return StepCheckpoint(hold, 0, Record(StepKey((), name), seq, RecordKind.STEP, Outcome.RESULT, "digest", 1, now, '"kept"', None, now))
