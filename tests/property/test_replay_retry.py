"""A retried body: the step that failed it has fresh attempts, what it did not see is used if asked for, and nothing is a mismatch."""

import asyncio
from typing import Any

import pytest

from outlast.context import Context
from outlast.errors import StepFailedError
from outlast.retry import RetryPolicy
from outlast.run import RunStatus
from outlast.step import step
from outlast.task import task

from .replay_world import Kept, World, stage

TWICE = RetryPolicy(maximum_attempts=2, initial_delay="1s", jitter=0)
ONCE = RetryPolicy(maximum_attempts=1)


def executed(body: Any, *, crashes: int = 0) -> Kept:
    async def scenario() -> Kept:
        world = World(body)
        for _ in range(crashes):
            await world.execute(limit=world.kept.count + 1)
        kept = await world.finish()
        world.performer.close()
        return kept

    kept: Kept = stage(scenario)
    return kept


class Flaky:
    """A step that fails the first time it is performed, and another that takes its time."""

    def __init__(self) -> None:
        self.performed: list[str] = []

    async def flaky(self) -> str:
        self.performed.append("flaky")
        if self.performed.count("flaky") == 1:
            raise LookupError("the first time")
        return "done"

    async def slow(self) -> str:
        self.performed.append("slow")
        await asyncio.sleep(1)
        return "done too"

    async def report(self, text: str) -> None:
        self.performed.append(text)


@pytest.mark.parametrize("crashes", [0, 1, 2, 3])
def test_what_the_failure_canceled_is_performed_again(crashes):
    """A TaskGroup cancels the other branches when one fails; their withdrawals do not outlive the retry."""
    world = Flaky()
    flaky, slow = step(retry=ONCE)(world.flaky), step(world.slow)

    @task(retry=TWICE)
    async def body(ctx: Context) -> list[str]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(ctx.step(flaky)), group.create_task(ctx.step(slow))]
        return [one.result() for one in tasks]

    kept = executed(body, crashes=crashes)
    assert kept.status is RunStatus.SUCCEEDED, kept.error
    assert kept.output == '["done","done too"]'


def test_other_arguments_behind_a_retired_record_are_a_warning():
    """What was made by code that had seen another outcome is used if asked for, and is never a mismatch."""
    world = Flaky()
    flaky, report = step(retry=ONCE)(world.flaky), step(world.report)

    @task(retry=TWICE)
    async def body(ctx: Context) -> None:
        try:
            await ctx.step(flaky)
        except StepFailedError:
            await ctx.step(report, "it failed")
            await ctx.step(report, "once more")
            raise
        await ctx.step(report, "it went well")
        await ctx.step(report, "once more")

    kept = executed(body)
    assert kept.status is RunStatus.SUCCEEDED, kept.error
    assert world.performed == ["flaky", "it failed", "once more", "flaky"]
    assert kept.warnings == ["step report was recorded with other arguments; its recorded result was used"]


def test_finished_steps_are_kept():
    """Only the step that failed the body is performed again, with all its attempts."""
    world = Flaky()
    flaky, slow = step(retry=ONCE)(world.flaky), step(world.slow)

    @task(retry=TWICE)
    async def body(ctx: Context) -> str:
        await ctx.step(slow)
        return await ctx.step(flaky)

    kept = executed(body)
    assert kept.output == '"done"'
    assert world.performed == ["slow", "flaky", "flaky"]
    assert [(failure.attempt, failure.is_retired) for failure in kept.failures] == [(1, True)]
