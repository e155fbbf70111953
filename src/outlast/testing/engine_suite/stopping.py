"""What an engine promises about the end: a stop drains, says what it left, and what it let go goes on elsewhere."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from outlast.context import Context
from outlast.errors import UsageError
from outlast.run import RunStatus
from outlast.task import task
from outlast.testing.kit import wait_for_event

from .stage import Gate, Stage, StageSuite


class StoppingSuite(StageSuite):
    """Stopping, and going on."""

    async def test_a_stop_waits_for_the_step_in_progress(self, stage: Stage) -> None:
        """Its result is recorded, the rest of the run is handed back, and the step never runs again."""
        gate, after = Gate(), []

        async def note() -> str:
            after.append(1)
            return "after"

        @task
        async def two(ctx: Context) -> list[str]:
            return [await ctx.step(gate.enter, "first"), await ctx.step(note)]

        worker = await stage.worker(two)
        run = await worker.enqueue(two)
        await stage.within(gate.begun.wait())
        stopping = asyncio.create_task(worker.stop())
        await asyncio.sleep(0)
        gate.opened.set()
        assert await stage.within(stopping) == []
        assert (await run.view()).status is RunStatus.PENDING
        assert after == []
        other = await stage.worker(two)
        assert await stage.result(other.handle(two, run.id)) == ["first", "after"]
        assert (gate.count, after) == (1, [1])

    async def test_a_stop_hands_back_what_does_not_end(self, stage: Stage) -> None:
        """A step that goes on is told when the time is nearly over; its run is free, and another engine runs the step again."""
        gate = Gate()

        @task
        async def long(ctx: Context) -> str:
            return await ctx.step(gate.enter, "done")

        worker = await stage.worker(long)
        run = await worker.enqueue(long)
        await stage.within(gate.begun.wait())
        assert await stage.within(worker.stop(timeout=0.6)) == []
        assert gate.was_canceled.is_set()
        view = await run.view()
        assert (view.status, view.recoveries, view.worker) == (RunStatus.PENDING, 0, None)
        gate.opened.set()
        other = await stage.worker(long)
        assert await stage.result(other.handle(long, run.id)) == "done"
        assert gate.count == 2

    async def test_what_cannot_be_handed_back_is_named(self, stage: Stage) -> None:
        """A thread that does not end keeps its run from anybody else until the lease is over; it is told by id and event."""
        begun, opened, counts = asyncio.Event(), threading.Event(), []
        loop = asyncio.get_running_loop()

        def deaf() -> int:
            counts.append(1)
            loop.call_soon_threadsafe(begun.set)
            opened.wait(60)
            return len(counts)

        @task
        async def long(ctx: Context) -> int:
            return await ctx.step(deaf)

        worker = await stage.worker(long, lease="2s")
        run = await worker.enqueue(long)
        await stage.within(begun.wait())
        left = await stage.within(worker.stop(timeout=0.6))
        assert left == [run.id]
        (event,) = worker.log.find("worker_stopped")
        assert event.facts["left"] == [run.id]
        other = await stage.worker(long, lease="2s")
        assert {view.end for view in await other.inspector.list_workers()} == {None}
        assert counts == [1]
        opened.set()
        await other.advance("2s")
        await wait_for_event(other, "run_recovered", run=run.id)
        assert await stage.result(other.handle(long, run.id)) == 2

    async def test_a_stop_may_be_repeated(self, stage: Stage) -> None:
        """Before a start, twice, and at once from two places; then the engine can be started again."""

        @task
        async def nothing(ctx: Context) -> str:
            return "done"

        client = stage.client(nothing)
        assert await client.stop() == []
        await client.start()
        assert [*await asyncio.gather(client.stop(), client.stop())] == [[], []]
        run = await client.enqueue(nothing)
        await client.start()
        assert await stage.result(run) == "done"

    async def test_a_stopped_engine_claims_nothing(self, stage: Stage) -> None:
        """What is enqueued afterwards waits for another."""

        @task
        async def nothing(ctx: Context) -> str:
            return "done"

        worker = await stage.worker(nothing)
        await worker.stop()
        run = await worker.enqueue(nothing)
        (view,) = await worker.settle()
        assert (view.id, view.status) == (run.id, RunStatus.PENDING)
        other = await stage.worker(nothing)
        assert await stage.result(other.handle(nothing, run.id)) == "done"

    async def test_parked_runs_do_not_hold_up_a_stop(self, stage: Stage) -> None:
        """Sleeping and delayed runs stay as they are."""

        @task
        async def sleeper(ctx: Context) -> None:
            await ctx.sleep("1d")

        worker = await stage.worker(sleeper)
        run = await worker.enqueue(sleeper)
        before = await stage.parked(worker, run)
        await stage.within(worker.stop(timeout=20), 10)
        after = await run.view()
        assert (after.status, after.due_at) == (RunStatus.WAITING, before.due_at)

    async def test_a_short_wait_is_parked_at_a_stop(self, stage: Stage) -> None:
        """A timer that would have stayed in memory is written down, so that the stop need not wait for it."""

        @task
        async def napper(ctx: Context) -> str:
            await ctx.sleep(1.9)
            return "awake"

        worker = await stage.worker(napper)
        run = await worker.enqueue(napper)
        await wait_for_event(worker, "run_started", run=run.id)
        await stage.within(worker.stop())
        other = await stage.worker(napper)
        assert await stage.result(other.handle(napper, run.id)) == "awake"

    async def test_many_runs_outlast_a_change_of_workers(self, stage: Stage) -> None:
        """Runs of several steps, stopped in the middle and taken by another engine, do each step once."""
        counts: dict[tuple[int, int], int] = {}

        async def count(run: int, number: int) -> int:
            counts[run, number] = counts.get((run, number), 0) + 1
            return number

        @task
        async def five(ctx: Context, run: int) -> int:
            return sum([await ctx.step(count, run, number) for number in range(5)])

        worker = await stage.worker(five, concurrency=8)
        runs = await worker.enqueue_many(five, range(60))
        await wait_for_event(worker, "run_ended", count=10)
        assert await worker.stop() == []
        assert {(await run.view()).status for run in runs} <= {RunStatus.SUCCEEDED, RunStatus.PENDING}
        other = await stage.worker(five)
        assert [await stage.result(other.handle(five, run.id)) for run in runs] == [10] * 60
        assert set(counts.values()) == {1}

    async def test_a_closed_engine_is_of_no_use(self, stage: Stage) -> None:
        """It says so, and closing again does nothing."""

        @task
        async def nothing(ctx: Context) -> None: ...

        worker = await stage.worker(nothing)
        await worker.close()
        await worker.close()
        for call in (worker.enqueue(nothing), worker.start(), worker.inspector.list_runs()):
            with pytest.raises(UsageError, match="closed"):
                await call

    async def test_a_start_waits_for_the_stop(self, stage: Stage) -> None:
        """A start that comes while a stop is under way begins when that has ended, with services of its own."""
        gate, order = Gate(), []

        @asynccontextmanager
        async def services() -> AsyncIterator[int]:
            order.append("entered")
            yield len(order)
            order.append("left")

        @task
        async def long(ctx: Context) -> str:
            return await ctx.step(gate.enter, "done")

        worker = await stage.worker(long, services=services)
        await worker.enqueue(long)
        await stage.within(gate.begun.wait())
        stopping = asyncio.create_task(worker.stop())
        starting = asyncio.create_task(worker.start())
        await asyncio.sleep(0)
        gate.opened.set()
        assert await stage.within(stopping) == []
        await stage.within(starting)
        assert order == ["entered", "left", "entered"]
        assert await stage.result(await worker.enqueue(long)) == "done"
