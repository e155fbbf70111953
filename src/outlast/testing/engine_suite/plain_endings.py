"""What an engine promises to `def` bodies whose runs end early: a cancel, a deadline and a stop reach them at their calls."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta

import pytest

from outlast.blocking_context import BlockingContext
from outlast.errors import CancelRequested
from outlast.run import RunStatus
from outlast.task import task
from outlast.testing.kit import wait_for_event

from .plain_bodies import double, keys, triple
from .stage import Gate, Pause, Stage, StageSuite


class PlainEndingsSuite(StageSuite):
    """Cancel, deadline and stop in `def` bodies."""

    async def test_a_def_body_is_told_of_a_cancel_in_its_step(self, stage: Stage) -> None:
        """The step is interrupted, the call raises `CancelRequested`, and so does the next one."""
        gate, raised = Gate(), []

        @task
        def long(ctx: BlockingContext) -> str:
            for _ in range(2):
                try:
                    ctx.step(gate.enter)
                except CancelRequested as error:
                    raised.append(error.reason)
            return "finished"

        worker = await stage.worker(long)
        run = await worker.enqueue(long)
        await stage.within(gate.begun.wait())
        await run.cancel(reason="enough")
        view = await stage.ended(run)
        assert (view.status, view.verdict, gate.count) == (RunStatus.CANCELED, "acknowledged", 1)
        assert raised == ["enough", "enough"]

    @pytest.mark.parametrize("by", ["cancel", "deadline"])
    async def test_a_def_body_is_told_between_its_calls(self, stage: Stage, by: str) -> None:
        """A thread that computes is told by its next call, and what it was going to do is not done."""
        pause = Pause()
        done: list[int] = []

        def note() -> None:
            done.append(1)

        @task
        def computing(ctx: BlockingContext) -> None:
            pause.compute()
            ctx.step(note)

        worker = await stage.worker(computing)
        run = await worker.enqueue(computing, deadline=None if by == "cancel" else worker.now() + timedelta(hours=1))
        await stage.within(pause.begun.wait())
        if by == "cancel":
            await run.cancel(reason="enough")
        else:
            await worker.advance("2h")
        await wait_for_event(worker, "run_told", run=run.id)
        pause.go_on()
        view = await stage.ended(run)
        assert view.status is (RunStatus.CANCELED if by == "cancel" else RunStatus.FAILED)
        assert (view.verdict, done) == ("acknowledged", [])

    async def test_a_run_is_not_executed_beside_an_older_thread_of_it(self, stage: Stage) -> None:
        """A thread that ignores a cancel keeps its run from being begun again in this process, until it has ended."""
        pauses = [Pause(), Pause()]
        executions = iter(pauses)
        alive: list[int] = []

        @task
        def deaf(ctx: BlockingContext) -> str:
            pause = next(executions)
            alive.append(len([thread for thread in threading.enumerate() if thread.name == "outlast-body-deaf"]))
            pause.compute()
            return str(ctx.step(double, 1))

        worker = await stage.worker(deaf)
        run = await worker.enqueue(deaf)
        await stage.within(pauses[0].begun.wait())
        await run.cancel(reason="enough")
        view = await stage.ended(run)
        assert (view.status, view.verdict) == (RunStatus.CANCELED, "ignored")
        await worker.operator.retry(run.id, actor="test", reason="again")
        pauses[1].go_on()
        with pytest.raises(TimeoutError):
            await worker.settle(timeout=3)
        assert (await run.view()).status is RunStatus.PENDING
        pauses[0].go_on()
        assert await stage.result(run) == "2"
        assert alive == [1, 1]

    async def test_a_stop_hands_a_def_body_back_at_its_next_call(self, stage: Stage) -> None:
        """What it computes is waited for; the call is made by the next engine."""
        pause, seen = Pause(), []

        @task
        def computing(ctx: BlockingContext) -> int:
            first = ctx.step(double, 1)
            seen.append("computing")
            pause.compute()
            return first + ctx.step(triple, 1)

        worker = await stage.worker(computing)
        run = await worker.enqueue(computing)
        await stage.within(pause.begun.wait())
        stopping = asyncio.create_task(worker.stop())
        await asyncio.sleep(0)
        pause.go_on()
        assert await stage.within(stopping) == []
        assert (await run.view()).status is RunStatus.PENDING
        assert await keys(worker, run.id) == [("double", "done")]
        other = await stage.worker(computing)
        assert await stage.result(other.handle(computing, run.id)) == 5
        assert seen == ["computing", "computing"]

    async def test_a_def_body_that_does_not_end_is_left_and_named(self, stage: Stage) -> None:
        """A stop returns in its time and releases nothing that still runs; what the thread asks for later is refused."""
        pause, raised = Pause(), []
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()

        @task
        def endless(ctx: BlockingContext) -> None:
            pause.compute()
            try:
                ctx.step(double, 1)
            except BaseException as error:
                raised.append(type(error).__name__)
                raise
            finally:
                loop.call_soon_threadsafe(ended.set)

        worker = await stage.worker(endless)
        run = await worker.enqueue(endless)
        await stage.within(pause.begun.wait())
        assert await stage.within(worker.stop(timeout=0.6)) == [run.id]
        pause.go_on()
        await stage.within(ended.wait())
        assert raised == ["BodyUnwound"]
        assert await keys(worker, run.id) == []
