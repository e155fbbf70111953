"""Attempt: one attempt in progress, from when it is begun until the driver is told how it ended.

What the step itself may see of it, a `StepAttempt`, is made when it is first asked for: most short steps never ask.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from outlast.run import Progress
from outlast.this_step import StepAttempt

from .call import Call

if TYPE_CHECKING:
    from .driver import NativeDriver

_MAKING = threading.Lock()
"""A step may ask on any of its threads, and be told to stop at the same moment."""


class Attempt(msgspec.Struct, eq=False):
    """One attempt of one call, and what it reports."""

    call: Call
    driver: NativeDriver
    services: Callable[[], Any]
    started_at: datetime | None = None
    """None until it has begun."""
    task: asyncio.Task[None] | None = None
    """That carries it while it is in progress."""
    progress: Progress | None = None
    """What it last reported."""
    is_dirty: bool = True
    """Something of it is not in the database yet."""
    was_taken: bool = False
    """Something of it may be there."""
    _seen: StepAttempt[Any] | None = None
    _told: str | None = None

    @property
    def run_id(self) -> str:
        return self.driver.claim.id

    def see(self) -> StepAttempt[Any]:
        """Return what `this_step()` returns, always the same. May be called on any thread."""
        with _MAKING:
            if self._seen is None:
                self._seen = self._make()
                if self._told is not None:
                    self._seen.tell(self._told)
            return self._seen

    def _make(self) -> StepAttempt[Any]:
        call, claim = self.call, self.driver.claim
        reported = call.open.progress
        earlier = None if reported is None else Progress(reported.done, reported.total, reported.note)
        return StepAttempt(
            run_id=claim.id,
            key=call.key,
            attempt=call.attempts + 1,
            fencing_token=claim.token,
            services=self.services,
            log=self.driver.get_log,
            last_progress=call.progress or earlier,
            on_progress=self._report,
        )

    def _report(self, _: StepAttempt[Any], progress: Progress) -> None:
        """Take a report, on whatever thread the step makes it; one assignment each, so no lock is needed."""
        self.progress = progress
        self.is_dirty = True

    def tell(self, reason: str) -> None:
        """Tell the step to stop, whether it has looked at its attempt yet or not."""
        with _MAKING:
            self._told = reason
            if self._seen is not None:
                self._seen.tell(reason)

    def cancel(self) -> None:
        """Cancel the task that carries it; of one that has ended nothing is left to cancel."""
        if self.task is not None:
            self.task.cancel()
