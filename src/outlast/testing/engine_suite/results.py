"""What an engine promises to who waits for a result: the value or a named error, and waiting never touches the run."""

from __future__ import annotations

import asyncio

import pytest

from outlast.context import Context
from outlast.errors import RunCanceledError, RunFailedError, RunNotFoundError
from outlast.ids import run_id
from outlast.run import RunStatus
from outlast.task import task

from .stage import Gate, Stage, StageSuite


class ResultsSuite(StageSuite):
    """Waiting for runs."""

    async def test_a_time_out_leaves_the_run_alone(self, stage: Stage) -> None:
        """`TimeoutError` names the run, which goes on."""
        gate = Gate()

        @task
        async def long(ctx: Context) -> str:
            return await ctx.step(gate.enter, "done")

        worker = await stage.worker(long)
        run = await worker.enqueue(long)
        with pytest.raises(TimeoutError, match=run.id):
            await run.result(timeout=0.05)
        gate.opened.set()
        assert await stage.result(run) == "done"

    async def test_a_canceled_waiter_leaves_the_run_alone(self, stage: Stage) -> None:
        """Others who wait get the result."""
        gate = Gate()

        @task
        async def long(ctx: Context) -> str:
            return await ctx.step(gate.enter, "done")

        worker = await stage.worker(long)
        run = await worker.enqueue(long)
        waiters = [asyncio.create_task(run.result(timeout=30)) for _ in range(2)]
        await stage.within(gate.begun.wait())
        waiters[0].cancel()
        await asyncio.wait({waiters[0]})
        gate.opened.set()
        assert await waiters[1] == "done"
        assert waiters[0].cancelled()
        assert (await run.view()).status is RunStatus.SUCCEEDED

    async def test_another_engine_s_end_is_seen(self, stage: Stage) -> None:
        """Who waits in a process that executes nothing is told, before the run began and after it is over."""
        gate = Gate()

        @task
        async def long(ctx: Context) -> str:
            return await ctx.step(gate.enter, "done")

        client = stage.client(long)
        run = await client.enqueue(long)
        waiter = asyncio.create_task(run.result(timeout=30))
        await asyncio.sleep(0)
        await stage.worker(long)
        gate.opened.set()
        assert await waiter == "done"
        assert await run.result(timeout=0.5) == "done"

    async def test_ends_have_errors_of_their_own(self, stage: Stage) -> None:
        """A failure is data in `RunFailedError`, a cancel has its reason, and what is not there is not found."""

        @task
        async def failing(ctx: Context) -> None:
            raise FileNotFoundError(2, "no such file", "/a")

        worker = await stage.worker(failing)
        run, later = await worker.enqueue(failing), await worker.enqueue(failing, delay="1h")
        with pytest.raises(RunFailedError) as failed:
            await stage.result(run)
        assert failed.value.run_id == run.id
        assert failed.value.error.is_a(OSError)
        assert "no such file" in failed.value.error.message
        assert "failing" in failed.value.error.traceback
        await later.cancel(reason="enough")
        with pytest.raises(RunCanceledError) as canceled:
            await stage.result(later)
        assert canceled.value.reason == "enough"
        with pytest.raises(RunNotFoundError):
            await worker.handle(failing, run_id()).result(timeout=5)

    async def test_a_result_is_typed(self, stage: Stage) -> None:
        """A result that is not of the declared type fails the run, with the field named."""

        @task
        async def lying(ctx: Context) -> int:
            return "three"  # type: ignore[return-value]  # what is proven

        worker = await stage.worker(lying)
        with pytest.raises(RunFailedError, match="result of lying"):
            await stage.result(await worker.enqueue(lying))
