"""Patience: waiting with a limit.

`asyncio.wait_for` is not used in the engine: on Python 3.11 it swallows a cancel that comes in the same turn as what it
waits for, and a loop that is canceled so goes on for ever, with whoever waits for its end. `asyncio.timeout` does not.
"""

from __future__ import annotations

import asyncio


async def wait_until_set(event: asyncio.Event, seconds: float) -> bool:
    """Wait until an event is set, or until the time is over; return whether it is set. A cancel always comes through."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
