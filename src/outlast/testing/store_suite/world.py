"""World: a store with an instant that a test moves by hand, and short ways to bring runs into a state. It asserts nothing but its own steps."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from outlast import ids
from outlast.database.transaction import Transaction
from outlast.failure import Failure
from outlast.inspector import ActionView
from outlast.native.backend import Backend
from outlast.native.history import FailedAttempt, Outcome, Record, RecordKind, Wait
from outlast.native.mailbox import Delivered, NewSignal
from outlast.native.store import (
    Accepted,
    ActivityRow,
    Checkpoint,
    ClaimContext,
    ClaimedRun,
    FailureCheckpoint,
    Hold,
    LaneName,
    Look,
    NewRun,
    NewWorker,
    Orphan,
    RunCheckpoint,
    StepCheckpoint,
    WorkerRow,
)
from outlast.native.upkeep import LaneRow, QueueChange
from outlast.run import RunStatus, RunView, StepView
from outlast.step_key import StepKey

START = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
IN_A_MINUTE = START + timedelta(seconds=60)
ERROR = Failure(type="builtins.OSError", message="no route to the host", bases=("builtins.Exception",))


def after(seconds: float) -> datetime:
    """Return the instant so long after every test's start."""
    return START + timedelta(seconds=seconds)


def new_run(lane: int, **changes: Any) -> NewRun:
    """Return a run to be accepted, ordinary but for `changes`."""
    ordinary: dict[str, Any] = {
        "id": ids.run_id(),
        "lane": lane,
        "kind": "import_asset",
        "version": 1,
        "priority": 0,
        "due_at": None,
        "deadline_at": None,
        "seed": 7,
        "input": '{"path":"/a/b"}',
        "input_digest": "digest-of-input",
        "idempotency_key": None,
        "tags": '["nightly"]',
        "headers": '{"trace":"1"}',
    }
    return NewRun(**{**ordinary, **changes})


def record(name: str = "locate", seq: int = 0, **changes: Any) -> Record:
    ordinary: dict[str, Any] = {
        "key": StepKey((), name, 0),
        "seq": seq,
        "kind": RecordKind.STEP,
        "outcome": Outcome.RESULT,
        "digest": "digest-of-arguments",
        "attempts": 1,
        "finished_at": after(5),
        "result": '"/found"',
        "error": None,
        "started_at": after(4),
    }
    return Record(**{**ordinary, **changes})


def failed_record(name: str = "locate", seq: int = 0, attempts: int = 3) -> Record:
    return record(name, seq, outcome=Outcome.ERROR, result=None, error=ERROR, attempts=attempts)


def step(run: ClaimedRun, name: str = "locate", seq: int = 0, **changes: Any) -> StepCheckpoint:
    return StepCheckpoint(run.hold, run.generation, record(name, seq, **changes))


def step_of(run: ClaimedRun, one: Record) -> StepCheckpoint:
    return StepCheckpoint(run.hold, run.generation, one)


def failure(run: ClaimedRun, name: str = "locate", attempt: int = 1, retry_at: datetime | None = None) -> FailureCheckpoint:
    failed = FailedAttempt(StepKey((), name, 0), attempt, ERROR, after(1), after(2), retry_at)
    return FailureCheckpoint(run.hold, run.generation, failed)


def end(run: ClaimedRun, status: RunStatus = RunStatus.SUCCEEDED, **changes: Any) -> RunCheckpoint:
    return RunCheckpoint(run.hold, run.generation, status, **{"idempotency_key": run.idempotency_key, **changes})


def park(run: ClaimedRun, due_at: datetime | None, *waits: Wait, **changes: Any) -> RunCheckpoint:
    return RunCheckpoint(run.hold, run.generation, RunStatus.WAITING, due_at, waits, **changes)


def report(run: ClaimedRun, name: str = "locate", done: float | None = 1.0, total: float | None = 10.0, attempt: int = 1, note: str = "") -> ActivityRow:
    return ActivityRow(run.hold, run.generation, StepKey((), name, 0), attempt, after(1), done, total, note)


def sleep(name: str = "sleep", due_at: datetime = IN_A_MINUTE) -> Wait:
    return Wait(StepKey((), name, 0), RecordKind.SLEEP, due_at)


def named(topic: str, name: str = "pay", due_at: datetime | None = None) -> Wait:
    """Return a wait for something by name."""
    return Wait(StepKey((), name, 0), RecordKind.EFFECT, due_at, topic)


