"""The outlast side: `python -m bench.outlast_load ACTION JSON`, one process a call, through the public surface only.

It prints events and measures only what its action names; databases, rounds and comparison are the harness's business.
The tasks do as little as their counterparts beside it, so that what is timed is the engine.
"""

import asyncio
import json
import resource
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import psycopg

from bench.event import report
from bench.sql import load_statements
from outlast import Context, connect, step, task
from outlast.effect import Attempt, effect

Options = dict[str, Any]

STEPS_IN_SEQUENCE = 10
POOL_CONNECTIONS = 20
STATEMENTS = load_statements(__file__)
POLL_SECONDS = 0.002
SHARED_POLL_SECONDS = 0.02
"""Asked while others work, so seldom enough not to matter."""
PARKED_POLL_SECONDS = 0.25


@dataclass(frozen=True)
class Job:
    """What every benchmarked run is given and gives back; `hold_seconds` is for the one that is killed."""

    number: int
    hold_seconds: float = 0.0


class Ended:
    """How many bodies of this process have ended, and whether it is all that were expected."""

    def __init__(self) -> None:
        self.expected = 0
        self.all = asyncio.Event()
        self._count = 0

    def add_one(self) -> None:
        self._count += 1
        if self._count >= self.expected:
            self.all.set()


ended = Ended()


@step
async def increment(number: int) -> int:
    """Do the least that a step can do."""
    return number + 1


@step(timeout="10m")
async def hold(number: int, seconds: float) -> int:
    """Be in progress while the worker is killed."""
    await asyncio.sleep(seconds)
    return number


@task("one_step")
async def one_step(ctx: Context, job: Job) -> Job:
    """One trivial step."""
    number = await ctx.step(increment, job.number)
    ended.add_one()
    return Job(number)


@task("ten_steps")
async def ten_steps(ctx: Context, job: Job) -> Job:
    """Ten trivial steps, one after the other."""
    number = job.number
    for _ in range(STEPS_IN_SEQUENCE):
        number = await ctx.step(increment, number)
    ended.add_one()
    return Job(number)


def write_note(connection: psycopg.Connection, number: int) -> int:
    """Write one row of the application's."""
    connection.execute(STATEMENTS["write_note"], [number])
    return number + 1


async def write_note_asynchronously(connection: psycopg.AsyncConnection, number: int) -> int:
    """Write the same row."""
    await connection.execute(STATEMENTS["write_note"], [number])
    return number + 1


@effect
async def touch_nothing(attempt: Attempt, number: int) -> int:
    """Do the least that an effect can do."""
    return number + 1


@task("one_transaction")
async def one_transaction(ctx: Context, job: Job) -> Job:
    """One transactional step on the engine's own database."""
    number = await ctx.transaction(ctx.database, write_note, job.number)
    ended.add_one()
    return Job(number)


@task("one_pool_transaction")
async def one_pool_transaction(ctx: Context[Any], job: Job) -> Job:
    """The same on a pool that the application has on that database."""
    number = await ctx.transaction(ctx.services, write_note_asynchronously, job.number)
    ended.add_one()
    return Job(number)


@task("one_effect")
async def one_effect(ctx: Context, job: Job) -> Job:
    """One effect that does nothing."""
    number = await ctx.effect(touch_nothing, job.number)
    ended.add_one()
    return Job(number)


@task("reporting")
async def reporting(ctx: Context, job: Job) -> Job:
    """Say when the first line was reached."""
    report("body", number=job.number)
    return job


@task("holding")
async def holding(ctx: Context, job: Job) -> Job:
    """Say when the first line was reached, and stay in a step."""
    report("body", number=job.number)
    await ctx.step(hold, job.number, job.hold_seconds)
    return job


@task("waking")
async def waking(ctx: Context, job: Job) -> Job:
    """Wait for a topic of its own, and say when the next line was reached."""
    await ctx.wait_for(_wake_topic(job.number))
    report("body", number=job.number)
    return job


def _wake_topic(number: int) -> str:
    return f"wake:{number}"


TASKS = {each.name: each for each in (one_step, ten_steps, one_transaction, one_pool_transaction, one_effect, reporting, holding, waking)}


def _engine(options: Options, services: Any = None) -> Any:
    """Return the engine as what it can do: `enqueue_many` is the native engine's, and not in the port of all engines."""
    return connect(options["url"], tasks=tuple(TASKS.values()), services=services)


@asynccontextmanager
async def _services(options: Options) -> AsyncIterator[Any]:
    """Open what the task needs: a pool of the application's, which is of no weight where there is none."""
    if options["task"] != "one_pool_transaction":
        yield None
        return
    from psycopg_pool import AsyncConnectionPool

    async with AsyncConnectionPool(options["url"], min_size=POOL_CONNECTIONS, max_size=POOL_CONNECTIONS) as pool:
        await pool.wait()
        yield pool


