"""Backoff: growing delays between tries of what fails for now, and which failures of a database those are."""

from __future__ import annotations

from outlast.errors import UnavailableError
from outlast.ids import jitter

from .transaction import Refusal, RefusedError

_FIRST, _MAX = 0.05, 5.0  # seconds: a blip costs little, an outage no storm
_PASSING = (Refusal.BUSY, Refusal.FULL, Refusal.READ_ONLY)


class Backoff:
    """Growing, spread delays between tries of something that fails for now."""

    def __init__(self, maximum: float = _MAX) -> None:
        self._delay = _FIRST
        self._maximum = maximum

    def next(self) -> float:
        """Return how many seconds to wait before the next try."""
        delay = self._delay * (0.5 + jitter())
        self._delay = min(self._delay * 2, self._maximum)
        return delay

    def reset(self) -> None:
        self._delay = _FIRST


def is_passing(error: Exception) -> bool:
    """Tell whether the same call may succeed later without anything being changed."""
    return isinstance(error, UnavailableError) or (isinstance(error, RefusedError) and error.refusal in _PASSING)
