"""The tasks of the load, and what each must have asked for and returned: all that the checker knows of a program.

Each step's result carries the name of the execution that made it, so that a result which was replaced, mixed up between
branches, or invented, is told from the right one whatever its number. A body logs what it asks for and what it is
handed under the key that the call must have, written out here and not asked of the engine.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outlast import Context, FinalError, RetryPolicy, StepFailedError, WaitTimeoutError, step, task, this_step

from .journal import Journal

QUICK = RetryPolicy(maximum_attempts=3, initial_delay="20ms", maximum_delay="20ms")
SLOW = RetryPolicy(maximum_attempts=2, initial_delay="2.2s", maximum_delay="2.2s", jitter=0.0)
ONCE = RetryPolicy(maximum_attempts=1)
STEP_SECONDS = 0.05
_counter = itertools.count(1)


@dataclass(frozen=True)
class Order:
    """The input of every task."""

    nonce: str
    """Of the call that asked for this run: whoever finds it in a run knows where that came from."""
    number: int


@dataclass(frozen=True)
class Mark:
    """The result of every step."""

    value: int
    by: str
    """Which execution of the step it was."""


@dataclass(frozen=True)
class Witness:
    """The services object: where bodies and steps log."""

    journal: Journal
    folder: Path


# --- steps -----------------------------------------------------------------------------------------------------------------
def _begin(number: int) -> tuple[Witness, dict[str, Any], Mark]:
    attempt = this_step(Witness)
    by = f"{os.getpid()}-{next(_counter)}"
    facts = {"run": attempt.run_id, "key": attempt.key, "token": attempt.fencing_token, "attempt": attempt.attempt, "by": by}
    attempt.services.journal.add("step_begun", **facts)
    return attempt.services, facts, Mark(number * 3 + 1, by)


def _end(witness: Witness, facts: dict[str, Any], mark: Mark) -> Mark:
    witness.journal.add("step_ended", **facts, value=mark.value)
    return mark


@step(retry=QUICK)
async def add(number: int) -> Mark:
    witness, facts, mark = _begin(number)
    await asyncio.sleep(STEP_SECONDS)
    return _end(witness, facts, mark)


@step(retry=QUICK)
def compute(number: int) -> Mark:
    """In a thread; it looks whether it is told to stop."""
    witness, facts, mark = _begin(number)
    for _ in range(5):
        time.sleep(0.1)
        if this_step().canceled:
            witness.journal.add("step_told", **facts)
            this_step().raise_if_canceled()
    return _end(witness, facts, mark)


@step(retry=QUICK)
async def stumble(number: int) -> Mark:
    """Fails in its first attempts, up to two of them."""
    witness, facts, mark = _begin(number)
    if this_step().attempt <= number % 3:
        witness.journal.add("step_failed", **facts)
        raise OSError("an early attempt fails")
    return _end(witness, facts, mark)


@step(retry=SLOW)
async def wait_and_retry(number: int) -> Mark:
    """Its second attempt comes after a delay that holds no slot."""
    witness, facts, mark = _begin(number)
    if this_step().attempt == 1:
        raise OSError("the first attempt fails")
    return _end(witness, facts, mark)


@step(retry=QUICK)
async def refuse(number: int) -> Mark:
    _begin(number)
    raise FinalError("it can never succeed")


@step(retry=ONCE)
async def fail_once(nonce: str) -> Mark:
    """Fails the first time that it is called for this nonce at all, for the body's own retry."""
    witness, facts, mark = _begin(len(nonce))
    path = witness.folder / f"again-{nonce}"
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return _end(witness, facts, mark)
    raise OSError("the first body fails")


@step(retry=QUICK)
async def labour(number: int) -> Mark:
    """Works for seconds, reports how far it is, and says so when it is told to stop."""
    witness, facts, mark = _begin(number)
    last = this_step().last_progress
    try:
        for done in range(int(last.done) if last else 0, 10 + number % 20):
            await asyncio.sleep(0.1)
            this_step().progress(done + 1, 30)
    except asyncio.CancelledError:
        witness.journal.add("step_told", **facts)
        raise
    return _end(witness, facts, mark)


# --- bodies ----------------------------------------------------------------------------------------------------------------
Seen = list[tuple[str, int, str]]
"""What a body returns: key, value and maker of each result that it was handed, in its own order."""


async def ask(ctx: Context[Witness], seen: Seen, key: str, function: Any, argument: Any) -> int:
    """Call a step under the key that it must have, and log what the body is handed."""
    journal = ctx.services.journal
    journal.add("asks", run=ctx.run_id, key=key)
    try:
        mark: Mark = await ctx.step(function, argument)
    except StepFailedError:
        journal.add("handed_error", run=ctx.run_id, key=key)
        raise
    journal.add("handed", run=ctx.run_id, key=key, value=mark.value, by=mark.by)
    seen.append((key, mark.value, mark.by))
    return mark.value


