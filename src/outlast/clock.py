"""The only reader of time. Nothing else in the library asks what time it is, so that a test can move it."""

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Where a part of the engine reads time from."""

    def now(self) -> datetime:
        """Return the current instant, aware and in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go back, for measuring how long something took."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    monotonic = staticmethod(time.monotonic)
    """Without a call in between: it is read twice a step."""


def wall_milliseconds() -> int:
    """Return the milliseconds since 1970 by the machine's own clock, for ids that sort by time and nothing else."""
    return time.time_ns() // 1_000_000


class StoreClock:
    """The database's time, estimated between two answers from it by the machine's monotonic clock.

    It is what a body sees as the time of a record, and what decides inside a worker whether a timer has come due. A
    database decides by its own clock in its own statements; this estimate is never a predicate there.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.correct(clock.now())

    def correct(self, instant: datetime) -> None:
        """Take what the database has just said its time is."""
        self._microseconds = round(instant.timestamp() * 1e6)
        self._measured = self._clock.monotonic()

    def now(self) -> datetime:
        # Asked twice a step, so without a timedelta. The whole number of microseconds is exact as a float until the year 2255.
        return datetime.fromtimestamp((self._microseconds + round((self._clock.monotonic() - self._measured) * 1e6)) / 1e6, UTC)

    def monotonic(self) -> float:
        return self._clock.monotonic()


def ensure_aware(instant: datetime, name: str) -> datetime:
    """Return `instant` in UTC; a naive one is refused, because it means another moment on each machine."""
    if instant.utcoffset() is None:  # a tzinfo may decline to answer, and then the instant is as naive as without one
        raise ValueError(f"{name} has no time zone: write datetime(..., tzinfo=UTC)")
    return instant.astimezone(UTC)
