"""SIGKILL in the middle of a prune: whole runs are gone and whole runs are left, and the count is what was done."""

import asyncio
from pathlib import Path

import pytest

from outlast import Context, connect, task

from .world import World, world_of

PRUNER = Path(__file__).with_name("pruner.py")
RUNS, PAGE = 20, 4


@task
async def two_steps(ctx: Context) -> None:
    await ctx.step(nothing)
    await ctx.step(nothing)


async def nothing() -> None:
    pass


async def fill(url: str) -> None:
    async with connect(url, tasks=[two_steps]) as engine:
        await engine.start()
        for run in await engine.enqueue_many(two_steps, [None] * RUNS, idempotency_keys=[f"k{number}" for number in range(RUNS)]):
            await run.result(timeout=60)


def counts(world: World) -> tuple[int, int, int, int]:
    """Runs, their bodies, their records in pairs, keys."""
    runs, bodies, records, keys = (world.query(f"SELECT count(*) FROM {{{table}}}")[0][0] for table in ("run", "run_body", "step", "run_key"))
    assert records % 2 == 0
    return runs, bodies, records // 2, keys


@pytest.mark.parametrize(("place", "gone"), [("before", 2), ("within", 2), ("after", 3)])
def test_a_prune_that_is_killed_leaves_whole_runs_and_a_true_count(place: str, gone: int, database_url: str, tmp_path: Path) -> None:
    """Killed before, within or after its third transaction: what was committed is gone whole, and the next prune does the rest."""
    asyncio.run(fill(database_url))
    with world_of(database_url, tmp_path) as world:
        victim = world._start(database_url, place, "3", program=PRUNER)
        assert victim.wait() == -9, victim.report()
        left = RUNS - gone * PAGE
        assert counts(world) == (left, left, left, RUNS)
        assert world.query("SELECT affected FROM {action}") == [(gone * PAGE,)]
        again = world._start(database_url, "never", "0", program=PRUNER)
        assert again.wait() == 0, again.report()
        assert again.said == [str(left)]
        assert counts(world) == (0, 0, 0, RUNS)
        assert world.query("SELECT sum(affected) FROM {action}") == [(RUNS,)]