def begun(ctx: Context[Witness], order: Order) -> Seen:
    ctx.services.journal.add("body_begun", run=ctx.run_id, kind=ctx.kind, version=ctx.version, nonce=order.nonce)
    return []


@task("chain", version=1)
async def chain(ctx: Context[Witness], order: Order) -> Seen:
    seen = begun(ctx, order)
    one = await ask(ctx, seen, "add", add, order.number)
    two = await ask(ctx, seen, "add:1", add, one)
    await ask(ctx, seen, "compute", compute, two)
    return seen


@task("chain", version=2)
async def longer_chain(ctx: Context[Witness], order: Order) -> Seen:
    seen = begun(ctx, order)
    value = await ask(ctx, seen, "compute", compute, order.number)
    for number in range(3):
        value = await ask(ctx, seen, "add" if number == 0 else f"add:{number}", add, value)
    return seen


@task("fork")
async def fork(ctx: Context[Witness], order: Order) -> Seen:
    """Branches whose calls have the same names, so that only the path tells them apart."""
    seen = begun(ctx, order)

    async def branch(path: int) -> Seen:
        found: Seen = []
        value = await ask(ctx, found, f"{path}/add", add, order.number + path)
        await ask(ctx, found, f"{path}/add:1", add, value)
        return found

    for found in await asyncio.gather(*(branch(path) for path in range(3))):
        seen += found
    await ask(ctx, seen, "add", add, len(seen))
    return seen


@task("nap")
async def nap(ctx: Context[Witness], order: Order) -> Seen:
    """One sleep that parks and one that does not."""
    seen = begun(ctx, order)
    value = await ask(ctx, seen, "add", add, order.number)
    await ctx.sleep(2.1)
    value = await ask(ctx, seen, "add:1", add, value)
    await ctx.sleep(0.3)
    await ask(ctx, seen, "add:2", add, value)
    return seen


@task("flaky")
async def flaky(ctx: Context[Witness], order: Order) -> Seen:
    seen = begun(ctx, order)
    value = await ask(ctx, seen, "stumble", stumble, order.number)
    await ask(ctx, seen, "wait_and_retry", wait_and_retry, value)
    return seen


@task("broken")
async def broken(ctx: Context[Witness], order: Order) -> Seen:
    """Ends as failed when its number is even; else it goes on without the step that failed."""
    seen = begun(ctx, order)
    if order.number % 2 == 0:
        await ask(ctx, seen, "refuse", refuse, order.number)
    with suppress(StepFailedError):
        await ask(ctx, seen, "refuse", refuse, order.number)
    await ask(ctx, seen, "add", add, order.number)
    return seen


@task("again", retry=RetryPolicy(maximum_attempts=2, initial_delay="50ms"))
async def again(ctx: Context[Witness], order: Order) -> Seen:
    """Its body is retried by its own policy, with what was remembered."""
    seen = begun(ctx, order)
    value = await ask(ctx, seen, "add", add, order.number)
    await ask(ctx, seen, "fail_once", fail_once, order.nonce)
    await ask(ctx, seen, "add:1", add, value)
    return seen


@task("long")
async def long(ctx: Context[Witness], order: Order) -> Seen:
    seen = begun(ctx, order)
    value = await ask(ctx, seen, "labour", labour, order.number)
    await ask(ctx, seen, "add", add, value)
    return seen


@task("limited")
async def limited(ctx: Context[Witness], order: Order) -> Seen:
    """A durable time-out that always ends its block, parked."""
    seen = begun(ctx, order)
    try:
        async with ctx.timeout(2.5):
            await ctx.sleep("1h")
    except WaitTimeoutError:
        pass  # which is how it goes on
    await ask(ctx, seen, "add", add, order.number)
    return seen


TASKS = (chain, longer_chain, fork, nap, flaky, broken, again, long, limited)

_FORK = [f"{path}/add{number}" for path in range(3) for number in ("", ":1")]
KEYS: dict[tuple[str, int], Callable[[int], list[str] | None]] = {
    ("chain", 1): lambda number: ["add", "add:1", "compute"],
    ("chain", 2): lambda number: ["compute", "add", "add:1", "add:2"],
    ("fork", 1): lambda number: [*_FORK, "add"],
    ("nap", 1): lambda number: ["add", "add:1", "add:2"],
    ("flaky", 1): lambda number: ["stumble", "wait_and_retry"],
    ("broken", 1): lambda number: ["add"] if number % 2 else None,
    ("again", 1): lambda number: ["add", "fail_once", "add:1"],
    ("long", 1): lambda number: ["labour", "add"],
    ("limited", 1): lambda number: ["add"],
}
"""The keys of the results that a run of this kind and version returns, in their order; None when it ends as failed."""
