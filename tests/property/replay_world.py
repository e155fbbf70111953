"""A world for replays without a database: a driver on a loop of virtual time, and checkpoints that land when they please.

An execution is stopped after any number of kept checkpoints; what was kept, and nothing else, is the history of the next.
"""

import asyncio
import contextlib
import gc
import random
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from outlast.branch import TaskFactory
from outlast.events import Events
from outlast.failure import Failure
from outlast.native.activity import Activities
from outlast.native.checkpoints import Landing
from outlast.native.driver import NativeDriver
from outlast.native.ending import Ending
from outlast.native.history import EMPTY, FailedAttempt, History, Outcome, Record, Wait
from outlast.native.performer import Performer
from outlast.native.store import Checkpoint, ClaimedRun, FailureCheckpoint, RunCheckpoint, StepCheckpoint
from outlast.run import RunStatus
from outlast.step_key import StepKey
from outlast.stillness import Stillness
from outlast.task import Task
from outlast.transaction import OwnDatabase

EPOCH = datetime(2024, 5, 1, tzinfo=UTC)
EXECUTIONS_MAX = 300
"""A run that needs more never ends."""


class StuckError(Exception):
    """Nothing is scheduled any more and the scenario waits."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """A real event loop whose time stands still while something is to be done, and jumps to the next timer when nothing is."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0
        self.waits_for_threads = False

    def time(self) -> float:
        return self.seconds

    def _run_once(self) -> None:
        if not self._ready and not self.waits_for_threads:
            timers = [timer.when() for timer in self._scheduled if not timer.cancelled()]
            if not timers:
                raise StuckError
            self.seconds = max(self.seconds, min(timers))
        super()._run_once()


@dataclass
class Kept:
    """What a database would hold of one run."""

    records: list[Record] = field(default_factory=list)
    failures: list[FailedAttempt] = field(default_factory=list)
    waits: dict[StepKey, Wait] = field(default_factory=dict)
    retired_seq: int | None = None
    status: RunStatus = RunStatus.PENDING
    due_at: datetime | None = None
    attempts: int = 0
    output: str | None = None
    error: Failure | None = None
    warnings: list[str] = field(default_factory=list)
    count: int = 0
    """How many checkpoints were kept."""

    @property
    def history(self) -> History:
        if not self.records and not self.failures and not self.waits:
            return EMPTY
        return History(tuple(self.records), tuple(self.failures), tuple(self.waits.values()), (), self.retired_seq)

    def keep(self, checkpoint: Checkpoint) -> None:
        self.count += 1
        if isinstance(checkpoint, StepCheckpoint):
            assert checkpoint.record.key not in {record.key for record in self.records}, f"{checkpoint.record.key} is recorded twice"
            assert not self.records or checkpoint.record.seq > max(record.seq for record in self.records)
            self.records.append(checkpoint.record)
            self.waits.pop(checkpoint.record.key, None)
        elif isinstance(checkpoint, FailureCheckpoint):
            self.failures.append(checkpoint.failure)
        else:
            self._leave(checkpoint)

    def _leave(self, checkpoint: RunCheckpoint) -> None:
        assert self.status is RunStatus.RUNNING
        self.status, self.due_at, self.attempts = checkpoint.status, checkpoint.due_at, checkpoint.attempts
        self.output, self.error = checkpoint.output, checkpoint.error
        self.warnings += checkpoint.warnings
        for wait in checkpoint.waits:
            self.waits.setdefault(wait.key, wait)
        if checkpoint.retire is not None:
            self.retire(checkpoint.retire)

    def retire(self, key: StepKey) -> None:
        """What a retry does: the record becomes a failed attempt, and withdrawals behind it are forgotten."""
        self.failures = [replace(failure, is_retired=True, retry_at=None) if failure.key == key else failure for failure in self.failures]
        for record in [record for record in self.records if record.key == key and record.outcome is Outcome.ERROR]:
            last = max((failure.attempt for failure in self.failures if failure.key == key), default=0)
            retired = FailedAttempt(
                key, max(record.attempts, last + 1), record.error or Failure("", ""), record.finished_at, record.finished_at, None, is_retired=True
            )
            self.failures.append(retired)
            self.retired_seq = record.seq if self.retired_seq is None else min(self.retired_seq, record.seq)
            self.records = [one for one in self.records if one is not record and (one.outcome is not Outcome.GIVEN_UP or one.seq < record.seq)]


class Landings:
    """Stands in for `Checkpoints`: keeps in the order of adding, in groups, after any number of loop turns, until it is dead."""

    def __init__(self, kept: Kept, chance: random.Random, limit: int | None) -> None:
        self._kept, self._chance, self._limit = kept, chance, limit
        self._waiting: deque[tuple[Checkpoint, Callable[..., None]]] = deque()
        self._flushing: asyncio.Task[None] | None = None
        self.is_dead = False
        self.crashed = asyncio.get_running_loop().create_future()
        self.has_room = True

    def add(self, checkpoint: Checkpoint, on_end: Callable[..., None]) -> None:
        if self.is_dead:
            return
        self._waiting.append((checkpoint, on_end))
        if self._flushing is None:
            self._flushing = asyncio.Task(self._flush(), loop=asyncio.get_running_loop())

    async def _flush(self) -> None:
        try:
            while self._waiting and not self.is_dead:
                group = [self._waiting.popleft() for _ in range(self._chance.randint(1, len(self._waiting)))]
                for _ in range(self._chance.choice((0, 0, 1, 2, 5, 9))):
                    await asyncio.sleep(0)
                for checkpoint, on_end in group:
                    self._land(checkpoint, on_end)
        finally:
            self._flushing = None

    def _land(self, checkpoint: Checkpoint, on_end: Callable[..., None]) -> None:
        if self.is_dead:
            return
        self._kept.keep(checkpoint)
        if self._limit is not None and self._kept.count >= self._limit:
            self.die()
        else:
            on_end(Landing.KEPT, None)

    def die(self) -> None:
        self.is_dead = True
        if not self.crashed.done():
            self.crashed.set_result(None)


