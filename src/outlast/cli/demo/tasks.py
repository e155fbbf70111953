"""The demo's application: one task that brings one file into the library, written as a user would write it."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from outlast import Context, FinalError, connect, step, task
from outlast.retry import FILES

from .partial import CHUNK_BYTES, Partial, digest_of
from .partial import publish as give_final_name
from .register import Register, RegisterEntry
from .world import World, noted

LEASE = "3s"  # short enough to watch a frozen worker lose it


@dataclass(frozen=True)
class Order:
    """Bring this file into the library under this name."""

    source: Path
    name: PurePath


@dataclass(frozen=True)
class Found:
    """A source as it was when it was found."""

    source: Path
    name: PurePath
    size: int
    modified_ns: int


@dataclass(frozen=True)
class Copied:
    """A complete copy under a temporary name."""

    name: PurePath
    partial: Path
    size: int
    digest: str


@dataclass(frozen=True)
class Stored:
    """A file that has arrived."""

    name: PurePath
    size: int
    digest: str


@task("demo.store_file")
async def store_file(ctx: Context[World], order: Order) -> Stored:
    """Bring one file into the library: whole, once, and never half under its final name."""
    found = await ctx.step(locate, order)
    copied = await ctx.step(copy, found)
    await ctx.step(verify, found, copied)
    await ctx.step(publish, copied)
    await ctx.step(register, copied)
    return Stored(copied.name, copied.size, copied.digest)


@step(retry=FILES)
def locate(order: Order) -> Found:
    """Look at the source."""
    with noted():
        status = order.source.stat()
        return Found(order.source, order.name, status.st_size, status.st_mtime_ns)


@step(retry=FILES)
def copy(found: Found) -> Copied:
    """Copy in chunks under a temporary name, going on where an attempt that was cut off had come to."""
    with noted() as attempt:
        world = attempt.services
        target = world.library / found.name
        with Partial(target, attempt.run_id, attempt.fencing_token, attempt.attempt) as partial, found.source.open("rb") as source:
            source.seek(partial.take_over(attempt.last_progress))
            world.journal.add(attempt, "went_on", partial.size)
            while chunk := source.read(CHUNK_BYTES):
                attempt.raise_if_canceled()
                partial.write(chunk)
                attempt.progress(partial.size, found.size, partial.digest)
                _pause(len(chunk), world.pace)
        partial.remove_older()
        return Copied(found.name, partial.path, partial.size, partial.digest)


@step(retry=FILES)
def verify(found: Found, copied: Copied) -> None:
    """Read the copy back, and see that the source is still the one that was copied."""
    with noted():
        status = found.source.stat()
        if (status.st_size, status.st_mtime_ns) != (found.size, found.modified_ns) or copied.size != found.size:
            raise FinalError("the source changed while it was copied: enqueue it again")
        if digest_of(copied.partial) != copied.digest:
            raise FinalError("the copy does not hold what was read from the source")


@step(retry=FILES)
def publish(copied: Copied) -> None:
    """Give the copy its final name."""
    with noted() as attempt:
        give_final_name(copied.partial, attempt.services.library / copied.name, copied.digest)


@step(retry=FILES)
def register(copied: Copied) -> bool:
    """Enter the file into the register; False when an attempt that was cut off had done so already."""
    with noted() as attempt:
        entry = RegisterEntry(bytes(copied.name), copied.size, copied.digest, attempt.run_id)
        return Register(attempt.services.register).add(entry, attempt.fencing_token, attempt.attempt)


def _pause(count: int, pace: float) -> None:
    if pace:
        threading.Event().wait(count / pace)


def make_engine(url: str, world: World) -> Any:
    """Return the demo's engine; nothing is opened yet."""
    return connect(url, tasks=(store_file,), services=world, lease=LEASE)


def engine() -> Any:
    """Return the engine of a worker that the demo has started."""
    return make_engine(os.environ["OUTLAST_DATABASE_URL"], World.of_environment())
