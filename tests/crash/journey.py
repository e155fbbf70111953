"""A program of its own that real faults are done to: it enqueues or executes journeys, and can be killed at a named point.

Run as `python journey.py ROLE URL FOLDER [options]`. Its steps write to a body log that outlives the process, one line a
write, and each journey ends with a file made by an exclusive create, so that a second end would be seen.
"""

import argparse
import asyncio
import ctypes
import json
import logging
import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path

from outlast import Context, RetryPolicy, connect, step, task, this_step
from outlast.events import Event

FOLDER = Path(os.environ.get("JOURNEY_FOLDER", "."))
QUICK = RetryPolicy(maximum_attempts=3, initial_delay="10ms", maximum_delay="10ms")


def log_body(name: str, number: int) -> None:
    """One line in one write: what is in the file happened, whatever was killed afterwards."""
    attempt = this_step()
    line = {
        "run": attempt.run_id,
        "step": attempt.key,
        "name": name,
        "number": number,
        "attempt": attempt.attempt,
        "token": attempt.fencing_token,
        "pid": os.getpid(),
    }
    descriptor = os.open(FOLDER / "bodies.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, json.dumps(line).encode() + b"\n")
    os.close(descriptor)


@step
async def prepare(number: int) -> int:
    log_body("prepare", number)
    return number * 10


@step
def left(number: int) -> int:
    log_body("left", number)
    return number + 1


@step
async def right(number: int) -> int:
    log_body("right", number)
    return number + 2


@step(retry=QUICK)
def flaky(number: int) -> int:
    log_body("flaky", number)
    if this_step().attempt == 1:
        raise OSError("the first attempt fails")
    return number + 3


@step
async def slow(number: int) -> int:
    log_body("slow", number)
    this_step().progress(1, 2, "half")
    await asyncio.sleep(1.2)  # longer than a second, so that its activity is written
    return number + 4


@step(retry=RetryPolicy(maximum_attempts=1))
def publish(number: int, total: int) -> str:
    """The end that must come once. It fails when it has come before, unless that was this very token's cut-off attempt."""
    log_body("publish", number)
    path = FOLDER / f"published-{number}"
    path.write_text(str(total))
    return path.name


@task
async def journey(ctx: Context, number: int) -> str:
    base = await ctx.step(prepare, number)
    one, two = await asyncio.gather(ctx.step(left, base), ctx.step(right, base))
    three = await ctx.step(flaky, base)
    await ctx.sleep(2)  # parks
    four = await ctx.step(slow, base)
    return await ctx.step(publish, number, one + two + three + four)


def expected_total(number: int) -> int:
    """What a journey publishes: a pure function of its input."""
    return 4 * number * 10 + 1 + 2 + 3 + 4


@task
async def once(ctx: Context, number: int) -> int:
    return await ctx.step(prepare, number)


@step
async def wait_for_go(number: int) -> str:
    """Runs until a file is there: long enough to be frozen in, and done when the test says so."""
    log_body("wait_for_go", number)
    while not (FOLDER / "go").exists():  # noqa: ASYNC110 - what is waited for comes from another process
        await asyncio.sleep(0.02)
    return f"{os.getpid()}"


@task
async def held(ctx: Context, number: int) -> str:
    return await ctx.step(wait_for_go, number)


RENEWED: "list[float]" = []


@step
async def block_loop(seconds: float) -> str:
    log_body("block_loop", 0)
    await after_renewal()
    time.sleep(seconds)  # noqa: ASYNC251 - that is the fault
    return "blocked"


@step
async def hold_interpreter(seconds: int) -> str:
    """Hold the interpreter's lock in C, as a regular expression does, for exactly that long: no thread of Python runs."""
    log_body("hold_interpreter", 0)
    await after_renewal()
    ctypes.PyDLL(None).sleep(seconds)
    return "held"


async def after_renewal() -> None:
    """Wait for a renewal, so that the whole lease lies ahead."""
    known = len(RENEWED)
    while len(RENEWED) == known:  # noqa: ASYNC110 - what is waited for comes from another thread
        await asyncio.sleep(0.01)


@task
async def blocked(ctx: Context, seconds: int) -> str:
    return await ctx.step(block_loop, float(seconds))


@task
async def interpreter_held(ctx: Context, seconds: int) -> str:
    return await ctx.step(hold_interpreter, seconds)


@step
async def crash(number: int) -> None:
    log_body("crash", number)
    os._exit(139)


@task
async def poison(ctx: Context, number: int) -> None:
    await ctx.step(crash, number)


@step
async def rest(number: int) -> int:
    log_body("rest", number)
    await asyncio.sleep(0.2)
    return number


@task
async def innocent(ctx: Context, number: int) -> int:
    return await ctx.step(rest, number)


TASKS = (journey, once, held, blocked, interpreter_held, poison, innocent)


def killer(point: str):
    """Return a listener that kills this process the `count`th time it passes `before_store:call`, or `after_store:call`."""
    when, call, count = point.split(":")
    seen: Counter[str] = Counter()

    def heard(event: Event) -> None:
        if event.name == when and event.facts["call"] == call:
            seen[call] += 1
            if seen[call] == int(count):
                os.kill(os.getpid(), signal.SIGKILL)

    return heard


def heard(event: Event) -> None:
    """Write each event of note to standard output, for the test to wait for."""
    if event.name == "lease_renewed":
        RENEWED.append(0.0)
    if event.name in ("before_store", "after_store"):
        line = f"{event.name}:{event.facts['call']}"
    elif event.name in ("run_started", "run_ended", "write_refused", "lease_lost", "worker_ended", "worker_started", "step_attempt_started", "run_recovered"):
        line = f"{event.name} {json.dumps({key: str(value) for key, value in event.facts.items()})}"
    else:
        return
    os.write(1, line.encode() + b"\n")


async def execute(options: argparse.Namespace) -> None:
    async with connect(options.url, tasks=TASKS, lease=options.lease, direct_url=options.direct_url) as engine:
        engine.events.subscribe(heard)
        if options.kill:
            engine.events.subscribe(killer(options.kill))
        await engine.run(concurrency=options.concurrency, stop_timeout=10)


async def enqueue(options: argparse.Namespace) -> None:
    async with connect(options.url, tasks=TASKS) as engine:
        if options.kill:
            engine.events.subscribe(killer(options.kill))
        kinds = {declared.name: declared for declared in TASKS}
        for number in range(options.first, options.first + options.count):
            run = await engine.enqueue(kinds[options.kind], number, idempotency_key=f"{options.key}-{number}" if options.key else None)
            os.write(1, f"{run.id} {run.created}\n".encode())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=("execute", "enqueue"))
    parser.add_argument("url")
    parser.add_argument("--kill", default="")
    parser.add_argument("--lease", default="2s")
    parser.add_argument("--direct-url")
    parser.add_argument("--concurrency", type=int, default=10)
    parser.add_argument("--kind", default="journey")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--key", default="")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    asyncio.run(execute(options) if options.role == "execute" else enqueue(options))


if __name__ == "__main__":
    main()
