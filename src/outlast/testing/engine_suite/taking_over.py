"""What an engine promises when a worker is judged: its runs go on elsewhere, and what it still does is refused."""

from __future__ import annotations

from outlast.context import Context
from outlast.run import RunStatus
from outlast.task import task
from outlast.testing.kit import SkippingEngine, wait_for_event
from outlast.this_step import this_step

from .stage import Gate, Stage, StageSuite


async def judge(engine: SkippingEngine, worker: str) -> None:
    """Mark a worker as silent, as a watcher would."""
    runtime = await engine._open()
    await runtime.calls.write("end_worker", lambda tx: runtime.store.end_worker(tx, int(worker, 16), "silent", now=engine.now()))


class TakingOverSuite(StageSuite):
    """One at a time."""

    async def test_a_judged_worker_is_told_and_its_run_goes_on_elsewhere(self, stage: Stage) -> None:
        """Its body is interrupted, another executes the run under a greater token, and it begins again under a new identity."""
        gate, tokens, finished = Gate(), [], []

        async def note() -> None:
            finished.append(1)

        async def held() -> str:
            tokens.append(this_step().fencing_token)
            return await gate.enter("done")

        @task
        async def long(ctx: Context) -> str:
            await ctx.step(note)
            return await ctx.step(held)

        first = await stage.worker(long, name="first", lease="2s")
        run = await first.enqueue(long)
        await stage.within(gate.begun.wait())
        other = await stage.worker(long, name="other", lease="2s")
        (judged,) = [view.id for view in await other.inspector.list_workers(only_alive=True) if view.name == "first"]
        await judge(other, judged)
        await wait_for_event(first, "lease_lost")
        await stage.within(gate.was_canceled.wait())
        gate.opened.set()
        assert await stage.result(other.handle(long, run.id)) == "done"
        view = await run.view()
        assert (view.status, view.recoveries, len(finished)) == (RunStatus.SUCCEEDED, 1, 1)
        assert tokens == [1, 2]
        await wait_for_event(first, "worker_started", count=2)
        assert await stage.result(await first.enqueue(long)) == "done"

    async def test_a_late_result_is_refused(self, stage: Stage) -> None:
        """A thread that was not told in time returns after its run went on elsewhere: the recorded result is the other's."""
        gates = [Gate(), Gate()]

        @task
        async def long(ctx: Context) -> str:
            return await ctx.step(held)

        def held() -> str:
            token = this_step().fencing_token
            gates[token - 1].begin_in_thread()
            return f"by token {token}"

        first = await stage.worker(long, name="first", lease="2s")
        run = await first.enqueue(long)
        await stage.within(gates[0].begun.wait())
        other = await stage.worker(long, name="other", lease="2s")
        await first.stop(timeout=0.3)
        (judged,) = [view.id for view in await other.inspector.list_workers(only_alive=True) if view.name == "first"]
        await judge(other, judged)
        await stage.within(gates[1].begun.wait())
        gates[0].release()
        gates[1].release()
        assert await stage.result(other.handle(long, run.id)) == "by token 2"
