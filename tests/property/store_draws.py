"""StoreDraws: odd values and rows for stores, drawn from one seed, so that a long sequence of calls stays a small example."""

from datetime import datetime, timedelta
from random import Random
from typing import Any
from uuid import UUID

from outlast.failure import Failure
from outlast.native.history import FailedAttempt, Outcome, Record, RecordKind, Wait
from outlast.native.store import ActivityRow, Checkpoint, FailureCheckpoint, Hold, LaneName, NewRun, RunCheckpoint, StepCheckpoint
from outlast.payload import codec_for, digest
from outlast.run import RunStatus
from outlast.step_key import StepKey

LANES = [LaneName("default", "greet", 1), LaneName("default", "greet", 2), LaneName("slow \U0001f422", "Grüße", 1)]
KEYS = ["k", "K", "\U0001f422'"]
TEXTS = [
    *("", "a", "A", "é", "e\u0301", "'", '"', "\\", "\\u0000", "%s", "%", ":x", "$1", "{}", "null", "\U0001f422", "\u2028", "\x7f", "\x01", "日本"),
    *("  x ", "\ud7ff\ue000", "\n", "\ufeff", "a" * 300, "\U0010ffff"),
]
NUMBERS = [0, -0.0, 1e22, 1e-300, 1.7976931348623157e308, (1 << 63) - 1, -(1 << 63), (1 << 53) + 1, 0.1, -7]
STEP_KEYS = [StepKey(path, name, number) for path in ((), (0,), (1, 12)) for name in ("locate", "copy \U0001f422'\\") for number in (0, 1)]
WAIT_KINDS = [RecordKind.SLEEP, RecordKind.TIMEOUT]
WAIT_KEYS = [key for key in STEP_KEYS if key.number == 1]
"""Those of sleeps and time-outs; the others are steps, which nobody waits for by a wait."""
SECONDS = [-1.0, 0.0, 0.000001, 1.5, 10.0]
ENDS = [RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.CANCELED]


