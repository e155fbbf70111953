"""Call: one durable call of a body that is being executed, from when it is asked for until it is handed over."""

from __future__ import annotations

from datetime import datetime
from enum import Enum, auto
from typing import Any, Protocol

import msgspec

from outlast.driver import Awaited, Handed, StepCall, Timer
from outlast.run import Progress
from outlast.step_key import StepKey

from .history import RecordKind
from .replay import NOT_STARTED, OpenCall


class CallState(Enum):
    """Where a call stands."""

    RECORDED = auto()
    """It has a record, which is handed over in its turn."""
    GIVEN_UP = auto()
    """It is recorded as given up: the body has to withdraw from it again."""
    DEFERRED = auto()
    """It waits until the replay has nothing more to hand over."""
    PERFORMING = auto()
    """An attempt is in progress, or its record is on its way: the run cannot park."""
    RETRYING = auto()
    """The next attempt begins at `due_at`."""
    WAITING = auto()
    """A timer that comes due at `due_at`."""


class Work(Protocol):
    """An attempt, or a timer."""

    def cancel(self) -> object: ...


class Call(msgspec.Struct, eq=False):
    """A call and what becomes of it."""

    key: StepKey
    kind: RecordKind
    future: Handed
    state: CallState
    step: StepCall | None = None
    digest: str = ""
    """Of its arguments."""
    timer: Timer | None = None
    awaited: Awaited | None = None
    open: OpenCall = NOT_STARTED
    due_at: datetime | None = None
    work: Work | None = None
    """What is going on for it: an attempt, or the timer of the next one."""
    attempts: int = 0
    """Attempts that ended with an error and count."""
    last_attempt: int = 0
    """The number of the last attempt ever made."""
    was_reported: bool = False
    """What an attempt in this execution reported may be in the database."""
    is_recorded: bool = False
    """Its record joined a flush."""
    is_stopped: bool = False
    """Nobody waits for what its attempt returns."""
    topic: str | None = None
    """What it waits for by name."""
    after: int = 0
    """The newest signal on it that was seen."""
    met: str | None = None
    """What a wait was given, as JSON text, from when its record joined a flush."""
    seq: int | None = None
    """The place of the record of a transaction or an effect, once it is about to write it."""
    transacting: Any = None
    """The attempt of a transaction or an effect that is in progress, or whose outcome is not known."""
    progress: Progress | None = None
    """What the last attempt in this execution reported."""

    @property
    def is_inserted(self) -> bool:
        """It was declared as added in front of calls that are recorded already."""
        return self.step is not None and self.step.step.options.inserted

    @property
    def is_in_doubt(self) -> bool:
        """Its record was, or may yet be, committed without anybody here being told."""
        return self.transacting is not None and self.transacting.may_commit

    @property
    def can_park(self) -> bool:
        return self.state in (CallState.RETRYING, CallState.WAITING, CallState.GIVEN_UP)

    def stop(self) -> None:
        """Cancel what goes on for it in this process."""
        if self.work is not None:
            self.work.cancel()
            self.work = None
