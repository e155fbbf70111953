"""Answers whose giver died between his commit and the delivery: whoever looks next delivers them, idle or busy."""

import asyncio
from typing import Any

from outlast import Attempt, Context, connect, effect, task
from outlast.native.deciding import Answering
from outlast.native.engine import NativeEngine

from .engine_world import WAIT, engine_at, play, query, until


@effect
async def pay(attempt: Attempt[Any], amount: int) -> str:
    """Be done at the second attempt, of which the first leaves nobody knowing."""
    if attempt.number == 1:
        raise ConnectionResetError("sent, and then the line went dead")
    return f"attempt {attempt.number}"


@task
async def buy(ctx: Context, amount: int) -> str:
    """Pay once, or ask."""
    return await ctx.effect(pay, amount)


async def answer_and_die(url: str, run_id: str) -> None:
    """Commit an answer as `decide` does, and be gone before anything is delivered."""
    async with connect(url) as giver:
        assert isinstance(giver, NativeEngine)
        (decision,) = await giver.inspector.list_decisions(run_id)
        runtime = await giver._open()
        await runtime.calls.write("decide", lambda tx: Answering(decision.id, "again", None, "", "ann").answer(runtime, tx))


def test_a_worker_delivers_what_nobody_has_delivered(database_url: str) -> None:
    """An idle worker sees at its next look that an answer was sent, and the run goes on."""

    async def scenario() -> None:
        async with engine_at(database_url, buy) as heard:
            run = await heard.engine.enqueue(buy, 40)
            await heard.log.wait("run_parked", timeout=WAIT, run=run.id)
            await answer_and_die(database_url, run.id)
            assert await run.result(timeout=WAIT) == "attempt 2"
            await until("the signal is delivered", lambda: query(database_url, "SELECT count(*) FROM {signal} WHERE NOT is_delivered") == [(0,)])

    play(scenario())


def test_a_worker_delivers_for_others_too(database_url: str) -> None:
    """What waits for an answer need not be a task of the worker that delivers it; whoever has the task claims it."""

    @task
    async def other(ctx: Context) -> None:
        """Keep the first worker's lane another one."""

    async def scenario() -> None:
        async with engine_at(database_url, buy) as heard:
            run = await heard.engine.enqueue(buy, 40)
            await heard.log.wait("run_parked", timeout=WAIT, run=run.id)
        async with engine_at(database_url, other) as deliverer:
            await answer_and_die(database_url, run.id)
            await until("another worker has delivered it", lambda: query(database_url, "SELECT status FROM {run}") == [("pending",)])
            assert deliverer.transactions("deliver_signals") >= 1
        async with engine_at(database_url, buy) as heard:
            assert await heard.engine.handle(buy, run.id).result(timeout=WAIT) == "attempt 2"

    play(scenario())


def test_a_worker_that_never_rests_delivers_too(database_url: str) -> None:
    """A worker that is busy does not look; its sweep delivers what a look would have shown."""
    gate = asyncio.Event()

    async def wait_for_gate() -> None:
        await gate.wait()

    @task
    async def busy(ctx: Context) -> None:
        """Take the only slot."""
        await ctx.step(wait_for_gate)

    async def scenario() -> None:
        async with engine_at(database_url, buy, busy, concurrency=1) as heard:
            run = await heard.engine.enqueue(buy, 40)
            await heard.log.wait("run_parked", timeout=WAIT, run=run.id)
            filler = await heard.engine.enqueue(busy)
            await heard.log.wait("run_started", timeout=WAIT, run=filler.id)
            await answer_and_die(database_url, run.id)
            await until("the busy worker has delivered it", lambda: query(database_url, "SELECT count(*) FROM {run} WHERE status = 'pending'") == [(1,)])
            gate.set()
            assert await run.result(timeout=WAIT) == "attempt 2"

    play(scenario())