class StoreDraws:
    """Draws from `random`. Ids and `seq` grow, and `now` is given."""

    def __init__(self) -> None:
        self.random = Random(0)
        self.last_id = 0
        self.seq = 0
        self.recorded: set[tuple[str, StepKey]] = set()
        """Calls that may have a record: nobody begins to wait for one again."""

    def next_id(self) -> str:
        self.last_id += 1
        return str(UUID(int=self.last_id))

    def maybe(self, value: Any) -> Any:
        return self.random.choice([None, value])

    def text(self) -> str:
        return "".join(self.random.choices(TEXTS, k=self.random.randint(1, 3)))

    def texts(self) -> list[str]:
        return [self.text() for _ in range(self.random.randint(0, 2))]

    def value(self) -> str:
        """Return the JSON text of any plain value."""
        return codec_for(Any).encode(self._plain(3), "value")

    def _plain(self, depth: int) -> Any:
        match self.random.randint(0, 5 if depth else 3):
            case 0:
                return self.random.choice([None, True, False])
            case 1:
                return self.random.choice(NUMBERS)
            case 2 | 3:
                return self.text()
            case 4:
                return [self._plain(depth - 1) for _ in range(self.random.randint(0, 3))]
        return {self.text(): self._plain(depth - 1) for _ in range(self.random.randint(0, 3))}

    def key(self) -> StepKey:
        return self.random.choice(STEP_KEYS)

    def failure(self) -> Failure:
        return Failure(self.text(), self.text(), cause=self.maybe(Failure(self.text(), self.text())))

    def after(self, now: datetime) -> datetime:
        return now + timedelta(seconds=self.random.choice(SECONDS))

    def new_run(self, now: datetime) -> tuple[LaneName, NewRun]:
        lane, text = self.random.choice(LANES), self.value()
        run = NewRun(
            id=self.next_id(),
            lane=0,
            kind=lane.kind,
            version=lane.version,
            priority=self.random.randint(-2, 2),
            due_at=self.maybe(self.after(now)),
            deadline_at=self.maybe(self.maybe(self.after(now))),
            seed=self.random.getrandbits(62),
            input=text,
            input_digest=digest(text),
            idempotency_key=self.random.choice([None, None, *KEYS]),
            tags=codec_for(list[str]).encode(self.texts(), "tags"),
            headers=codec_for(dict[str, str]).encode({self.text(): self.text() for _ in range(self.random.randint(0, 2))}, "headers"),
        )
        return lane, run

    def checkpoints(self, hold: Hold, key: str | None, now: datetime) -> list[Checkpoint]:
        """Return what one run has in a group: steps and failed attempts, then perhaps how it leaves."""
        group: list[Checkpoint] = [self.random.choice([self._step, self._step, self._failure])(hold, now) for _ in range(self.random.randint(0, 2))]
        if self.random.random() < 0.6:
            group.append(self.random.choice([self._end, self._park, self._delay])(hold, key, now))
        return group

    def _step(self, hold: Hold, now: datetime) -> StepCheckpoint:
        self.seq += 1
        outcome, key = self.random.choice(list(Outcome)), self.key()
        self.recorded.add((hold.run_id, key))
        record = Record(
            key=key,
            seq=self.seq,
            kind=self.random.choice(WAIT_KINDS) if key in WAIT_KEYS else RecordKind.STEP,
            outcome=outcome,
            digest=self.text(),
            attempts=self.random.randint(1, 3),
            finished_at=now,
            result=self.value() if outcome is Outcome.RESULT else None,
            error=self.failure() if outcome is Outcome.ERROR else None,
            started_at=self.maybe(self.after(now)),
        )
        return StepCheckpoint(hold, int(self.random.random() < 0.05), record)

    def _failure(self, hold: Hold, now: datetime) -> FailureCheckpoint:
        retry_at, is_retired = self.maybe(self.after(now)), self.maybe(True) is True
        return FailureCheckpoint(hold, 0, FailedAttempt(self.key(), self.random.randint(1, 3), self.failure(), self.after(now), now, retry_at, is_retired))

    def _end(self, hold: Hold, key: str | None, now: datetime) -> RunCheckpoint:
        status = self.random.choice(ENDS)
        return RunCheckpoint(
            hold=hold,
            generation=0,
            status=status,
            attempts=self.random.randint(0, 2),
            output=self.maybe(self.value()) if status is RunStatus.SUCCEEDED else None,
            error=self.maybe(self.failure()) if status is not RunStatus.SUCCEEDED else None,
            failed_key=self.maybe(self.key()) if status is RunStatus.FAILED else None,
            verdict=self.maybe(self.text()),
            warnings=tuple(self.texts()),
            passes_cancel=self.maybe(True) is True,
            idempotency_key=key,
        )

    def _park(self, hold: Hold, key: str | None, now: datetime) -> RunCheckpoint:
        keys = [one for one in WAIT_KEYS if (hold.run_id, one) not in self.recorded]
        waits = tuple(Wait(one, self.random.choice(WAIT_KINDS), self.after(now)) for one in self.random.sample(keys, min(2, len(keys))))
        return RunCheckpoint(hold, 0, RunStatus.WAITING, self.maybe(self.after(now)), waits, self.random.randint(0, 2), passes_cancel=self.maybe(True) is True)

    def _delay(self, hold: Hold, key: str | None, now: datetime) -> RunCheckpoint:
        return RunCheckpoint(
            hold=hold,
            generation=0,
            status=self.random.choice([RunStatus.PENDING, RunStatus.WAITING]),
            due_at=self.after(now),
            attempts=self.random.randint(0, 2),
            error=self.maybe(self.failure()),
            retire=self.maybe(self.key()),
            verdict=self.maybe(self.text()),
            warnings=tuple(self.text() for _ in range(self.random.choice([0, 1, 40]))),
            passes_cancel=self.maybe(True) is True,
        )

    def activity(self, hold: Hold, now: datetime) -> ActivityRow:
        done, total = self.random.choice([None, 0.0, 0.1, 1e308, float("nan"), float("inf")]), self.random.choice([None, 3.0, -0.0])
        generation, note = int(self.random.random() < 0.05), self.random.choice(["", self.text()])
        return ActivityRow(hold, generation, self.key(), self.random.randint(1, 3), self.after(now), done, total, note)
