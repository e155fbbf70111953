"""Interrupting: a stop whose time is over ends the calls to the database that it still waits for.

A server, or a proxy before it, that has gone silent answers neither a call nor a request to cancel it; without this a
stop would wait as long as it is silent. What is interrupted raises as when a connection breaks.

While an engine is open, calls that take longer than any server would let them are ended too: whoever accepts bytes and
passes none on keeps a connection alive for ever, and a new one may get through.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

from outlast.database.transaction import Database

logger = logging.getLogger("outlast")

_AGAIN_SECONDS = 0.5  # what is interrupted may try once more before it gives up
_LOOK_SECONDS = 0.5


@contextmanager
def interrupting_after(seconds: float, databases: Iterable[Database]) -> Iterator[None]:
    """While the block goes on beyond `seconds`, end the calls that are under way, again and again."""
    loop = asyncio.get_running_loop()
    timers: list[asyncio.TimerHandle] = []

    def interrupt() -> None:
        logger.warning("the database does not answer, and the time to stop is over: calls that are under way are ended")
        for database in databases:
            database.interrupt()
        timers[:] = [loop.call_later(_AGAIN_SECONDS, interrupt)]

    timers.append(loop.call_later(seconds, interrupt))
    try:
        yield
    finally:
        for timer in timers:
            timer.cancel()


async def interrupt_hung(limits: Sequence[tuple[Database, timedelta]]) -> None:
    """End calls that hang for longer than their database's limit, until this is canceled."""
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        for database, limit in limits:
            database.interrupt_hung(limit)
