"""Bodies: what the bodies of runs ask a store to keep, drawn from a seed and from what the model says that was recorded before.

A body is deterministic, as at a replay: which call comes next follows from the records that there are. Branch 0 and 1 wait for signals,
branch 2 asks a person, and the body's own calls are steps.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from random import Random
from typing import Any
from uuid import UUID

from outlast.decision import decision_topic
from outlast.failure import Failure
from outlast.native.history import FailedAttempt, Outcome, Record, RecordKind, Wait
from outlast.native.mailbox import NewSignal
from outlast.native.store import Checkpoint, FailureCheckpoint, Hold, NewRun, RunCheckpoint, StepCheckpoint
from outlast.payload import digest
from outlast.run import RunStatus
from outlast.step_key import StepKey, parse_path

from .store_draws import LANES
from .store_model import StoreModel
from .store_model_state import call_of

TOPICS = ("approved ", "Größe \U0001f422'")
KEYS = ("k", "K")
CANCELED = RunStatus.CANCELED
TRIES = Failure("builtins.OSError", "no such place")


class Bodies:
    """Draws from `random`; ids, attempts' errors and `seq` grow."""

    def __init__(self, model: StoreModel) -> None:
        self.random = Random(0)
        self.model = model
        self._last_id = 0
        self._last_seq = 0

    def next_id(self) -> str:
        self._last_id += 1
        return str(UUID(int=self._last_id))

    def some(self, likelihood: float) -> bool:
        return self.random.random() < likelihood

    def after(self, now: datetime, *seconds: float | None) -> datetime | None:
        chosen = self.random.choice(seconds)
        return None if chosen is None else now + timedelta(seconds=chosen)

    # --- what callers send ---------------------------------------------------------------------------------------------------
    def new_run(self, now: datetime) -> tuple[int, NewRun]:
        lane = self.random.randrange(len(LANES))
        text, key = self.random.choice(["1", "2"]), self.random.choice([None, None, None, *KEYS])
        due_at, deadline_at = self.after(now, None, None, None, 0.0, 5.0), self.after(now, None, None, None, 10.0, 60.0)
        kind, version = LANES[lane].kind, LANES[lane].version
        return lane, NewRun(self.next_id(), 0, kind, version, self.random.randint(-1, 1), due_at, deadline_at, 7, text, digest(text), key, "[]", "{}")

    def new_signal(self) -> NewSignal:
        payload, ttl = self.random.choice(["1", "2"]), self.random.choice([5.0, 30.0, 604800.0])
        key = self.random.choice([None, None, *KEYS])
        return NewSignal(self.next_id(), self.random.choice(TOPICS), None, payload, timedelta(seconds=ttl), key, digest(payload))

    # --- what a body does ----------------------------------------------------------------------------------------------------
    def next_key(self, run_id: str, path: tuple[int, ...], name: str) -> StepKey:
        """Return the next call of this name on a path: the first without a record."""
        number = 0
        while call_of(run_id, StepKey(path, name, number)) in self.model.steps:
            number += 1
        return StepKey(path, name, number)

    def record(
        self, hold: Hold, key: StepKey, kind: RecordKind, now: datetime, result: str | None, error: Failure | None = None, **more: Any
    ) -> StepCheckpoint:
        self._last_seq += 1
        outcome = Outcome.ERROR if error is not None else Outcome.RESULT if result is not None else Outcome.GIVEN_UP
        started_at = self.random.choice([None, now])
        record = Record(key, self._last_seq, kind, outcome, "", self.random.randint(1, 3), now, result, error, started_at)
        return StepCheckpoint(hold, int(self.some(0.02)), record, **more)

    def step(self, hold: Hold, now: datetime) -> list[Checkpoint]:
        """A step's record, that of one that sends, a failed attempt, or, rarely, a record that is there already."""
        key = self.next_key(hold.run_id, (), "work")
        known = [call for call in self.model.steps if call[0] == hold.run_id and call[2] == "work"]
        if known and self.some(0.1):
            _, path, name, number = self.random.choice(known)
            return [self.record(hold, StepKey(parse_path(path), name, number), RecordKind.STEP, now, "0")]
        if self.some(0.3):
            attempts = [call[4] for call in self.model.failures if call[:4] == call_of(hold.run_id, key)]
            failure = FailedAttempt(key, max(attempts, default=0) + 1, TRIES, now, now, self.after(now, None, 1.0))
            return [FailureCheckpoint(hold, 0, failure)]
        if self.some(0.3):
            return [self.record(hold, key, RecordKind.SIGNAL, now, "null", sent=replace(self.new_signal(), idempotency_key=None))]
        return [self.record(hold, key, RecordKind.STEP, now, self.random.choice(["0", '"x"', None]))]

    def waiting(self, run_id: str, branch: int) -> tuple[StepKey, RecordKind, str]:
        """Return what a branch waits for next: the call, and the topic that this call always has."""
        name, kind = ("ask", RecordKind.ASK) if branch == 2 else ("wait", RecordKind.WAIT)
        key = self.next_key(run_id, (branch,), name)
        topic = decision_topic(f"{run_id}/{key}") if branch == 2 else TOPICS[(key.number + branch + int(run_id[-1:], 16)) % len(TOPICS)]
        return key, kind, topic

    def wait(self, run_id: str, branch: int, after: int, now: datetime) -> Wait:
        """Return a branch's wait. Its instant is that of the first time."""
        key, kind, topic = self.waiting(run_id, branch)
        known = self.model.waits.get(call_of(run_id, key))
        due_at = known.due_at if known is not None else self.after(now, None, None, 1.0, 5.0, 40.0)
        return Wait(key, kind, due_at, topic, after)

    def branches(self, run_id: str) -> list[int]:
        """Return the branches of a body that park: all that have parked before, and perhaps others."""
        open_ones = [branch for branch in range(3) if call_of(run_id, self.waiting(run_id, branch)[0]) in self.model.waits]
        return open_ones or self.random.sample([0, 1, 2], self.random.randint(1, 3))

    def has_asked(self, hold: Hold) -> bool:
        """Tell, now and then, whether a body that still runs has put a question which nobody has answered."""
        is_open = any(one.run == hold.run_id and one.closed_at is None for one in self.model.decisions.values())
        return is_open and self.model.is_current(hold) and self.some(0.5)

    def park(self, hold: Hold, waits: tuple[Wait, ...]) -> RunCheckpoint:
        dues = [wait.due_at for wait in waits if wait.due_at is not None]
        return RunCheckpoint(hold, 0, RunStatus.WAITING, min(dues, default=None), waits, self.random.randint(0, 2))

    def end(self, hold: Hold, now: datetime) -> list[Checkpoint]:
        """How a body leaves: with a result, an error, for another attempt, handed back, or as it was told by a cancel."""
        run, error = self.model.runs[hold.run_id], Failure(self.random.choice(["a.Error", "b.Error"]), "it did not work")
        if run.cancel_requested_at is not None and self.some(0.7):
            told = Failure("outlast.Canceled", "")
            return [RunCheckpoint(hold, 0, CANCELED, error=told, verdict="told", passes_cancel=True, idempotency_key=run.idempotency_key)]
        failing = self.record(hold, self.next_key(run.id, (), "work"), RecordKind.STEP, now, None, TRIES)
        match self.random.randint(0, 5):
            case 0:
                key = run.idempotency_key
                return [
                    RunCheckpoint(
                        hold, 0, RunStatus.SUCCEEDED, output=self.random.choice([None, "1"]), may_have_asked=self.has_asked(hold), idempotency_key=key
                    )
                ]
            case 1 | 2:
                failed = RunCheckpoint(hold, 0, RunStatus.FAILED, attempts=1, error=error, failed_key=failing.record.key, idempotency_key=run.idempotency_key)
                withdrawn = self.record(hold, self.next_key(run.id, (1,), "work"), RecordKind.STEP, now, None)
                return self.random.choice([[failing, failed], [failing, withdrawn, failed], [failed]])
            case 3:
                return [RunCheckpoint(hold, 0, RunStatus.PENDING, passes_cancel=True)]
            case 4 if run.losses == 0:  # a retired record counts as progress no more: how a store counts that is nobody's promise
                delayed = RunCheckpoint(hold, 0, RunStatus.WAITING, self.after(now, 3.0), attempts=1, error=error, retire=failing.record.key)
                return [failing, delayed]
        return [RunCheckpoint(hold, 0, RunStatus.WAITING, self.after(now, 0.0, 3.0), attempts=1, error=error)]
