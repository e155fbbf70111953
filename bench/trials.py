"""Trials: what is done in one measurement, for each side of a comparison. They return figures and judge nothing."""

import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from .contender import BATCHED_SQL, DBOS, OPENWORKFLOW, OUTLAST, PGQUEUER, ROOT, Contender, Started
from .history import multiply_finished_runs
from .world import World

Figures = dict[str, float]
Measure = Callable[[World], Figures]

CONCURRENCY = 100
PAUSE_SECONDS = 0.05
"""Between two runs of the latency trials: long enough for the worker to be idle again."""
WARM_UP = 20
PARKING_SECONDS_MAX = 300.0
"""Ten thousand runs begin and park within seconds; a hundred times that is a hang."""
TAKEOVER_SECONDS_MAX = 90.0
"""OpenWorkflow's lease is 30 s, renewed every 15 s; three times that is a hang."""


@dataclass(frozen=True)
class Trial:
    """One comparison: its sides take turns, in this order, once a round."""

    key: str
    sides: Mapping[str, Measure]


def _fill(contender: Contender, url: str, task: str, count: int) -> None:
    contender.run("enqueue", url=url, task=task, count=count, at_once=500)


def _drain(world: World, *, contender: Contender, task: str, steps: int, full: int, short: int) -> Figures:
    """Let one worker work off a queue that waits, from its start until nothing is unfinished."""
    count = world.size(full, short)
    with world.database(contender) as url:
        _fill(contender, url, task, count)
        world.settle()
        drained = contender.run("drain", url=url, task=task, count=count, concurrency=CONCURRENCY)
    cpu_microseconds = drained["cpu_seconds"] / (count * steps) * 1e6
    return {"rate": count * steps / drained["seconds"], "memory": drained["memory_kib"] / 1024, "cpu": cpu_microseconds}


def _enqueue(world: World, *, contender: Contender, at_once: int | None, full: int, short: int) -> Figures:
    """Start runs while no worker is there; `at_once` is None for all of them in the fewest calls there are.

    Fifty at once go before, untimed, so that every connection of the pool is open.
    """
    count = world.size(full, short)
    with world.database(contender) as url:
        world.settle()
        enqueued = contender.run("enqueue", url=url, task="one_step", count=count, at_once=at_once or count, warm_up=50)
    return {"rate": count / enqueued["seconds"]}


def _latency(world: World, *, contender: Contender) -> Figures:
    """Take the time from the call of `enqueue` in one process to the body's first line in another that is idle."""
    count = WARM_UP + world.size(300, 50)
    with world.database(contender) as url, contender.started("work", url=url, concurrency=CONCURRENCY) as worker:
        worker.next_event("ready", timeout=30)
        with contender.started("ask", url=url, task="reporting", count=count, pause_seconds=PAUSE_SECONDS) as client:
            asked = _instants(client, "asked", count)
            client.next_event("asked_all", timeout=60)
        begun = _instants(worker, "body", count)
    return delays(asked, begun)


def _wake(world: World, *, waiting: int, short: int) -> Figures:
    """Take the time from the call of `signal` in one process to the body's next line in another that is idle, where so many wait for topics of their own."""
    parked, count = world.size(waiting, short), WARM_UP + world.size(300, 50)
    with world.database(OUTLAST) as url:
        _fill(OUTLAST, url, "waking", parked)
        with OUTLAST.started("work", url=url, concurrency=CONCURRENCY, parked=parked) as worker:
            worker.next_event("ready", timeout=PARKING_SECONDS_MAX)
            world.settle()
            with OUTLAST.started("send", url=url, count=count, pause_seconds=PAUSE_SECONDS) as client:
                asked = _instants(client, "asked", count)
                client.next_event("asked_all", timeout=60)
            begun = _instants(worker, "body", count)
    return delays(asked, begun)


def delays(asked: Mapping[int, int], begun: Mapping[int, int]) -> Figures:
    """Return median and 99th percentile in milliseconds of what followed the warm-up."""
    milliseconds = sorted((begun[number] - asked[number]) / 1e6 for number in range(WARM_UP, len(asked)))
    return {"median": statistics.median(milliseconds), "p99": milliseconds[math.ceil(len(milliseconds) * 0.99) - 1]}


def _instants(process: Started, kind: str, count: int) -> dict[int, int]:
    """Return when each number was first told; a body that ran twice began when it ran first."""
    instants: dict[int, int] = {}
    while len(instants) < count:
        event = process.next_event(kind, timeout=60)
        instants.setdefault(event["number"], event["at_ns"])
    return instants


def _takeover(world: World, *, contender: Contender) -> Figures:
    """Kill a worker in the middle of a step, and take the time until the other worker begins the run again."""
    with world.database(contender) as url, ExitStack() as stack:
        first = stack.enter_context(contender.started("work", url=url, concurrency=CONCURRENCY))
        first.next_event("ready", timeout=30)
        contender.run("ask", url=url, task="holding", count=1, pause_seconds=0, hold_seconds=600)
        first.next_event("body", timeout=30)
        second = stack.enter_context(contender.started("work", url=url, concurrency=CONCURRENCY))
        second.next_event("ready", timeout=30)
        time.sleep(2)  # both have renewed and looked around: the usual state when a worker dies
        killed_ns = time.monotonic_ns()
        first.kill()
        begun = second.next_event("body", timeout=TAKEOVER_SECONDS_MAX)
    return {"seconds": (begun["at_ns"] - killed_ns) / 1e9}


