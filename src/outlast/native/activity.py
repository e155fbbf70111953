"""Activities: what steps in progress report. Kept at most once a second, for steps that take longer than that.

Reports are a courtesy to people and to the next attempt (`last_progress`); losing one loses no work.
"""

from __future__ import annotations

from datetime import datetime

from outlast.limits import ACTIVITY_EVERY

from .attempt import Attempt
from .call import Call
from .store import ActivityRow


class Activities:
    """The attempts in progress of one worker and what they last reported."""

    def __init__(self) -> None:
        self.attempts: dict[Call, Attempt] = {}
        """From when they are begun; the performer's to keep."""

    def take_due(self, now: datetime) -> list[ActivityRow]:
        """Return the rows that have changed since they were last taken, of attempts that have taken a second."""
        rows = []
        for attempt in list(self.attempts.values()):
            started_at = attempt.started_at
            if attempt.is_dirty and started_at is not None and now - started_at >= ACTIVITY_EVERY:
                attempt.is_dirty = False
                attempt.was_taken = True
                rows.append(_row(attempt, started_at))
        return rows


def _row(attempt: Attempt, started_at: datetime) -> ActivityRow:
    claim, call, progress = attempt.driver.claim, attempt.call, attempt.progress
    return ActivityRow(
        hold=claim.hold,
        generation=claim.generation,
        key=call.key,
        attempt=call.attempts + 1,
        started_at=started_at,
        done=progress.done if progress else None,
        total=progress.total if progress else None,
        note=progress.note if progress else "",
    )
