"""Telling: a body whose run was canceled, is overdue or has to leave is asked to end, and what it did is noted.

Theory of operation. What the body awaits raises `CancelRequested`, and so does all that it asks for from then on;
attempts in coroutines are canceled, threads see `this_step().canceled`, processes are told and then killed. After the
grace the body is closed from outside. The verdict says how it went: `acknowledged`, `killed`, or `ignored` by a thread
that still runs; what that one returns is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from outlast.clock import Clock
from outlast.events import Events

from .driver import NativeDriver
from .ending import Ending
from .performer import Performer, look_at

ACKNOWLEDGED, IGNORED, KILLED = "acknowledged", "ignored", "killed"
"""The verdicts. The words are persisted and never change."""


async def tell(
    driver: NativeDriver, performer: Performer, events: Events, clock: Clock, *, reason: str, ending: Callable[[str], Ending | None], grace: timedelta
) -> None:
    """Tell a body, wait for it at most `grace`, and enter its end; an `ending` of None leaves the run to the lease."""
    run_id = driver.claim.id
    attempts = performer.attempts_of(run_id)
    for attempt in attempts:
        attempt.grace = grace / 2  # so that a process which had to be killed has ended, and shows it, when the verdict is made
    events.emit("run_told", run=run_id, reason=reason)
    driver.tell(reason)
    waiting: set[asyncio.Future[Any]] = set(performer.tasks_of(run_id))
    if driver.root is not None:
        waiting.add(driver.root)
    ends_at = clock.monotonic() + grace.total_seconds()
    if waiting:
        await asyncio.wait(waiting, timeout=grace.total_seconds())
    threads = {asyncio.wrap_future(thread) for thread in performer.lingering(run_id)}
    for thread in threads:
        thread.add_done_callback(look_at)
    if threads:
        await asyncio.wait(threads, timeout=max(0.0, ends_at - clock.monotonic()))
    has_ended = all(future.done() for future in waiting | threads)
    verdict = IGNORED if not has_ended else KILLED if any(attempt.was_killed for attempt in attempts) else ACKNOWLEDGED
    end = ending(verdict)
    driver.end_told(end if end is not None else Ending(None, reason))
