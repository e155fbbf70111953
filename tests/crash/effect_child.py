"""A program of its own whose tasks order things from the provider through effects, and which can be killed at a named point.

Run as `python effect_child.py URL [options]`. Points are named as the engine's events are, with the number of the pass:
`before_store:CALL:N`, `effect_performed:N`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from outlast import Attempt, Context, Done, NotDone, RetryPolicy, Unsure, WaitTimeoutError, connect, effect, step, task
from outlast.events import Event

FOLDER = Path(os.environ.get("JOURNEY_FOLDER", "."))
REQUEST_SECONDS_MAX = 120.0
EFFECT_EVENTS = ("effect_attempt_started", "effect_performed", "effect_reconciled", "effect_recorded", "decision_opened", "late_result_refused")
SAID = ("run_started", "run_parked", "run_ended", "write_refused", "lease_lost", "worker_started", "worker_ended", *EFFECT_EVENTS)


class RejectedError(Exception):
    """The provider has looked at the order and did nothing."""


@dataclass(frozen=True)
class Order:
    """What is ordered: everything that the provider does with it goes by the name."""

    name: str
    is_keyed: bool = False


@dataclass(frozen=True)
class Receipt:
    """What the provider says of an order that it has executed."""

    number: int
    name: str


@dataclass(frozen=True)
class Job:
    """One run: what to order, and how."""

    order: Order
    effect: str = "place"
    timeout: str = "30s"
    settle: str = "0.5s"
    attempts: int = 3
    delay: str = "10ms"
    key: str | None = None
    within: str | None = None
    """The whole effect's durable time-out."""


# --- the effects -----------------------------------------------------------------------------------------------------------
def send(path: str, body: dict[str, Any]) -> Any:
    """Post to the provider and return its answer; where it listens stands in a file of the folder."""
    port = (FOLDER / "provider").read_text().split()[0]
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=REQUEST_SECONDS_MAX) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        if error.code == 409:
            raise RejectedError(error.read().decode()) from error
        raise
    except urllib.error.URLError as error:
        if isinstance(error.reason, ConnectionRefusedError):
            raise error.reason from error
        raise


def facts_of(attempt: Attempt[Any], order: Order) -> dict[str, Any]:
    return {
        "name": order.name,
        "is_keyed": order.is_keyed,
        "key": attempt.key,
        "attempt": attempt.number,
        "token": attempt.token,
        "run": attempt.run_id,
        "pid": os.getpid(),
    }


@effect(not_done=(ConnectionRefusedError, RejectedError))
def place(attempt: Attempt[Any], order: Order) -> Receipt:
    """Place the order, in a thread."""
    return msgspec.convert(send("/order", facts_of(attempt, order)), Receipt)


@place.reconcile
def has_been_placed(attempt: Attempt[Any], order: Order) -> Done[Receipt] | NotDone | Unsure:
    """Ask the provider, in the word that the test has told it to say."""
    answer = send("/look", facts_of(attempt, order))
    if answer["word"] == "fail":
        raise OSError("the provider does not answer")
    if answer["word"] == "wonder":
        return Unsure("the provider's books are closed")
    if answer["receipt"] is not None:
        return Done(msgspec.convert(answer["receipt"], Receipt))
    return NotDone("the provider knows nothing of it", revoked=answer["word"] == "revoke")


@effect(not_done=(ConnectionRefusedError, RejectedError))
async def place_async(attempt: Attempt[Any], order: Order) -> Receipt:
    """Place the order, as a coroutine that its time-out ends; the request of its thread goes on."""
    return msgspec.convert(await asyncio.to_thread(send, "/order", facts_of(attempt, order)), Receipt)


place_async.reconcile(has_been_placed)


@effect(not_done=(ConnectionRefusedError, RejectedError))
def place_blindly(attempt: Attempt[Any], order: Order) -> Receipt:
    """Place the order at a provider that answers no questions: without a reconciler a person is asked."""
    return msgspec.convert(send("/order", facts_of(attempt, order)), Receipt)


EFFECTS = {"place": place, "place_async": place_async, "place_blindly": place_blindly}


# --- the task -----------------------------------------------------------------------------------------------------------------
@step
async def note(text: str) -> str:
    return text


@task
async def buy(ctx: Context, job: Job) -> str:
    await ctx.step(note, job.order.name)
    chosen = EFFECTS[job.effect].with_options(
        timeout=job.timeout, settle=job.settle, key=job.key, retry=RetryPolicy(maximum_attempts=job.attempts, initial_delay=job.delay, maximum_delay=job.delay)
    )
    try:
        async with ctx.timeout(job.within) if job.within else contextlib.nullcontext():
            receipt = await ctx.effect(chosen, job.order)
    except WaitTimeoutError:
        return f"given up: {job.order.name}"
    return await ctx.step(note, f"{receipt.name} {receipt.number}")


# --- the process ----------------------------------------------------------------------------------------------------------------
def label_of(event: Event) -> str:
    return f"{event.name}:{event.facts['call']}" if event.name in ("before_store", "after_store") else event.name


class Listener:
    """Says what happens, and at the N-th pass of `LABEL:N` kills this process, or lets all its calls to the database stand still.

    Standing still is before a transaction begins, so that a silent process blocks nobody, until a file `go` is there.
    """

    def __init__(self, kill: str, silence: str) -> None:
        self._kill = kill
        self._silence = silence
        self._passes: Counter[str] = Counter()
        self._is_silent = False
        self._changing = threading.Lock()

    def __call__(self, event: Event) -> None:
        label = label_of(event)
        with self._changing:
            self._passes[label] += 1
            point = f"{label}:{self._passes[label]}"
        if point == self._kill:
            os.kill(os.getpid(), signal.SIGKILL)
        if event.name in SAID:
            label += f" {json.dumps({key: str(value) for key, value in event.facts.items()})}"
        if event.name in (*SAID, "before_store", "after_store"):
            os.write(1, label.encode() + b"\n")
        if point == self._silence:
            self._is_silent = True
            os.write(1, b"silent\n")
        if event.name == "before_store" and self._is_silent:
            while not (FOLDER / "go").exists():
                time.sleep(0.01)


async def execute(options: argparse.Namespace) -> None:
    async with connect(options.url, tasks=(buy,), lease=options.lease) as engine:
        engine.events.subscribe(Listener(options.kill, options.silence))
        await engine.run(concurrency=options.concurrency, stop_timeout=10)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--kill", default="")
    parser.add_argument("--silence", default="")
    parser.add_argument("--lease", default="15s", help="long enough for a death to be proven before it is over")
    parser.add_argument("--concurrency", type=int, default=10)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    asyncio.run(execute(parser.parse_args()))


if __name__ == "__main__":
    main()
