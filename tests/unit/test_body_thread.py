"""The thread of a `def` body by itself: its end when it will not end, and when it cannot begin."""

import asyncio
import logging
import threading

import pytest

from outlast import body_thread
from outlast.blocking_context import BlockingContext
from outlast.body_thread import BodyThread, BodyUnwound
from outlast.branch import Branches

SECONDS_MAX = 30.0


class OpenContext:
    """A context whose sleep never ends."""

    async def sleep(self, duration: float) -> None:
        await asyncio.get_running_loop().create_future()


async def closed_while_it_sleeps(function, thread_named: list[BodyThread]) -> None:
    """Run a body until it sleeps, and close it from outside."""
    branches = Branches(asyncio.get_running_loop())

    async def body() -> None:
        thread = BodyThread(function, OpenContext(), ())  # type: ignore[arg-type]  # a double
        thread_named.append(thread)
        await thread.serve()

    root = branches.start(body())
    async with asyncio.timeout(SECONDS_MAX):
        while not thread_named or thread_named[0].request is not None:  # noqa: ASYNC110 - nothing else tells that it awaits its call
            await asyncio.sleep(0.01)
    branches.close()
    await asyncio.wait({root}, timeout=SECONDS_MAX)
    assert root.cancelled()
    assert thread_named[0].request is None


def test_a_body_that_catches_its_unwinding_again_and_again_is_named(monkeypatch, caplog):
    """Every call raises again, it is said once, and the thread has slow turns from then on."""
    monkeypatch.setattr(body_thread, "_REFUSAL_SECONDS", 0.001)
    caught: list[str] = []

    def stubborn(ctx: BlockingContext) -> None:
        while len(caught) < 130:
            try:
                ctx.sleep(1)
            except BaseException as error:
                caught.append(type(error).__name__)

    threads: list[BodyThread] = []
    with caplog.at_level(logging.ERROR):
        asyncio.run(closed_while_it_sleeps(stubborn, threads))
        threads[0].ended.result(SECONDS_MAX)
    assert caught == [BodyUnwound.__name__] * 130
    assert [record.message for record in caplog.records] == ["the body of stubborn catches its own unwinding again and again; its thread is left behind"]


def test_a_thread_outlives_its_loop_in_peace():
    """What it asks for after the loop was closed raises too, and it ends."""
    opened, raised = threading.Event(), []

    def slow(ctx: BlockingContext) -> None:
        try:
            ctx.sleep(1)
        finally:
            opened.wait(SECONDS_MAX)
            try:
                ctx.sleep(1)
            except BodyUnwound as error:
                raised.append(error)

    threads: list[BodyThread] = []
    asyncio.run(closed_while_it_sleeps(slow, threads))
    opened.set()
    threads[0].ended.result(SECONDS_MAX)
    assert len(raised) == 1


def test_a_thread_that_cannot_begin_is_the_bodys_error(monkeypatch):
    """What the operating system says is raised, and nothing waits for a thread that never was."""

    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def scenario() -> BodyThread:
        branches = Branches(asyncio.get_running_loop())
        made: list[BodyThread] = []

        async def body() -> None:
            made.append(BodyThread(lambda ctx: None, OpenContext(), ()))  # type: ignore[arg-type]  # a double
            await made[0].serve()

        with pytest.raises(RuntimeError, match="can't start new thread"):
            await branches.start(body())
        return made[0]

    monkeypatch.setattr(threading.Thread, "start", refused)
    assert asyncio.run(scenario()).ended.done()
