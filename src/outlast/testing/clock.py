"""SkippingClock: the machine's clock and an offset that a test moves, so that a week passes in a moment.

Only instants are moved. What measures real work (renewals of a lease, time-outs of calls, back-off) goes by
`monotonic()`, which stays the machine's own: else a skipped week would make every worker look silent.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from outlast.clock import StoreClock, SystemClock


class SkippingClock:
    """A `Clock` whose instants can be moved forward by hand."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._skipped = timedelta(0)

    def now(self) -> datetime:
        return self._clock.now() + self._skipped

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def skip(self, duration: timedelta) -> None:
        self._skipped += duration


class SkippingStoreClock(StoreClock):
    """The database's time where the clock decides in the database too: never an estimate, so that no late answer sets it back."""

    def __init__(self, clock: SkippingClock) -> None:
        super().__init__(clock)
        self._skipping = clock

    def correct(self, instant: datetime) -> None:
        """There is nothing to correct."""

    def now(self) -> datetime:
        return self._skipping.now()
