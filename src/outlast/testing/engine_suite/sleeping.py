"""What an engine promises about time: a sleep holds no slot, survives what happens meanwhile, and a durable time-out ends a block."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from outlast.context import Context
from outlast.errors import WaitTimeoutError
from outlast.run import RunStatus
from outlast.task import task

from .stage import Gate, Stage, StageSuite


@task
async def sleeper(ctx: Context, duration: str) -> str:
    before = ctx.now()
    await ctx.sleep(duration)
    return str(ctx.now() - before >= timedelta(hours=1))


class SleepingSuite(StageSuite):
    """Durable sleeps and time-outs."""

    async def test_a_sleep_holds_no_slot(self, stage: Stage) -> None:
        """With one slot, two sleepers are parked and a third run goes through."""
        worker = await stage.worker(sleeper, concurrency=1)
        for _ in range(2):
            await worker.enqueue(sleeper, "1d")
        assert await stage.result(await worker.enqueue(sleeper, "0s")) == "False"
        runs = await worker.settle()
        assert [run.status for run in runs] == [RunStatus.WAITING] * 2
        assert all(run.why.startswith("sleeping until ") and run.current_step == "sleep" and run.worker is None for run in runs)

    async def test_a_sleep_outlasts_its_engine(self, stage: Stage) -> None:
        """Another engine ends it when it is due, by the instant that was registered first."""
        worker = await stage.worker(sleeper)
        run = await worker.enqueue(sleeper, "2h")
        due_at = (await stage.parked(worker, run)).due_at
        assert due_at is not None
        await worker.close()
        other = await stage.worker(sleeper)
        await other.advance("1h")
        assert [view.due_at for view in await other.settle()] == [due_at]
        await other.advance("1h")
        assert await stage.result(other.handle(sleeper, run.id)) == "True"
        view = await other.get(run.id)
        assert view.finished_at is not None
        assert view.finished_at >= due_at

    async def test_a_short_sleep_ends_by_itself(self, stage: Stage) -> None:
        """Below the bound it stays in memory, and is recorded all the same."""
        worker = await stage.worker(sleeper)
        run = await worker.enqueue(sleeper, "50ms")
        assert await stage.result(run) == "False"
        assert [one.kind for one in await worker.inspector.get_history(run.id)] == ["sleep"]
        assert worker.log.find("run_parked", run=run.id) == []

    async def test_an_instant_in_the_past_is_no_wait(self, stage: Stage) -> None:
        """`sleep_until` returns at once, and the body sees time stand still until a record was handed over."""

        @task
        async def until(ctx: Context) -> bool:
            first = ctx.now()
            await ctx.sleep_until(datetime(2000, 1, 1, tzinfo=UTC))
            return first <= ctx.now()

        worker = await stage.worker(until)
        assert await stage.result(await worker.enqueue(until)) is True

    async def test_branches_sleep_side_by_side(self, stage: Stage) -> None:
        """The run wakes for the earlier one, parks again for the later, and both keep their instants."""

        @task
        async def two(ctx: Context) -> list[str]:
            async def one(name: str, duration: str) -> str:
                await ctx.sleep(duration)
                return name

            return list(await asyncio.gather(one("late", "5h"), one("early", "1h")))

        worker = await stage.worker(two)
        run = await worker.enqueue(two)
        first = await stage.parked(worker, run)
        await worker.advance("1h")
        second = await stage.parked(worker, run, count=2)
        assert first.due_at is not None
        assert second.due_at is not None
        assert timedelta(hours=3.9) < second.due_at - first.due_at < timedelta(hours=4.1)
        await worker.advance("4h")
        assert await stage.result(run) == ["late", "early"]

    async def test_a_durable_time_out_ends_a_block(self, stage: Stage) -> None:
        """It counts on while the run is parked, raises `WaitTimeoutError`, and what was awaited is given up."""

        @task
        async def limited(ctx: Context) -> str:
            try:
                async with ctx.timeout("1h"):
                    await ctx.sleep("1d")
            except WaitTimeoutError:
                await ctx.sleep("1h")
                return "timed out"
            return "slept"

        worker = await stage.worker(limited)
        run = await worker.enqueue(limited)
        await worker.settle()
        await worker.advance("1h")
        await worker.settle()
        await worker.advance("1h")
        assert await stage.result(run) == "timed out"
        assert [(one.key, one.status) for one in await worker.inspector.get_history(run.id)] == [
            ("timeout", "done"),
            ("sleep", "given_up"),
            ("sleep:1", "done"),
        ]

    async def test_a_durable_time_out_interrupts_a_step(self, stage: Stage) -> None:
        """A step in progress is canceled at it, and what it returns is not wanted any more."""
        gate = Gate()

        @task
        async def limited(ctx: Context) -> str:
            try:
                async with ctx.timeout("1h"):
                    return await ctx.step(gate.enter)
            except WaitTimeoutError:
                return "timed out"

        worker = await stage.worker(limited)
        run = await worker.enqueue(limited)
        await stage.within(gate.begun.wait())
        await worker.advance("1h")
        assert await stage.result(run) == "timed out"
        assert gate.was_canceled.is_set()

    async def test_a_block_that_ends_in_time_has_no_time_out(self, stage: Stage) -> None:
        """It leaves nothing behind that could come due later, and the replay agrees."""

        @task
        async def limited(ctx: Context) -> str:
            async with ctx.timeout("1d"):
                await ctx.sleep("1h")
            await ctx.sleep("10d")
            return "slept"

        worker = await stage.worker(limited)
        run = await worker.enqueue(limited)
        for duration in ("1h", "10d"):
            await worker.settle()
            await worker.advance(duration)
        assert await stage.result(run) == "slept"
