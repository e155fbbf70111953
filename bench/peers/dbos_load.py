"""The DBOS side: `python -m bench.peers.dbos_load ACTION JSON`, one process a call, in an environment of its own.

Each workflow does as little as its counterpart in `bench.outlast_load`; they are plain functions, because coroutines were
a third slower. A queue gives it its concurrency, as its own documentation recommends; the client enqueues from outside, as
for the other sides. It imports nothing of outlast.
"""

import asyncio
import json
import resource
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
from dbos import DBOS, DBOSClient, DBOSConfig

from bench.event import report

Options = dict[str, Any]

QUEUE = "bench"
STEPS_IN_SEQUENCE = 10
WORKER_CONCURRENCY = 100
POLL_SECONDS = 0.002
POLLING_SECONDS = 0.05
"""Of its queue, whose default of a second would bound a worker with a hundred slots to a hundred runs a second."""
UNFINISHED = "SELECT EXISTS (SELECT FROM dbos.workflow_status WHERE status IN ('ENQUEUED', 'PENDING', 'DELAYED'))"


class Ended:
    """How many bodies have ended, on whatever thread, and whether it is all that were expected."""

    def __init__(self) -> None:
        self.expected = 0
        self.all = threading.Event()
        self._count = 0
        self._lock = threading.Lock()

    def add_one(self) -> None:
        with self._lock:
            self._count += 1
            if self._count >= self.expected:
                self.all.set()


ended = Ended()


@DBOS.step()
def increment(number: int) -> int:
    """Do the least that a step can do."""
    return number + 1


@DBOS.workflow(name="one_step")
def one_step(number: int) -> int:
    """One trivial step."""
    number = increment(number)
    ended.add_one()
    return number


@DBOS.workflow(name="ten_steps")
def ten_steps(number: int) -> int:
    """Ten trivial steps, one after the other."""
    for _ in range(STEPS_IN_SEQUENCE):
        number = increment(number)
    ended.add_one()
    return number


def _launch(options: Options) -> None:
    """Start it with all its own defaults, its pool of 20 connections too, but without lines in a log for every run."""
    config: DBOSConfig = {"name": "bench", "system_database_url": options["url"], "application_version": "1", "executor_id": "bench", "log_level": "WARNING"}
    DBOS(config=config)
    DBOS.launch()


def _wait_until_all_finished(connection: psycopg.Connection) -> None:
    ended.all.wait()
    while connection.execute(UNFINISHED).fetchone() != (False,):
        time.sleep(POLL_SECONDS)


async def prepare(options: Options) -> None:
    """Make its tables and the queue, which is kept there with its settings."""
    _launch(options)
    await DBOS.register_queue_async(QUEUE, worker_concurrency=WORKER_CONCURRENCY, polling_interval_sec=options.get("polling_seconds", POLLING_SECONDS))
    DBOS.destroy()
    report("prepared")


async def enqueue(options: Options) -> None:
    """Start `count` runs, `at_once` of them at a time; `warm_up` are not timed."""
    count, at_once = options["count"], options["at_once"]
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(options["connections"]))  # its client works on threads: one a connection
    client = DBOSClient(system_database_url=options["url"], system_database_pool_size=options["connections"], application_name="bench")
    start: Any = {"workflow_name": options["task"], "queue_name": QUEUE}
    await asyncio.gather(*(client.enqueue_async(start, number) for number in range(options.get("warm_up", 0))))
    begun = time.perf_counter()
    for first in range(0, count, at_once):
        await asyncio.gather(*(client.enqueue_async(start, number) for number in range(first, min(first + at_once, count))))
    report("enqueued", seconds=time.perf_counter() - begun)
    client.destroy()


async def drain(options: Options) -> None:
    """Let one process work off a queue that waits, and take the time from the end of its start until nothing is unfinished."""
    ended.expected = options["count"]
    with psycopg.connect(options["url"], autocommit=True) as connection:
        _launch(options)
        begun, begun_cpu = time.perf_counter(), time.process_time()
        await asyncio.to_thread(_wait_until_all_finished, connection)
        seconds, cpu_seconds = time.perf_counter() - begun, time.process_time() - begun_cpu
        report("drained", seconds=seconds, cpu_seconds=cpu_seconds, memory_kib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
        DBOS.destroy()


ACTIONS: dict[str, Callable[[Options], Coroutine[Any, Any, None]]] = {"prepare": prepare, "enqueue": enqueue, "drain": drain}

if __name__ == "__main__":
    asyncio.run(ACTIONS[sys.argv[1]](json.loads(sys.argv[2])))
