"""Signals between engines. Without polls, what wakes a run is the delivery of whoever sent, from outside or in a body; with polls alone nothing is lost."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from outlast.context import Context
from outlast.native import delivery, rounds
from outlast.run import RunStatus
from outlast.task import task

from .engine_world import WAIT, engine_at, play, until

NEVER = timedelta(hours=1)


@task
async def waiter(ctx: Context) -> Any:
    signal = await ctx.wait_for("door")
    return signal and signal.payload


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'outlast.db'}" if request.param == "sqlite" else request.getfixturevalue("postgres_url")


@pytest.fixture
def no_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle worker sleeps until it is woken, and no round delivers anything."""
    monkeypatch.setattr(delivery, "IDLE_POLL", NEVER)
    monkeypatch.setattr(delivery, "OVERDUE_EVERY", NEVER)
    monkeypatch.setattr(rounds, "OVERDUE_EVERY", NEVER)


@pytest.mark.usefixtures("no_polls")
def test_a_sender_delivers_what_it_sends(url: str) -> None:
    """An engine that executes nothing sends: the run that waits on a worker elsewhere goes on, and no poll has found it."""

    async def scenario() -> None:
        async with engine_at(url, waiter) as worker, engine_at(url, starts=False) as client:
            run = await worker.engine.enqueue(waiter)
            await until("it is parked", lambda: worker.log.find("run_parked", run=run.id))
            assert (await client.engine.signal("door", 7)).waiting == 1
            assert await run.result(timeout=WAIT) == 7

    play(scenario())


@pytest.mark.usefixtures("no_polls")
def test_what_a_body_sends_is_delivered_by_its_worker(url: str) -> None:
    """Soon after the flush that has its record, while the body goes on and nothing else makes its worker look."""

    async def scenario() -> None:
        heard = asyncio.Event()

        @task
        async def sender(ctx: Context, payload: int) -> None:
            await ctx.signal("door", payload)
            await ctx.step(heard.wait)

        async with engine_at(url, waiter, sender) as worker:
            run = await worker.engine.enqueue(waiter)
            await until("it is parked", lambda: worker.log.find("run_parked", run=run.id))
            sending = await worker.engine.enqueue(sender, 8)
            assert await run.result(timeout=WAIT) == 8
            heard.set()
            await sending.result(timeout=WAIT)

    play(scenario())


def test_a_worker_that_hears_nothing_finds_by_polls_what_was_delivered(url: str) -> None:
    """A deaf listener costs latency only."""

    async def scenario() -> None:
        async with engine_at(url, waiter, starts=False) as worker, engine_at(url, starts=False) as client:
            worker.engine._backend.wakes.listen = lambda wake: None  # type: ignore[method-assign, assignment]  # it is deaf
            await worker.engine.start()
            run = await worker.engine.enqueue(waiter)
            await until("it is parked", lambda: worker.log.find("run_parked", run=run.id))
            await client.engine.signal("door", 9)
            await until("it is over", lambda: worker.log.find("run_ended", run=run.id))
            assert (await client.engine.get(run.id)).output == "9"

    play(scenario())


def test_what_a_sender_has_left_undelivered_any_worker_delivers(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sender that dies right after its commit: the signal is found by a look."""

    async def scenario() -> None:
        async with engine_at(url, waiter) as worker, engine_at(url, starts=False) as client:
            run = await worker.engine.enqueue(waiter)
            await until("it is parked", lambda: worker.log.find("run_parked", run=run.id))
            await client.engine.find(run.id)
            assert client.engine._sender is not None
            monkeypatch.setattr(client.engine._sender, "deliver", _nothing)
            await client.engine.signal("door", 10)
            assert await run.result(timeout=WAIT) == 10
            assert (await run.view()).status is RunStatus.SUCCEEDED

    play(scenario())


def test_a_topic_that_somebody_has_locked_holds_up_no_sender(postgres_url: str) -> None:
    """The send is committed and answered; who waits is woken when the topic is free."""
    from .test_postgres_signals import stranger

    async def scenario() -> None:
        async with engine_at(postgres_url, waiter) as worker, engine_at(postgres_url, starts=False) as client:
            run = await worker.engine.enqueue(waiter)
            await until("it is parked", lambda: worker.log.find("run_parked", run=run.id))
            with stranger(postgres_url, "SELECT outlast.lock_topics(ARRAY[%s])", "door"):
                receipt = await client.engine.signal("door", 11)
                assert receipt.created
                assert (await client.engine.get(run.id)).status is RunStatus.WAITING
            assert await run.result(timeout=WAIT) == 11

    play(scenario())


async def _nothing() -> None:
    """What is left undone."""
