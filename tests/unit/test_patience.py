"""Waiting with a limit: a cancel that comes in the same turn as the event is not swallowed."""

import asyncio
from pathlib import Path

import pytest

import outlast.native
from outlast.native.patience import wait_until_set


def test_a_cancel_that_comes_with_the_event_comes_through():
    """On Python 3.11 `asyncio.wait_for` swallows it here, and a loop around it would never end."""

    async def main():
        event = asyncio.Event()
        waiter = asyncio.create_task(wait_until_set(event, 60))
        await asyncio.sleep(0)
        event.set()
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter

    asyncio.run(main())


def test_it_says_whether_the_event_came():
    """True for the event, False for the end of the time."""

    async def main():
        event = asyncio.Event()
        assert not await wait_until_set(event, 0.0)
        event.set()
        assert await wait_until_set(event, 60)

    asyncio.run(main())


def test_the_engine_waits_with_patience_only():
    """No part of the engine uses `asyncio.wait_for`."""
    files = Path(outlast.native.__path__[0]).rglob("*.py")
    assert [file.name for file in files if "asyncio.wait_for(" in file.read_text()] == []
