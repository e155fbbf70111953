"""WriteRefusals: says once that the database takes no writes, and once that it does again, however many calls meet it.

A disk that is full, a file that is read-only or that somebody keeps locked: reads are answered all the while, so that
nothing else would tell. A full disk takes one write and refuses the next, so writes count as taken again only when none
was refused for longer than the slowest repetition of one.
"""

from __future__ import annotations

import logging
import threading

from outlast.clock import Clock
from outlast.database.transaction import Refusal, RefusedError

logger = logging.getLogger("outlast")

_QUIET_SECONDS = 10.0  # a refused call is repeated within 7.5 s
_BUSY_SECONDS = 1.0  # an ordinary wait for somebody's row ends long before


class WriteRefusals:
    """What is known of one database's writes in one engine. May be called from any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._refused_at: float | None = None
        self._taken_since = clock.monotonic()
        self._lock = threading.Lock()

    @property
    def is_refusing(self) -> bool:
        return self._refused_at is not None

    @property
    def taken_for(self) -> float:
        """Seconds for which no write was refused by more than its own fault."""
        return 0.0 if self.is_refusing else self._clock.monotonic() - self._taken_since

    def note_refused(self, call: str, error: RefusedError, began: float) -> None:
        """Note a refusal of a call that began at this instant of the monotonic clock, if it is not that one call's own affair."""
        now = self._clock.monotonic()
        is_of_all = error.refusal in (Refusal.FULL, Refusal.READ_ONLY) or (error.refusal is Refusal.BUSY and now - began >= _BUSY_SECONDS)
        if not is_of_all:
            return
        with self._lock:
            was_refusing, self._refused_at = self._refused_at is not None, now
        if not was_refusing:
            logger.warning("the database takes no writes (%s): %s", call, error)

    def note_taken(self, call: str) -> None:
        with self._lock:
            is_over = self._refused_at is not None and self._clock.monotonic() - self._refused_at >= _QUIET_SECONDS
            if is_over:
                self._refused_at, self._taken_since = None, self._clock.monotonic()
        if is_over:
            logger.warning("the database takes writes again (%s)", call)
