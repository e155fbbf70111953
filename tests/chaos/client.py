"""A client process of the load: it calls at random and notes every call before and after, with what came of it.

`ok`: the call returned. `fail`: it raised what says that nothing was done. `unknown`: it raised what leaves that open; a
call without an end, because its process was killed, is the same.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from outlast import RunCanceledError, RunDeadError, RunFailedError, connect
from outlast.errors import CommitUnknownError, OutlastError, UnavailableError, UsageError

from .journal import Journal, end_with_parent
from .load import TASKS, Order, long
from .planted import plant_from_environment

ENDS = {RunFailedError: "failed", RunCanceledError: "canceled", RunDeadError: "dead"}
RECENT = 60
SHARED_SECONDS = 3.0
"""How long clients draw from the same few shared keys."""
CALL_SECONDS_MAX = 20.0


class Client:
    """One client: its engine, its journal and what it remembers."""

    def __init__(self, engine: Any, journal: Journal, name: str, seed: str) -> None:
        self._engine = engine
        self._journal = journal
        self._name = name
        self._random = random.Random(seed)
        self._count = 0
        self._runs: list[tuple[Any, str]] = []
        self._calls = [
            (self.enqueue, 8),
            (self.enqueue_keyed, 3),
            (self.enqueue_shared, 4),
            (self.enqueue_many, 2),
            (self.cancel, 4),
            (self.get, 3),
            (self.result, 3),
        ]

    async def call_forever(self, pause: float) -> None:
        """Call until the process is ended; calls overlap, for callers do."""
        under_way: set[asyncio.Task[None]] = set()
        while True:
            (make,) = self._random.choices([make for make, _ in self._calls], [weight for _, weight in self._calls])
            task = asyncio.create_task(make())
            under_way.add(task)
            task.add_done_callback(under_way.discard)
            await asyncio.sleep(pause * self._random.uniform(0.5, 1.5))
            if len(under_way) > 20:
                await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)

    # --- what is called ------------------------------------------------------------------------------------------------------
    async def enqueue(self) -> None:
        await self._enqueue(self._random.choice(TASKS), self._order(), None)

    async def enqueue_keyed(self) -> None:
        order = self._order()
        await self._enqueue(self._random.choice(TASKS), order, f"key-{order.nonce}")

    async def enqueue_shared(self) -> None:
        """Use a key that others use at the same time, now and then with another input."""
        period = int(asyncio.get_running_loop().time() / SHARED_SECONDS)
        key = f"shared-{period}-{self._random.randrange(4)}"
        task = TASKS[period % len(TASKS)]
        number = period % 50 + (1 if self._random.random() < 0.2 else 0)
        await self._enqueue(task, Order(f"{key}-{number}", number), key)

    async def _enqueue(self, task: Any, order: Order, key: str | None) -> None:
        delay = 1.0 if self._random.random() < 0.1 else None
        priority = self._random.choice((0, 0, 0, -5, 5))

        async def make() -> Any:
            run = await self._engine.enqueue(task, order, idempotency_key=key, delay=delay, priority=priority)
            self._remember(task, run.id)
            return {"run": run.id, "created": run.created}

        await self.called("enqueue", make, kind=task.name, version=task.version, key=key, input=asdict(order))

    async def enqueue_many(self) -> None:
        orders = [self._order() for _ in range(self._random.randint(2, 5))]
        keys = [f"key-{order.nonce}" for order in orders] if self._random.random() < 0.5 else None
        await self._enqueue_many(self._random.choice(TASKS), orders, keys)

    async def enqueue_long(self, count: int) -> None:
        """Give every worker something that takes seconds."""
        await self._enqueue_many(long, [Order(self._order().nonce, 19) for _ in range(count)], None)

    async def _enqueue_many(self, task: Any, orders: list[Order], keys: list[str] | None) -> None:
        async def make() -> Any:
            runs = await self._engine.enqueue_many(task, orders, idempotency_keys=keys)
            for run in runs:
                self._remember(task, run.id)
            return {"runs": [run.id for run in runs], "created": [run.created for run in runs]}

        await self.called("enqueue_many", make, kind=task.name, version=task.version, keys=keys, inputs=[asdict(order) for order in orders])

    async def cancel(self) -> None:
        if self._runs:
            _, run_id = self._random.choice(self._runs)
            await self.called("cancel", lambda: self._canceled(run_id), run=run_id)

    async def _canceled(self, run_id: str) -> Any:
        return {"outcome": await self._engine.cancel(run_id, reason=f"{self._name} has no use for it")}

    async def get(self) -> None:
        if self._runs:
            _, run_id = self._random.choice(self._runs)
            await self.called("get", lambda: self._viewed(run_id), run=run_id)

    async def _viewed(self, run_id: str) -> Any:
        return {"status": (await self._engine.get(run_id)).status}

    async def result(self) -> None:
        if self._runs:
            task, run_id = self._random.choice(self._runs)
            await self.called("result", lambda: self._ended(task, run_id), run=run_id)

    async def _ended(self, task: Any, run_id: str) -> Any:
        try:
            return {"status": "succeeded", "output": await self._engine.handle(task, run_id).result(timeout=3)}
        except TimeoutError:
            return {"status": None}
        except (RunFailedError, RunCanceledError, RunDeadError) as error:
            return {"status": ENDS[type(error)]}

    # --- how it is noted -----------------------------------------------------------------------------------------------------
    async def called(self, op: str, make: Callable[[], Awaitable[Any]], **facts: Any) -> None:
        self._count += 1
        call = f"{self._name}-{self._count}"
        self._journal.add("invoke", call=call, op=op, **facts)
        try:
            async with asyncio.timeout(CALL_SECONDS_MAX):
                value = await make()
        except CommitUnknownError as error:
            self._journal.add("unknown", call=call, error=repr(error))
        except (UnavailableError, UsageError) as error:
            is_said = isinstance(error, UsageError) or op == "enqueue"  # of many, some may be there
            self._journal.add("fail" if is_said else "unknown", call=call, error=repr(error), kind=type(error).__name__)
        except (OutlastError, TimeoutError) as error:
            self._journal.add("unknown", call=call, error=repr(error), kind=type(error).__name__)
        else:
            self._journal.add("ok", call=call, value=value)

    def _order(self) -> Order:
        self._count += 1
        return Order(f"{self._name}-{self._count}", self._random.randrange(50))

    def _remember(self, task: Any, run_id: str) -> None:
        self._runs = [*self._runs[-RECENT:], (task, run_id)]


async def play(options: argparse.Namespace) -> None:
    journal = Journal(options.journal)
    async with connect(options.url, tasks=TASKS, name=options.name) as engine:
        client = Client(engine, journal, options.name, options.seed)
        await (client.enqueue_long(options.burst) if options.burst else client.call_forever(options.pause))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("journal", type=Path)
    parser.add_argument("--name", required=True)
    parser.add_argument("--seed", default="0")
    parser.add_argument("--pause", type=float, default=0.2)
    parser.add_argument("--burst", type=int, default=0, help="enqueue so many long runs and end")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(message)s")
    end_with_parent()
    plant_from_environment()
    asyncio.run(play(options))


if __name__ == "__main__":
    main()
