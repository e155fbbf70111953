"""Rows that were damaged by hand: the run that they belong to fails with the reason, and its neighbours go on."""

import asyncio
import contextlib
import sqlite3

import psycopg

from outlast import Context, RunStatus, connect, step, task


@step
async def first(number: int) -> int:
    return number


@task
async def sleeper(ctx: Context, number: int) -> int:
    got = await ctx.step(first, number)
    await ctx.sleep("3s")  # parks, so that the history is read at the next claim
    return got


def damage(url: str, run_id: str) -> None:
    """Put something into a record that no version of the library wrote."""
    if url.startswith("sqlite"):
        with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=30)) as connection:
            connection.execute("PRAGMA ignore_check_constraints = ON")
            connection.execute("UPDATE outlast_run_step SET kind = 'unheard of' WHERE run = ?", (run_id,))
            connection.commit()
    else:
        with psycopg.connect(url) as connection:
            connection.execute("UPDATE outlast.step SET kind = 'unheard of' WHERE run = %s", (run_id,))


def test_a_damaged_history_fails_its_own_run(database_url):
    """Three runs come due together and one history cannot be read: that run fails, and the other two succeed."""

    async def main() -> None:
        async with connect(database_url, tasks=(sleeper,)) as engine:
            parked = asyncio.Semaphore(0)
            engine.events.subscribe(lambda event: parked.release() if event.name == "run_parked" else None)
            runs = await engine.enqueue_many(sleeper, [0, 1, 2])
            await engine.start()
            for _ in runs:
                await asyncio.wait_for(parked.acquire(), 60)
            await engine.stop()
            damage(database_url, runs[1].id)
            await engine.start()
            assert await runs[0].result(timeout=60) == 0
            assert await runs[2].result(timeout=60) == 2
            view = await engine.wait_for_end(runs[1].id, 60)
            assert view.status is RunStatus.FAILED
            assert view.error is not None
            assert "unheard of" in view.error.message

    asyncio.run(main())
