"""The PgQueuer side, a plain queue without steps: `python -m bench.peers.pgqueuer_load ACTION JSON`.

A job that ran is deleted and noted in a log, and nothing of a body is remembered: it does less than a run with a step,
and shows what the fastest queue costs. It runs in an environment of its own and imports nothing of outlast.
"""

import asyncio
import contextlib
import json
import resource
import sys
import time
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.domain.types import QueueExecutionMode
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from bench.event import report

Options = dict[str, Any]


async def prepare(options: Options) -> None:
    """Make its tables, all of them logged, which is its default."""
    connection = await asyncpg.connect(options["url"])
    await Queries(AsyncpgDriver(connection)).install()
    await connection.close()
    report("prepared")


async def enqueue(options: Options) -> None:
    """Start `count` jobs, `at_once` calls at a time, or in one call when it is all of them; `warm_up` are not timed."""
    task, count, at_once = options["task"], options["count"], options["at_once"]
    async with asyncpg.create_pool(options["url"], min_size=options["connections"], max_size=options["connections"]) as pool:
        queries = Queries(AsyncpgPoolDriver(pool))
        await asyncio.gather(*(queries.enqueue(task, b"0") for _ in range(options.get("warm_up", 0))))
        begun = time.perf_counter()
        if at_once >= count:
            await queries.enqueue([task] * count, [b"%d" % number for number in range(count)], [0] * count)
        else:
            for first in range(0, count, at_once):
                await asyncio.gather(*(queries.enqueue(task, b"%d" % number) for number in range(first, min(first + at_once, count))))
        report("enqueued", seconds=time.perf_counter() - begun)


async def drain(options: Options) -> None:
    """Work off a queue that waits, in its own mode for that, which ends when the queue is empty."""
    done = 0
    connection = await asyncpg.connect(options["url"])
    queue = PgQueuer(AsyncpgDriver(connection))

    @queue.entrypoint(options["task"])
    async def add_one(_: Job) -> None:
        nonlocal done
        done += 1

    begun, begun_cpu = time.perf_counter(), time.process_time()
    await queue.qm.run(batch_size=options["concurrency"], mode=QueueExecutionMode.drain)
    seconds, cpu_seconds = time.perf_counter() - begun, time.process_time() - begun_cpu
    if done != options["count"]:
        raise RuntimeError(f"{done} jobs were there instead of {options['count']}")
    report("drained", seconds=seconds, cpu_seconds=cpu_seconds, memory_kib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


async def work(options: Options) -> None:
    """Be a worker until the harness kills it or closes standard input."""
    connection = await asyncpg.connect(options["url"])
    queue = PgQueuer(AsyncpgDriver(connection))

    @queue.entrypoint("reporting")
    async def tell(job: Job) -> None:
        report("body", number=int(job.payload or b""))

    running = asyncio.create_task(queue.qm.run(batch_size=options["concurrency"], dequeue_timeout=timedelta(seconds=30)))
    report("ready")
    await asyncio.to_thread(sys.stdin.read)
    queue.shutdown.set()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    report("stopped")


async def ask(options: Options) -> None:
    """Start jobs one by one with a pause before each, and say when each call began."""
    connection = await asyncpg.connect(options["url"])
    queries = Queries(AsyncpgDriver(connection))
    for number in range(options["count"]):
        await asyncio.sleep(options["pause_seconds"])
        report("asked", number=number)
        await queries.enqueue(options["task"], b"%d" % number)
    report("asked_all")


ACTIONS: dict[str, Callable[[Options], Coroutine[Any, Any, None]]] = {
    "prepare": prepare,
    "enqueue": enqueue,
    "drain": drain,
    "work": work,
    "ask": ask,
}

if __name__ == "__main__":
    asyncio.run(ACTIONS[sys.argv[1]](json.loads(sys.argv[2])))