class World:
    """One empty database and what a test does to it. `now` is START unless a call says otherwise."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.store = backend.store
        self.database = backend.database

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        with self.database.transaction() as tx:
            yield tx

    def lane(self, queue: str = "default", kind: str = "import_asset", version: int = 1) -> int:
        name = LaneName(queue, kind, version)
        with self.writing() as tx:
            return self.store.ensure_lanes(tx, [name])[name]

    def accept(self, *runs: NewRun, now: datetime = START) -> list[Accepted]:
        with self.writing() as tx:
            return self.store.record_runs(tx, runs, now)()

    def enqueue(self, now: datetime = START, **changes: Any) -> str:
        """Accept a run of the default lane and return its id."""
        run = new_run(changes.pop("lane", None) or self.lane(), **changes)
        [accepted] = self.accept(run, now=now)
        assert accepted.created
        return run.id

    def worker(self, *lanes: int, lease: timedelta = timedelta(seconds=30), process: str = "another-process", now: datetime = START) -> int:
        worker_id, lanes = ids.worker_id(), lanes or (self.lane(),)
        with self.writing() as tx:
            self.store.record_worker(tx, NewWorker(worker_id, "host:1", process, lease, lanes, "[]"), now)
        return worker_id

    def claim(self, worker: int, *run_ids: str, limit: int = 100, now: datetime = START) -> list[ClaimedRun]:
        with self.writing() as tx:
            self.store.fence(tx, worker)
            return self.store.claim_runs(tx, worker, run_ids, limit, now)()

    def claimed(self, worker: int, now: datetime = START, **changes: Any) -> ClaimedRun:
        """Return a new run that the worker holds."""
        [run] = self.claim(worker, self.enqueue(now, **changes), now=now)
        return run

    def claimed_again(self, worker: int, run: ClaimedRun, now: datetime) -> ClaimedRun:
        [again] = self.claim(worker, run.id, now=now)
        return again

    def commit(self, worker: int, *checkpoints: Checkpoint, now: datetime = START) -> list[Checkpoint]:
        """Write a group as the engine does, and return what was refused."""
        with self.writing() as tx:
            self.store.fence(tx, worker)
            refused = self.store.commit_checkpoints(tx, checkpoints, now)
        return refused()

    def find_kept(self, *checkpoints: Checkpoint) -> list[Checkpoint]:
        with self.database.reading() as tx:
            return self.store.find_kept(tx, checkpoints)

    def report(self, *rows: ActivityRow) -> None:
        with self.writing() as tx:
            self.store.record_activity(tx, rows)

    def contexts(self, *holds: Hold, now: datetime = START) -> dict[Hold, ClaimContext]:
        with self.database.reading() as tx:
            return self.store.read_contexts(tx, holds, now)

    def context(self, run: ClaimedRun, now: datetime = START) -> ClaimContext:
        return self.contexts(run.hold, now=now)[run.hold]

    def send(self, topic: str, run_id: str | None = None, now: datetime = START, **changes: Any) -> NewSignal:
        """Append a signal, and return it."""
        signal = NewSignal(**{"id": ids.run_id(), "topic": topic, "run": run_id, **changes})
        with self.writing() as tx:
            self.store.append_signal(tx, signal, now)
        return signal

    def deliver(self, limit: int = 100, now: datetime = START) -> Delivered:
        with self.writing() as tx:
            return self.store.deliver_signals(tx, limit, now)

    def look(self, now: datetime = START) -> Look:
        lanes = [self.lane()]
        with self.database.reading() as tx:
            return self.store.look(tx, lanes, now)

    def wake_due(self, now: datetime, limit: int = 100) -> set[int]:
        with self.writing() as tx:
            return self.store.wake_due(tx, limit, now)

    def end_overdue(self, now: datetime, limit: int = 100) -> int:
        with self.writing() as tx:
            return self.store.end_overdue(tx, limit, now)

    def end_worker(self, worker: int, how: str = "dead", now: datetime = START, **conditions: Any) -> bool:
        with self.writing() as tx:
            return self.store.end_worker(tx, worker, how, now=now, **conditions)

    def workers(self, *, only_alive: bool = False, now: datetime = START) -> dict[int, WorkerRow]:
        with self.database.reading() as tx:
            return {row.id: row for row in self.store.list_workers(tx, only_alive=only_alive, now=now)}

    def orphans(self, limit: int = 100) -> list[Orphan]:
        with self.writing() as tx:
            return self.store.list_orphans(tx, limit, START)

    def cancel(self, run_id: str, reason: str = "not wanted", now: datetime = START) -> Any:
        with self.writing() as tx:
            return self.store.request_cancel(tx, run_id, reason, now)

    def retry(self, run_id: str, now: datetime = START) -> Any:
        with self.writing() as tx:
            return self.store.retry_run(tx, run_id, "ann", "the disk is back", now)

    def discard(self, run_id: str, now: datetime = START) -> Any:
        with self.writing() as tx:
            return self.store.discard_run(tx, run_id, "ann", "of no use any more", now)

    def pause(self, queue: str = "default", now: datetime = START) -> QueueChange:
        with self.writing() as tx:
            return self.store.pause_queue(tx, queue, "ann", "the disk is full", now)

    def unpause(self, queue: str = "default", now: datetime = START) -> QueueChange:
        with self.writing() as tx:
            return self.store.unpause_queue(tx, queue, "ann", "there is room", now)

    def actions(self, run_id: str | None = None) -> list[ActionView]:
        with self.database.reading() as tx:
            return self.store.list_actions(tx, run_id, 100)

    def lanes(self, now: datetime = START) -> dict[LaneName, LaneRow]:
        with self.database.reading() as tx:
            return {LaneName(row.queue, row.kind, row.version): row for row in self.store.list_lanes(tx, now)}

    def view(self, run_id: str, now: datetime = START) -> RunView:
        with self.database.reading() as tx:
            view = self.store.find_run(tx, run_id, now)
        assert view is not None
        return view

    def steps(self, run_id: str) -> list[StepView]:
        with self.database.reading() as tx:
            return self.store.list_steps(tx, run_id)

    def status(self, run_id: str) -> RunStatus:
        return self.view(run_id).status

    def key(self, kind: str, key: str) -> tuple[str, RunStatus | None] | None:
        with self.database.reading() as tx:
            return self.store.find_key(tx, kind, key)


class WorldSuite:
    """What every part of the suite stands on."""

    @pytest.fixture
    def world(self, backend: Backend) -> World:
        return World(backend)
