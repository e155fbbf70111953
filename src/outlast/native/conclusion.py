"""Conclusion: how one look at a call ended that is more than a step: what the driver is told, and what it does with it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from outlast.database.borrowed import Kept
from outlast.decision import decision_topic
from outlast.errors import OutlastError
from outlast.failure import Failure

from .store import StepCheckpoint

if TYPE_CHECKING:
    from .call import Call
    from .driver import NativeDriver


@dataclass(frozen=True, slots=True)
class Committed:
    """A transaction has committed, with the record of its call or apart from it."""

    kept: Kept[StepCheckpoint]

    def tell(self, driver: NativeDriver, call: Call, started_at: datetime) -> None:
        driver.record_kept(call, self.kept, started_at)


@dataclass(frozen=True, slots=True)
class Recorded:
    """The call has its record, committed with all that belongs to it."""

    checkpoint: StepCheckpoint

    def tell(self, driver: NativeDriver, call: Call, started_at: datetime) -> None:
        driver.record_kept(call, Kept(self.checkpoint.record.result or "null", self.checkpoint), started_at)


@dataclass(frozen=True, slots=True)
class Failed:
    """An attempt is known not to have been done; another follows after the delay. Without one the call fails."""

    failure: Failure
    delay: timedelta | None

    def tell(self, driver: NativeDriver, call: Call, started_at: datetime) -> None:
        driver.attempt_failed(call, self.failure, started_at, self.delay)


@dataclass(frozen=True, slots=True)
class Later:
    """Nothing can be known or done before an instant."""

    due_at: datetime

    def tell(self, driver: NativeDriver, call: Call, started_at: datetime) -> None:
        driver.wait_until(call, self.due_at)


@dataclass(frozen=True, slots=True)
class Asked:
    """Nothing can be done before a person has answered; `due_at` for a question that another run may have put."""

    decision: str
    due_at: datetime | None

    def tell(self, driver: NativeDriver, call: Call, started_at: datetime) -> None:
        driver.wait_for_topic(call, decision_topic(self.decision), self.due_at)


@dataclass(frozen=True, slots=True)
class Broken:
    """The code asks for another operation than the one that is planned here, or the database refuses to keep what it says."""

    error: OutlastError

    def tell(self, driver: NativeDriver, call: Call, started_at: datetime) -> None:
        driver.fail(self.error)


@dataclass(frozen=True, slots=True)
class Met:
    """It has what it waited for, or its time is over: that is to be recorded."""

    result: str
    """JSON text."""
    heard: tuple[str, int] | None = None
    """The topic and number of the signal that is used up."""

    def tell(self, driver: NativeDriver, call: Call, started_at: datetime) -> None:
        driver.wait_met(call, self.result, started_at, self.heard)


@dataclass(frozen=True, slots=True)
class Unmet:
    """Look again at an instant, or when the topic is signaled."""

    topic: str | None
    after: int
    """The newest signal that was seen on it."""
    look_at: datetime | None

    def tell(self, driver: NativeDriver, call: Call, started_at: datetime) -> None:
        driver.wait_for_topic(call, self.topic, self.look_at, self.after)


Conclusion = Committed | Recorded | Failed | Later | Asked | Broken | Met | Unmet
