"""A worker whose run copies a file and moves the copy, and which at a named point is killed, or waits for a file: `python FILE URL FOLDER POINT COUNT`."""

import asyncio
import os
import signal
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from outlast import Context, connect, task
from outlast.effects import MovedFile, copy_file, fault_points, move_file, original
from outlast.events import Event

CHUNK_BYTES = 1 << 16
LEASE = "2s"
LOOK_EVERY = 0.01


@dataclass(frozen=True)
class Paths:
    """From where, by way of where, to where."""

    source: Path
    waiting: Path
    target: Path


@task
async def publish_film(ctx: Context, paths: Paths) -> MovedFile:
    copied = await ctx.effect(copy_file, paths.source, paths.waiting)
    return await ctx.effect(move_file, copied.path, paths.target)


def paths_in(folder: Path) -> Paths:
    """Return where the file is, with a name that is no UTF-8."""
    name = os.fsdecode(b"film\xff.mkv")
    return Paths(folder / "from" / name, folder / "waiting" / name, folder / "to" / name)


def act_at(folder: Path, point: str, count: int, deed: str) -> None:
    """At the point, for the `count`th time, be killed, or wait until the folder has a file `go`."""
    left = count

    def reached(name: str) -> None:
        nonlocal left
        left -= name == point
        if name == point and left == 0:
            if deed == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            say("here")
            while not (folder / "go").exists():
                threading.Event().wait(LOOK_EVERY)

    fault_points.reached = reached


def say(what: str) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


def on_event(event: Event) -> None:
    if event.name in ("lease_lost", "late_result_refused", "effect_reconciled"):
        say(f"{event.name} {event.facts.get('verdict', '')}")


async def main(url: str, folder: str, point: str, count: str, deed: str) -> None:
    original.COPY_CHUNK_BYTES = CHUNK_BYTES
    act_at(Path(folder), point, int(count), deed)
    async with connect(url, tasks=[publish_film], lease=LEASE) as engine:
        engine.events.subscribe(on_event)
        await engine.start()
        run = await engine.enqueue(publish_film, paths_in(Path(folder)), idempotency_key="film")
        moved = await run.result(timeout=100)
        say(f"moved {moved.size}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
