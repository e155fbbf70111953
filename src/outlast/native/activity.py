"""Activities: what steps in progress report. Kept at most once a second, for steps that take longer than that.

Reports are a courtesy to people and to the next attempt (`last_progress`); losing one loses no work.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from outlast.limits import ACTIVITY_EVERY
from outlast.run import Progress
from outlast.step_key import StepKey
from outlast.this_step import StepAttempt

from .store import ActivityRow, ClaimedRun


class _Watched(msgspec.Struct, gc=False):
    claim: ClaimedRun
    key: StepKey
    started_at: datetime
    progress: Progress | None = None
    is_dirty: bool = True
    was_taken: bool = False


class Activities:
    """The attempts in progress of one worker and what they last reported."""

    def __init__(self) -> None:
        self._watched: dict[StepAttempt[Any], _Watched] = {}

    def watch(self, attempt: StepAttempt[Any], claim: ClaimedRun, key: StepKey, started_at: datetime) -> None:
        self._watched[attempt] = _Watched(claim, key, started_at)

    def report(self, attempt: StepAttempt[Any], progress: Progress) -> None:
        """Take a report, on whatever thread the step makes it; one assignment each, so no lock is needed."""
        watched = self._watched.get(attempt)
        if watched is not None:
            watched.progress = progress
            watched.is_dirty = True

    def forget(self, attempt: StepAttempt[Any]) -> tuple[Progress | None, bool]:
        """The attempt has ended; return its last report, and whether anything of it may be in the database."""
        watched = self._watched.pop(attempt)
        return watched.progress, watched.was_taken

    def take_due(self, now: datetime) -> list[ActivityRow]:
        """Return the rows that have changed since they were last taken, of attempts that have taken a second."""
        rows = []
        for attempt, watched in list(self._watched.items()):
            if watched.is_dirty and now - watched.started_at >= ACTIVITY_EVERY:
                watched.is_dirty = False
                watched.was_taken = True
                rows.append(_row(attempt, watched))
        return rows


def _row(attempt: StepAttempt[Any], watched: _Watched) -> ActivityRow:
    progress = watched.progress
    return ActivityRow(
        hold=watched.claim.hold,
        generation=watched.claim.generation,
        key=watched.key,
        attempt=attempt.attempt,
        started_at=watched.started_at,
        done=progress.done if progress else None,
        total=progress.total if progress else None,
        note=progress.note if progress else "",
    )
