"""The parking decision: may a run whose body stands still leave memory, and how? Pure.

A run parks only when no call of it is being performed and no record is on its way; then what its branches wait for, by time
or by name, is written, and an earlier instant than two seconds from now is waited for in memory, because a park and a claim cost more.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from outlast.limits import TIMER_IN_MEMORY_MAX
from outlast.step_key import StepKey

from .call import Call, CallState
from .history import Wait


@dataclass(frozen=True, slots=True)
class Park:
    """Close the body and wait until an instant, or until something by name."""

    due_at: datetime | None
    waits: tuple[Wait, ...]


@dataclass(frozen=True, slots=True)
class HandBack:
    """Close the body and let another worker go on at once."""


@dataclass(frozen=True, slots=True)
class Stuck:
    """Nothing can ever move the body: it awaits only what an earlier execution gave up here."""

    key: StepKey


Decision = Park | HandBack | Stuck | None
"""None: stay in memory."""


def parking_of(calls: Collection[Call], *, now: datetime, is_draining: bool) -> Decision:
    """Decide for a body that stands still, with every record handed over and none on its way."""
    if not calls or not all(call.can_park or (is_draining and call.state is CallState.DEFERRED) for call in calls):
        return None
    dues = [call.due_at for call in calls if call.due_at is not None]
    is_named = any(call.topic is not None for call in calls)
    if is_draining and (not (dues or is_named) or any(call.state is CallState.DEFERRED for call in calls)):
        return HandBack()
    if not dues and not is_named:
        return Stuck(next(iter(calls)).key)
    if is_draining or not dues or min(dues) - now >= TIMER_IN_MEMORY_MAX:
        waiting = (call for call in calls if call.state is CallState.WAITING)
        return Park(min(dues, default=None), tuple(Wait(call.key, call.kind, _registered(call), call.topic, call.after) for call in waiting))
    return None


def _registered(call: Call) -> datetime | None:
    """Return when a wait ends: its own instant, which never changes, and not that of its next look."""
    return call.due_at if call.awaited is None else call.awaited.due_at
