"""A program that enqueues without end from several callers at once, and says after each call what it was told.

    accepted NUMBER SECONDS RUN     the call returned
    refused NUMBER SECONDS          it raised that nothing was written
    unknown NUMBER SECONDS          it raised that this is not known

Each number is asked for once, or with `--insists` again and again under one key until it is accepted. SIGTERM ends it.
"""

import argparse
import asyncio
import itertools
import os
import signal
import time
from collections.abc import Iterator

from outlast import connect, task_ref
from outlast.errors import CommitUnknownError, UnavailableError
from outlast.native.engine import NativeEngine

TASKS = {"journey": task_ref("journey", 1, int, str), "once": task_ref("once", 1, int, int)}


def say(word: str, number: int, began: float, run_id: str = "") -> None:
    os.write(1, f"{word} {number} {time.monotonic() - began:.3f} {run_id}\n".encode())


async def ask(engine: NativeEngine, kind: str, number: int, key: str | None) -> bool:
    """Enqueue once and say what came of it; return whether it was accepted."""
    began = time.monotonic()
    try:
        run = await engine.enqueue(TASKS[kind], number, idempotency_key=key)
    except CommitUnknownError:
        say("unknown", number, began)
    except UnavailableError:
        say("refused", number, began)
    else:
        say("accepted", number, began, run.id)
        return True
    return False


async def call(engine: NativeEngine, options: argparse.Namespace, numbers: Iterator[int], told: asyncio.Event) -> None:
    """One caller."""
    while not told.is_set():
        number = next(numbers)
        key = f"{options.kind}-{number}" if options.insists else None
        while not await ask(engine, options.kind, number, key) and options.insists:  # noqa: ASYNC110 - asking again is what it is for
            await asyncio.sleep(options.pause)
        await asyncio.sleep(options.pause)


async def run(options: argparse.Namespace) -> None:
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    numbers = itertools.count(options.first)
    async with connect(options.url) as engine, asyncio.TaskGroup() as callers:
        for _ in range(options.callers):
            callers.create_task(call(engine, options, numbers, told))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--kind", choices=TASKS, default="once")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--callers", type=int, default=3)
    parser.add_argument("--pause", type=float, default=0.05)
    parser.add_argument("--insists", action="store_true")
    options = parser.parse_args()
    asyncio.run(run(options))


if __name__ == "__main__":
    main()