class World:
    """One run, its executions, and what steps did in the outside world."""

    def __init__(self, task: Task[Any, Any], *, input: str = "null", chance: random.Random | None = None, services: Any = None) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self.loop = loop
        self.task, self.input = task, input
        self.chance = chance or random.Random(0)
        self.kept = Kept()
        self.services = services
        self.executions = 0
        self.driver: NativeDriver | None = None
        self.landings: Landings | None = None
        self.reasons: list[str] = []
        self.activities = Activities()
        self.performer = Performer(concurrency=4, events=Events(), activities=self.activities, services=lambda: self.services, now=self.now)
        self._stillness = Stillness(self.loop)

    def now(self) -> datetime:
        return EPOCH + timedelta(seconds=self.loop.time())

    def begin(self, limit: int | None = None) -> "asyncio.Future[Ending]":
        """Begin the next execution from what was kept; the future is done when its body is closed."""
        kept = self.kept
        kept.status = RunStatus.RUNNING
        self.executions += 1
        assert self.executions < EXECUTIONS_MAX, "the run does not end"
        ended: asyncio.Future[Ending] = self.loop.create_future()
        claim = ClaimedRun(
            id="run", token=self.executions, lane=1, kind=self.task.name, version=1, generation=0, attempts=kept.attempts, losses=0, seed=7, ending=None,
            input=self.input, headers="{}", idempotency_key=None, deadline_at=None, started_at=EPOCH, claimed_at=self.now(),
        )  # fmt: skip
        self.landings = Landings(kept, self.chance, limit)
        self.driver = NativeDriver(
            claim, self.task, history=kept.history, checkpoints=self.landings, performer=self.performer, waits=None,  # type: ignore[arg-type]  # doubles
            stillness=self._stillness, services=self.services, database=OwnDatabase(contextlib.nullcontext), now=self.now,
            on_end=lambda driver, ending: self._ended(ended, ending),
        )  # fmt: skip
        self.driver.start()
        return ended

    def _ended(self, ended: "asyncio.Future[Ending]", ending: Ending) -> None:
        assert self.landings is not None
        assert not ended.done(), "one execution has one end"
        if ending.checkpoint is not None:
            self.landings.add(ending.checkpoint, lambda landing, error: ended.set_result(ending))
        else:
            ended.set_result(ending)

    async def drain(self) -> None:
        """Wait for the attempts in progress."""
        while attempts := list(self.activities.attempts.values()):
            tasks = [attempt.task for attempt in attempts if attempt.task is not None]
            await (asyncio.wait(tasks) if tasks else asyncio.sleep(0))  # those that are not carried yet begin in the next turn

    async def execute(self, *, limit: int | None = None, drains_after: int | None = None) -> bool:
        """Execute once, to the kept end of the execution or to the crash after `limit` checkpoints; tell whether it crashed.

        The worker begins to stop after `drains_after` loop turns.
        """
        ended = self.begin(limit)
        assert self.driver is not None
        for _ in range(drains_after or 0):
            await asyncio.sleep(0)
        if drains_after is not None:
            self.driver.drain()
        assert self.landings is not None
        await asyncio.wait({ended, self.landings.crashed}, return_when=asyncio.FIRST_COMPLETED)
        has_crashed = self.landings.crashed.done()
        if has_crashed:
            self.crash()
        await self.drain()
        for _ in range(3):
            await asyncio.sleep(0)
        return has_crashed

    def crash(self) -> None:
        """Drop everything that was not kept."""
        assert self.driver is not None
        assert self.landings is not None
        self.landings.die()
        self.driver.lose("the process died")

    async def finish(self) -> Kept:
        """Execute until the run is over, moving time to its next wake."""
        while not self.kept.status.is_terminal:
            if self.kept.status is RunStatus.WAITING:
                assert self.kept.due_at is not None
                await asyncio.sleep(max(0.0, (self.kept.due_at - self.now()).total_seconds()))
            await self.execute()
        return self.kept


def stage(scenario: Callable[[], Coroutine[Any, Any, Any] | Awaitable[Any]], loop_factory: Callable[[], VirtualLoop] = VirtualLoop) -> Any:
    """Run a scenario on a virtual loop with the task factory; whatever asyncio complains about is a failure."""
    complaints: list[dict[str, Any]] = []

    async def staged() -> Any:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, complaint: complaints.append(complaint))
        factory = TaskFactory(loop)
        factory.install()
        try:
            result = await scenario()
        finally:
            factory.uninstall()
        await asyncio.sleep(0)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"tasks are left over: {left}"
        return result

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        result = runner.run(staged())
    gc.collect(1)
    assert complaints == [], complaints
    return result
