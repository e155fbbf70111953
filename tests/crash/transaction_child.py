"""A worker in a process of its own that kills itself at a named point of a transactional step: `python FILE URL POINT`."""

import asyncio
import os
import signal
import sqlite3
import sys
from typing import Any

from outlast import Context, connect, task
from outlast.database.borrowed import Placing, Remembering, Want
from outlast.native.driver import NativeDriver

URL, POINT = sys.argv[1], sys.argv[2]
POINTS = ("before the function", "after the function", "before the record", "before the commit", "after the commit", "nowhere")


def pass_by(point: str) -> None:
    if point == POINT:
        os.kill(os.getpid(), signal.SIGKILL)


talk, record_kept = Remembering.talk, NativeDriver.record_kept


def watched_talk(self: Any, dialect: Any) -> Any:
    """Pass the talk on, statement by statement, and be killed in between."""
    inner, answer, has_value = talk(self, dialect), None, False
    while True:
        try:
            wanted = inner.send(answer)
        except StopIteration as stop:
            pass_by("before the commit")
            return stop.value
        if has_value:
            pass_by("after the function")
            has_value = False
        if wanted is Want.VALUE:
            pass_by("before the function")
        answer = yield wanted
        has_value = wanted is Want.VALUE
        if isinstance(wanted, Placing):
            pass_by("before the record")


def watched_kept(self: Any, *args: Any) -> None:
    pass_by("after the commit")
    record_kept(self, *args)


Remembering.talk = watched_talk  # type: ignore[method-assign]
NativeDriver.record_kept = watched_kept  # type: ignore[method-assign]


def add(connection: Any, name: str) -> str:
    connection.execute(f"INSERT INTO item (name) VALUES ({'?' if isinstance(connection, sqlite3.Connection) else '%s'})", [name])
    return name


@task
async def order(ctx: Context, name: str) -> str:
    return await ctx.transaction(ctx.database, add, name)


async def main() -> None:
    async with connect(URL, tasks=(order,)) as engine:
        await engine.start()
        run = await engine.enqueue(order, "bread", idempotency_key="bread")
        sys.stdout.write(f"{await run.result(timeout=60)}\n")


if __name__ == "__main__":
    asyncio.run(main())
