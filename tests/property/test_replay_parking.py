"""Parking: when a run leaves its worker, for how long, and what keeps it there."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from outlast.context import Context
from outlast.errors import StepFailedError, WaitTimeoutError
from outlast.native.store import RunCheckpoint
from outlast.retry import RetryPolicy
from outlast.run import RunStatus
from outlast.step import step
from outlast.task import Task, task

from .replay_world import EPOCH, World, stage


@step
async def quick() -> int:
    return 1


def first_leave(body: Task[Any, Any], *, drain_at: float | None = None) -> RunCheckpoint:
    """Execute once, and return how the execution left; the clock says when."""

    async def scenario() -> RunCheckpoint:
        world = World(body)
        ended = world.begin()
        if drain_at is not None:
            await asyncio.sleep(drain_at)
            assert world.driver is not None
            world.driver.drain()
        checkpoint = (await ended).checkpoint
        await world.drain()
        left_at.append(world.now())
        assert checkpoint is not None
        if checkpoint.status.is_terminal:
            return checkpoint
        kept = await world.finish()
        assert kept.status is RunStatus.SUCCEEDED, kept.error
        return checkpoint

    left_at.clear()
    result: RunCheckpoint = stage(scenario)
    return result


left_at: list[Any] = []


def after(seconds: float) -> Any:
    return EPOCH + timedelta(seconds=seconds)


@pytest.mark.parametrize(("seconds", "parks"), [(0.0, False), (1.9, False), (2.0, True), (3600.0, True)])
def test_a_timer_parks_from_two_seconds_on(seconds, parks):
    """A shorter one costs less in its slot than a park and a claim."""

    @task
    async def body(ctx: Context) -> None:
        await ctx.sleep(seconds)

    left = first_leave(body)
    assert left.status is (RunStatus.WAITING if parks else RunStatus.SUCCEEDED)
    assert left_at == [after(0 if parks else seconds)]
    assert left.due_at == (after(seconds) if parks else None)


def test_the_earliest_instant_counts_and_every_open_wait_is_kept():
    """A run with several timers wakes for the first, and none of them begins anew."""

    @task
    async def body(ctx: Context) -> None:
        async with ctx.timeout("1h"):
            await asyncio.gather(ctx.sleep(50), ctx.sleep(20), ctx.sleep(40))

    left = first_leave(body)
    assert left.due_at == after(20)
    assert {str(wait.key): wait.due_at for wait in left.waits} == {
        "timeout": after(3600), "0/sleep": after(50), "1/sleep": after(20), "2/sleep": after(40),
    }  # fmt: skip


def test_a_timer_that_has_come_within_two_seconds_keeps_the_run():
    """How far the timer is counts when the last step ends, not when the timer began."""

    @step
    async def takes_nine_seconds() -> None:
        await asyncio.sleep(9)

    @task
    async def body(ctx: Context) -> None:
        await asyncio.gather(ctx.sleep(10), ctx.step(takes_nine_seconds))

    assert first_leave(body).status is RunStatus.SUCCEEDED
    assert left_at == [after(10)]


def test_a_step_in_progress_keeps_the_run():
    """It parks when the step has ended and its record is durable, and not before."""

    @step
    async def takes_five_seconds() -> None:
        await asyncio.sleep(5)

    @task
    async def body(ctx: Context) -> None:
        await asyncio.gather(ctx.sleep(100), ctx.step(takes_five_seconds))

    left = first_leave(body)
    assert (left.status, left.due_at, left_at) == (RunStatus.WAITING, after(100), [after(5)])


@pytest.mark.parametrize(("seconds", "parks"), [(1.0, False), (2.0, True)])
def test_a_retry_delay_parks_from_two_seconds_on(seconds, parks):
    """A step between attempts is no step in progress."""

    @step(retry=RetryPolicy(maximum_attempts=2, initial_delay=seconds, jitter=0))
    async def fails() -> None:
        raise LookupError

    @task
    async def body(ctx: Context) -> None:
        with pytest.raises(StepFailedError):
            await ctx.step(fails)

    left = first_leave(body)
    assert left.status is (RunStatus.WAITING if parks else RunStatus.SUCCEEDED)
    assert left.due_at == (after(seconds) if parks else None)
    assert left.waits == ()


def test_a_running_branch_keeps_the_run():
    """A branch that has something to do yet is no standstill, however many turns it takes."""

    async def busy(ctx: Context) -> None:
        for _ in range(500):
            await asyncio.sleep(0)
        await ctx.step(quick)

    @task
    async def body(ctx: Context) -> None:
        await asyncio.gather(ctx.sleep(100), busy(ctx))

    async def scenario() -> None:
        world = World(body)
        await world.execute()
        assert [str(record.key) for record in world.kept.records] == ["1/quick"]

    stage(scenario)


def test_a_foreign_await_keeps_the_run():
    """The worker cannot know when it ends, so the run stays with its slot until it does."""

    async def foreign(ctx: Context) -> None:
        await asyncio.sleep(7)
        await ctx.step(quick)

    @task
    async def body(ctx: Context) -> None:
        await asyncio.gather(ctx.sleep(100), foreign(ctx))

    left = first_leave(body)
    assert (left.status, left_at) == (RunStatus.WAITING, [after(7)])


def test_a_timeout_goes_on_while_the_run_is_parked():
    """Its instant is the one of its beginning, however often the run was away."""

    @task
    async def body(ctx: Context) -> str:
        try:
            async with ctx.timeout(100):
                for _ in range(10):
                    await ctx.sleep(30)
        except WaitTimeoutError:
            assert ctx.now() == after(100)
            return "over"
        return "in time"

    async def scenario() -> None:
        world = World(body)
        kept = await world.finish()
        assert kept.output == '"over"'
        assert world.executions == 5
        assert world.now() == after(100)

    stage(scenario)


def test_a_draining_worker_parks_what_waits_and_hands_back_what_would_go_on():
    """At a stop nothing new begins: the run leaves at its next standstill, whatever it waits for."""

    @step
    async def takes_a_second() -> None:
        await asyncio.sleep(1)

    @task
    async def waits(ctx: Context) -> None:
        await ctx.sleep(1.5)

    @task
    async def works(ctx: Context) -> None:
        await ctx.step(takes_a_second)
        await ctx.step(quick)

    left = first_leave(waits, drain_at=0.5)
    assert (left.status, left.due_at, left_at) == (RunStatus.WAITING, after(1.5), [after(0.5)])
    left = first_leave(works, drain_at=0.5)
    assert (left.status, left_at) == (RunStatus.PENDING, [after(1)])
