"""Engines in this process for tests of races: they are played on a loop of their own, heard, and asked about in the database itself."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sqlite3
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import psycopg

from outlast.connect import connect
from outlast.native.engine import NativeEngine
from outlast.task import Task
from outlast.testing.event_log import EventLog

WAIT = 30.0
"""Seconds that anything may take on a loaded machine before it has failed."""


def play(scenario: Coroutine[Any, Any, None]) -> None:
    """Play a scenario; whatever asyncio complains about, during it or after it, is a failure."""
    complaints: list[dict[str, Any]] = []

    async def played() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, complaint: complaints.append(complaint))
        await asyncio.wait_for(scenario, 4 * WAIT)
        gc.collect()
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}, "tasks are left over"

    asyncio.run(played())
    gc.collect()
    assert complaints == []


class Heard:
    """An engine and all that it said."""

    def __init__(self, engine: NativeEngine) -> None:
        self.engine = engine
        self.log = EventLog(engine.events)

    @property
    def worker(self) -> Any:
        """The worker inside the engine, which no user sees."""
        return self.engine._worker

    def transactions(self, name: str) -> int:
        """Return how many store transactions of this name were begun."""
        return len(self.log.find("before_store", call=name))


@asynccontextmanager
async def engine_at(url: str, *tasks: Task[Any, Any], starts: bool = True, concurrency: int = 50, **options: Any) -> AsyncIterator[Heard]:
    """Give an engine with its worker started, or only a client; it is closed at the end."""
    engine = connect(url, tasks=tasks, **options)
    heard = Heard(engine)
    try:
        if starts:
            await engine.start(concurrency=concurrency)
        yield heard
    finally:
        await asyncio.wait_for(engine.close(timeout=3), WAIT)


def query(url: str, sql: str) -> list[tuple[Any, ...]]:
    """Ask the database itself; table names are written `{run}`."""
    if url.startswith("sqlite"):
        with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=WAIT)) as connection:
            rows = connection.execute(sql.replace("{step}", "outlast_run_step").replace("{", "outlast_").replace("}", "")).fetchall()
            connection.commit()
            return rows
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(sql.replace("{", "outlast.").replace("}", ""))  # type: ignore[arg-type]  # built here from a constant
        return cursor.fetchall() if cursor.description else []


async def until(what: str, holds: Any) -> None:
    """Wait until something holds that can only be asked for again and again."""
    try:
        async with asyncio.timeout(WAIT):
            while not holds():  # noqa: ASYNC110 - only asking again and again tells
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise TimeoutError(f"it did not come about that {what}") from None
