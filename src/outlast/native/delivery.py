"""Delivery: moves what has come due, or was signaled, to where it can be claimed.

A pass is a repeated query over an index, done by every worker, a page at a time and skipping what is locked; none of it
is kept in memory but when the next timer comes due, which is only a hint.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta

from outlast.limits import FLAGS_POLL, IDLE_POLL, OVERDUE_EVERY, SIGNAL_BATCH, TIMER_BATCH

from .calls import Backoff, Calls
from .store import Look, Store

_SOON = timedelta(milliseconds=1)


class Delivery:
    """The passes over timers and signals of one worker, or of a sender after its own commit."""

    def __init__(self, calls: Calls, store: Store, now: Callable[[], datetime | None]) -> None:
        self._calls = calls
        self._store = store
        self._now = now
        self._next_due_at: datetime | None = None
        self._passed_at: datetime | None = None
        self._looked_at: datetime | None = None

    async def look(self, lanes: tuple[int, ...]) -> Look:
        """Look for work and for the next timer, in one statement, and end what it shows to be overdue."""
        look = await self._calls.read("look", lambda tx: self._store.look(tx, lanes, self._now()))
        self._next_due_at, self._looked_at = look.next_due_at, look.now
        if look.has_overdue:
            await self.end_overdue()
        return look

    def due_in(self, now: datetime) -> timedelta:
        """Return how long a worker may sleep before a timer comes due, or its poll's time has come."""
        if self._next_due_at is None:
            return IDLE_POLL
        return max(_SOON, min(IDLE_POLL, self._next_due_at - now))

    async def wake_when_due(self, now: datetime) -> set[int]:
        """Make a pass if a known timer has come due, or a busy worker has not made one for a while; return the lanes woken."""
        is_due = self._next_due_at is not None and self._next_due_at <= now
        if not is_due and self._passed_at is not None and now - self._passed_at < FLAGS_POLL:
            return set()
        if not is_due and self._next_due_at is None and self._passed_at is not None and now - self._passed_at < IDLE_POLL:
            return set()
        self._passed_at = now
        return await self.wake()

    async def wake(self) -> set[int]:
        """Move every waiting run whose time has come to `pending`."""
        lanes: set[int] = set()
        while True:
            page = await self._calls.write("wake_due", lambda tx: self._store.wake_due(tx, TIMER_BATCH, self._now()))
            lanes |= page
            if not page:
                self._next_due_at = None
                return lanes

    async def deliver(self) -> set[int]:
        """Deliver every signal that is there, and wake who waits for it; return the lanes of what was woken."""
        lanes: set[int] = set()
        while True:
            page = await self._calls.write("deliver_signals", lambda tx: self._store.deliver_signals(tx, SIGNAL_BATCH, self._now()))
            lanes |= page.lanes
            if not page.has_more:
                return lanes

    def _has_looked(self, now: datetime) -> bool:
        """Tell whether a look has just shown what there is to do: a busy worker does not look."""
        return self._looked_at is not None and now - self._looked_at < OVERDUE_EVERY

    async def sweep_overdue(self, now: datetime) -> None:
        """Deal with overdue runs, unless a look has just shown whether there are any."""
        if not self._has_looked(now):
            await self.end_overdue()

    async def sweep_undelivered(self, now: datetime) -> set[int]:
        """Deliver signals whose sender has not, unless a look has just shown whether there are any; return the lanes of what was woken."""
        return set() if self._has_looked(now) else await self.deliver()

    async def delete_expired(self) -> int:
        """Forget signals whose time to live is over, page by page."""
        count = 0
        while page := await self._calls.write("delete_expired", lambda tx: self._store.delete_expired(tx, SIGNAL_BATCH, self._now())):
            count += page
        return count

    async def end_overdue(self) -> int:
        """Deal with runs that reached their deadline while nobody held them."""
        count = 0
        while page := await self._calls.write("end_overdue", lambda tx: self._store.end_overdue(tx, TIMER_BATCH, self._now())):
            count += page
        return count

    async def end_all_overdue(self, lanes: tuple[int, ...]) -> None:
        """Deal with them until none is left that a look sees: one that somebody else has locked at this moment is passed over by a pass."""
        backoff = Backoff()
        while True:
            look = await self.look(lanes)
            if not look.has_overdue:
                return
            await asyncio.sleep(backoff.next())
