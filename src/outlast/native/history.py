"""The alphabet of a run: what can have happened in it, and what can be asked for.

Pure data, the same on both databases. Nothing here reads a clock, does I/O or knows a driver.
"""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

import msgspec

from outlast.failure import Failure
from outlast.step_key import StepKey


class RecordKind(StrEnum):
    """What a record is of. The words are persisted and never change."""

    STEP = "step"
    TRANSACTION = "transaction"
    EFFECT = "effect"
    WAIT = "wait"
    """For a signal."""
    UNTIL = "until"
    ASK = "ask"
    SIGNAL = "signal"
    SLEEP = "sleep"
    TIMEOUT = "timeout"


WAITING_BY_NAME = frozenset({RecordKind.EFFECT, RecordKind.WAIT, RecordKind.UNTIL, RecordKind.ASK})
"""Calls that may wait for something by name."""

ASKING = frozenset({RecordKind.EFFECT, RecordKind.ASK})
"""Calls that may wait for a person's answer, which comes on a reserved topic and goes with the call's record."""


class Outcome(StrEnum):
    """How a durable call ended. The words are persisted and never change."""

    RESULT = "result"
    ERROR = "error"
    RESUMED = "resumed"
    """A result that a person gave in place of an error."""
    GIVEN_UP = "given_up"
    """The body withdrew from it: a durable time-out, or a canceled branch."""


class Record(msgspec.Struct, frozen=True, gc=False):
    """The end of one durable call. Once committed it is never replaced."""

    key: StepKey
    seq: int
    """The order in which records are handed to the body, given when the record joins a flush."""
    kind: RecordKind
    outcome: Outcome
    digest: str
    """Of the encoded arguments; empty where there are none."""
    attempts: int
    finished_at: datetime
    result: str | None = None
    """JSON text."""
    error: Failure | None = None
    started_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """An attempt that ended with an error and was, or will be, followed by another."""

    key: StepKey
    attempt: int
    """Counts all attempts of the call ever made, from 1."""
    error: Failure
    started_at: datetime
    failed_at: datetime
    retry_at: datetime | None
    """When the next attempt may begin; None for what was retired by an operator's or a task's retry."""
    is_retired: bool = False
    """It belongs to an earlier life of the step and does not count against its policy."""


@dataclass(frozen=True, slots=True)
class Wait:
    """A wait that a parked run has open. Its instant never changes after it was registered."""

    key: StepKey
    kind: RecordKind
    due_at: datetime | None
    """None for one that only a name ends."""
    topic: str | None = None
    """What ends it by name."""
    after: int = 0
    """The newest signal on the topic that was seen when it parked: only what is newer ends it."""


@dataclass(frozen=True, slots=True)
class LastProgress:
    """What the latest attempt of a step without a record reported."""

    key: StepKey
    done: float
    total: float | None
    note: str


@dataclass(frozen=True, slots=True)
class History:
    """All that is remembered of a run's generation, in the order of `seq`."""

    records: tuple[Record, ...] = ()
    failures: tuple[FailedAttempt, ...] = ()
    waits: tuple[Wait, ...] = ()
    progress: tuple[LastProgress, ...] = ()
    retired_seq: int | None = None
    """The lowest `seq` of a retired record: later records are used if asked for, and are never a mismatch."""
    record_bytes: int = field(default=0, compare=False)
    """What the records take, for the limit on a history."""


EMPTY = History()