def _share(world: World, *, workers: int) -> Figures:
    """Let so many worker processes begin at the same moment on one queue, until nothing is unfinished."""
    count = world.size(20_000, 2_000)
    with world.database(OUTLAST) as url, ExitStack() as stack:
        _fill(OUTLAST, url, "one_step", count)
        world.settle()
        options = {"url": url, "task": "one_step", "count": count, "concurrency": CONCURRENCY, "is_shared": True}
        processes = [stack.enter_context(OUTLAST.started("drain", **options)) for _ in range(workers)]
        for process in processes:
            process.next_event("ready", timeout=30)
        begun_ns = time.monotonic_ns()
        for process in processes:
            process.say("go")
        ended_ns = min(process.next_event("drained", timeout=300)["at_ns"] for process in processes)
    return {"rate": count / (ended_ns - begun_ns) * 1e9}


def _crowd(world: World, *, waiting: int) -> Figures:
    """Work off the first runs of a queue in which `waiting` more wait behind them."""
    count = world.size(5_000, 1_000)
    with world.database(OUTLAST) as url:
        _fill(OUTLAST, url, "one_step", count)
        if waiting:
            OUTLAST.run("enqueue", url=url, task="one_step", count=waiting, at_once=waiting)
        world.settle()
        drained = OUTLAST.run("drain", url=url, task="one_step", count=count, concurrency=CONCURRENCY, leaves_rest=True)
    return {"rate": count / drained["seconds"]}


def _past(world: World, *, finished: int) -> Figures:
    """Work off a queue in a database that has seen so many runs before."""
    count, sample = world.size(5_000, 1_000), 1_000
    with world.database(OUTLAST) as url:
        if finished:
            _fill(OUTLAST, url, "one_step", sample)
            OUTLAST.run("drain", url=url, task="one_step", count=sample, concurrency=CONCURRENCY)
            multiply_finished_runs(url, world.size(finished, finished // 20) // sample)
        _fill(OUTLAST, url, "one_step", count)
        world.settle()
        drained = OUTLAST.run("drain", url=url, task="one_step", count=count, concurrency=CONCURRENCY)
    return {"rate": count / drained["seconds"]}


def _import(world: World) -> Figures:
    """Import the library in a new interpreter, with its files in the page cache."""
    program = "import time; begun = time.perf_counter(); import outlast; print((time.perf_counter() - begun) * 1000)"
    for _ in range(2):  # the first may have to compile what was edited since
        done = subprocess.run([sys.executable, "-c", program], env={"PYTHONPATH": str(ROOT / "src")}, capture_output=True, text=True, check=True)
    return {"milliseconds": float(done.stdout)}


def _sides(measure: Callable[..., Figures], *contenders: Contender, **options: object) -> dict[str, Measure]:
    return {contender.name: partial(measure, contender=contender, **options) for contender in contenders}


_ALL = (OUTLAST, OPENWORKFLOW, BATCHED_SQL)
TRIALS = (
    Trial("one_step", _sides(_drain, *_ALL, PGQUEUER, DBOS, task="one_step", steps=1, full=5_000, short=1_000)),
    Trial("ten_steps", _sides(_drain, *_ALL, DBOS, task="ten_steps", steps=10, full=2_000, short=200)),
    Trial("enqueue_single", _sides(_enqueue, *_ALL, PGQUEUER, DBOS, at_once=1, full=1_000, short=200)),
    Trial("enqueue_fifty", _sides(_enqueue, *_ALL, PGQUEUER, DBOS, at_once=50, full=5_000, short=1_000)),
    Trial("enqueue_many", _sides(_enqueue, *_ALL, PGQUEUER, at_once=None, full=20_000, short=2_000)),
    Trial("latency", _sides(_latency, OUTLAST, OPENWORKFLOW, PGQUEUER)),
    Trial("wake", {"outlast": partial(_wake, waiting=10_000, short=1_000)}),
    Trial("takeover", _sides(_takeover, OUTLAST, OPENWORKFLOW)),
    Trial("two_workers", {"outlast": partial(_share, workers=2), "outlast, one worker": partial(_share, workers=1)}),
    Trial("crowd", {"outlast": partial(_crowd, waiting=100_000), "outlast, none waiting behind": partial(_crowd, waiting=0)}),
    Trial(
        "one_call",
        {
            side: partial(_drain, contender=OUTLAST, task=task, steps=1, full=2_000, short=200)
            for side, task in (
                ("outlast, plain step", "one_step"),
                ("outlast, transactional step", "one_transaction"),
                ("outlast, the same on a pool", "one_pool_transaction"),
                ("outlast, effect", "one_effect"),
            )
        },
    ),
    Trial("past", {"outlast": partial(_past, finished=1_000_000), "outlast, none finished": partial(_past, finished=0)}),
    Trial("import", {"outlast": _import}),
)
