"""SkippingClock: the machine's clock and an offset that a test moves, so that a week passes in a moment.

Only instants are moved. What measures real work (renewals of a lease, time-outs of calls, back-off) goes by
`monotonic()`, which stays the machine's own: else a skipped week would make every worker look silent.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Protocol
from weakref import WeakSet

from outlast.clock import StoreClock, SystemClock


class LivesByTheClock(Protocol):
    """Who has to know that time is skipped."""

    async def before_skip(self, instant: datetime) -> None:
        """Time is about to be moved to `instant`."""
        ...

    async def after_skip(self) -> None: ...


class SkippingClock:
    """A `Clock` whose instants can be moved forward by hand."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._skipped = timedelta(0)
        self._living: WeakSet[LivesByTheClock] = WeakSet()

    def now(self) -> datetime:
        return self._clock.now() + self._skipped

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def join(self, one: LivesByTheClock) -> None:
        """Tell `one` of every skip from now on."""
        self._living.add(one)

    def leave(self, one: LivesByTheClock) -> None:
        self._living.discard(one)

    async def advance(self, duration: timedelta) -> None:
        """Move time forward at once, and return when everybody who lives by this clock has taken note."""
        living = list(self._living)
        for one in living:
            await one.before_skip(self.now() + duration)
        self._skipped += duration
        for one in living:
            await one.after_skip()


class SkippingStoreClock(StoreClock):
    """The database's time where the clock decides in the database too: never an estimate, so that no late answer sets it back."""

    def __init__(self, clock: SkippingClock) -> None:
        super().__init__(clock)
        self._skipping = clock

    def correct(self, instant: datetime) -> None:
        """There is nothing to correct."""

    def now(self) -> datetime:
        return self._skipping.now()
