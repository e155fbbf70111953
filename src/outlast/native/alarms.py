"""Alarms: when calls that wait in memory may go on, by this process's estimate of the database's clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from outlast.branch import NO_BODY

from .call import Call, CallState


class Alarms:
    """The alarms of one execution. `on_due` is called on the loop, never before the instant by `clock`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], datetime], on_due: Callable[[Call], None]) -> None:
        self._loop = loop
        self._clock = clock
        self._on_due = on_due

    def set(self, call: Call, due_at: datetime) -> None:
        """Wait until an instant of the database's clock."""
        call.due_at = due_at
        seconds = max(0.0, (due_at - self._clock()).total_seconds())
        call.work = self._loop.call_later(seconds, self._ring, call, context=NO_BODY)

    def look_by(self, call: Call, delay: timedelta) -> None:
        """Wait for a while, or until the call's own instant if that comes first."""
        if call.due_at is not None and (call.topic is None or call.due_at - self._clock() <= delay):
            self.set(call, call.due_at)
        else:
            call.work = self._loop.call_later(delay.total_seconds(), self._on_due, call, context=NO_BODY)

    def _ring(self, call: Call) -> None:
        """The loop's timer may ring a little early."""
        if call.due_at is not None and self._clock() < call.due_at:
            self.set(call, call.due_at)
        else:
            self._on_due(call)

    def set_anew(self, calls: Iterable[Call]) -> None:
        """The clock was moved by hand."""
        for call in calls:
            if call.state in (CallState.WAITING, CallState.RETRYING) and call.due_at is not None:
                call.stop()
                self.set(call, call.due_at)