async def _until_all_finished(connection: psycopg.AsyncConnection, poll_seconds: float) -> None:
    while True:
        row = await (await connection.execute(STATEMENTS["any_unfinished"])).fetchone()
        if row == (False,):
            return
        await asyncio.sleep(poll_seconds)


async def _until_parked(options: Options) -> None:
    """Wait until so many runs wait; asked seldom, because it counts them."""
    async with await psycopg.AsyncConnection.connect(options["url"], autocommit=True) as connection:
        while True:
            row = await (await connection.execute(STATEMENTS["count_waiting"])).fetchone()
            if row is not None and row[0] >= options["parked"]:
                return
            await asyncio.sleep(PARKED_POLL_SECONDS)


async def prepare(options: Options) -> None:
    """Make the schema and leave no run behind."""
    async with _engine(options) as engine:
        await engine.enqueue_many(TASKS["one_step"], [])
    async with await psycopg.AsyncConnection.connect(options["url"], autocommit=True) as connection:
        await connection.execute(STATEMENTS["make_note_table"])
    report("prepared")


async def enqueue(options: Options) -> None:
    """Start `count` runs, `at_once` calls at a time or all in one call, after `warm_up` that are not timed."""
    named, count, at_once = TASKS[options["task"]], options["count"], options["at_once"]
    async with _engine(options) as engine:
        await asyncio.gather(*(engine.enqueue(named, Job(number)) for number in range(options.get("warm_up", 0))))
        begun = time.perf_counter()
        if at_once >= count:
            await engine.enqueue_many(named, [Job(number) for number in range(count)])
        else:
            for first in range(0, count, at_once):
                calls = [engine.enqueue(named, Job(number)) for number in range(first, min(first + at_once, count))]
                await asyncio.gather(*calls)
        report("enqueued", seconds=time.perf_counter() - begun)


async def drain(options: Options) -> None:
    """Start a worker on a queue that waits, and take the time until nothing is unfinished.

    With `leaves_rest` it ends with the expected number of bodies; with `is_shared` it begins at a line on standard
    input and only looks at the database, because another worker does a part.
    """
    ended.expected = options["count"]
    is_shared = options.get("is_shared", False)
    async with (
        await psycopg.AsyncConnection.connect(options["url"], autocommit=True) as connection,
        _services(options) as services,
        _engine(options, services) as engine,
    ):
        if is_shared:
            report("ready")
            await asyncio.to_thread(sys.stdin.readline)
        begun, begun_cpu = time.perf_counter(), time.process_time()
        await engine.start(concurrency=options["concurrency"])
        if not is_shared:
            await ended.all.wait()
        if not options.get("leaves_rest", False):
            await _until_all_finished(connection, SHARED_POLL_SECONDS if is_shared else POLL_SECONDS)
        seconds, cpu_seconds = time.perf_counter() - begun, time.process_time() - begun_cpu
        report("drained", seconds=seconds, cpu_seconds=cpu_seconds, memory_kib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


async def work(options: Options) -> None:
    """Be a worker until the harness closes standard input, or kills it; ready once `parked` runs wait, where any are to."""
    async with _engine(options) as engine:
        await engine.start(concurrency=options["concurrency"])
        if options.get("parked"):
            await _until_parked(options)
        report("ready")
        await asyncio.to_thread(sys.stdin.read)
    report("stopped")


async def ask(options: Options) -> None:
    """Start runs one by one with a pause before each, and say when each call began."""
    async with _engine(options) as engine:
        await engine.find("00000000-0000-7000-8000-000000000000")
        for number in range(options["count"]):
            await asyncio.sleep(options["pause_seconds"])
            report("asked", number=number)
            await engine.enqueue(TASKS[options["task"]], Job(number, options.get("hold_seconds", 0.0)))
    report("asked_all")


async def send(options: Options) -> None:
    """Signal one waiting run after the other with a pause before each, and say when each call began."""
    async with _engine(options) as engine:
        await engine.find("00000000-0000-7000-8000-000000000000")
        for number in range(options["count"]):
            await asyncio.sleep(options["pause_seconds"])
            report("asked", number=number)
            await engine.signal(_wake_topic(number))
    report("asked_all")


ACTIONS: dict[str, Callable[[Options], Coroutine[Any, Any, None]]] = {
    "prepare": prepare,
    "enqueue": enqueue,
    "drain": drain,
    "work": work,
    "ask": ask,
    "send": send,
}

if __name__ == "__main__":
    asyncio.run(ACTIONS[sys.argv[1]](json.loads(sys.argv[2])))
