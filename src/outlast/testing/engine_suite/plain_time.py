"""What an engine promises to `def` bodies while they compute and while they unwind: time-outs, parks, and what is left at a stop."""

from __future__ import annotations

import asyncio
import threading

from outlast.blocking_context import BlockingContext
from outlast.errors import WaitTimeoutError
from outlast.run import RunStatus
from outlast.task import task

from .plain_bodies import double, keys
from .stage import WAIT_SECONDS_MAX, Gate, Pause, Stage, StageSuite


class PlainTimeSuite(StageSuite):
    """Time-outs and unwinding in `def` bodies."""

    async def test_a_durable_time_out_ends_a_block_of_a_def_body(self, stage: Stage) -> None:
        """Also while a step is in progress, which is told; the time counts on while the run is parked."""
        gate = Gate()

        @task
        def limited(ctx: BlockingContext) -> list[str]:
            ends = []
            for call in (lambda: ctx.sleep("1d"), lambda: ctx.step(gate.enter)):
                try:
                    with ctx.timeout("1h"):
                        call()
                except WaitTimeoutError:
                    ends.append("timed out")
            with ctx.timeout("1h"):
                ends.append(str(ctx.step(double, 1)))
            return ends

        worker = await stage.worker(limited)
        run = await worker.enqueue(limited)
        await stage.parked(worker, run)
        await worker.advance("1h")
        await stage.within(gate.begun.wait())
        await worker.advance("1h")
        assert await stage.result(run) == ["timed out", "timed out", "2"]
        assert gate.was_canceled.is_set()

    async def test_a_time_out_that_passes_while_the_body_computes_replays_so(self, stage: Stage) -> None:
        """It is noticed by the next durable call, which is given up; at the replay the body has its steps in the same order."""
        gate, pauses = Gate(), [Pause(), Pause()]
        executions = iter(pauses)

        @task
        def limited(ctx: BlockingContext) -> str:
            pause = next(executions)
            try:
                with ctx.timeout("1h"):
                    ctx.step(double, 1)
                    pause.compute()
                    ctx.step(gate.enter)
            except WaitTimeoutError:
                ctx.sleep("1h")
                return "timed out"
            return "in time"

        worker = await stage.worker(limited)
        run = await worker.enqueue(limited)
        await stage.within(pauses[0].begun.wait())
        await worker.advance("2h")
        pauses[0].go_on()
        await stage.parked(worker, run)
        await worker.advance("1h")
        await stage.within(pauses[1].begun.wait())
        for _ in range(10):  # turns of the loop in which the record of the time-out must not be handed over
            await asyncio.sleep(0.01)
        pauses[1].go_on()
        assert await stage.result(run) == "timed out"
        assert await keys(worker, run.id) == [("double", "done"), ("timeout", "done"), ("enter", "given_up"), ("sleep", "done")]

    async def test_a_park_waits_until_the_thread_has_ended(self, stage: Stage) -> None:
        """While a `finally` still computes the run is nobody else's; a call from it raises again and records nothing."""
        pause, raised = Pause(), []

        @task
        def slow(ctx: BlockingContext) -> str:
            try:
                ctx.sleep("1h")
            except BaseException as error:
                raised.append(type(error).__name__)
                pause.compute()
                try:
                    ctx.step(double, 1)
                except BaseException as again:
                    raised.append(type(again).__name__)
                raise
            return "slept"

        @task
        def quick(ctx: BlockingContext) -> int:
            return ctx.step(double, 1)

        worker = await stage.worker(slow, quick)
        run = await worker.enqueue(slow)
        await stage.within(pause.begun.wait())
        assert await stage.result(await worker.enqueue(quick)) == 2  # its records would come after the park
        assert (await run.view()).status is RunStatus.RUNNING
        pause.go_on()
        await stage.parked(worker, run)
        assert await keys(worker, run.id) == [("sleep", "waiting")]
        assert raised == ["BodyUnwound", "BodyUnwound"]
        await worker.advance("1h")
        assert await stage.result(run) == "slept"

    async def test_a_def_body_that_does_not_unwind_is_left_and_named(self, stage: Stage) -> None:
        """A stop hands back no run whose `finally` still computes, and when that ends after the stop, nothing is written."""
        pause = Pause()

        @task
        def slow(ctx: BlockingContext) -> None:
            try:
                ctx.sleep("1h")
            finally:
                pause.compute()

        worker = await stage.worker(slow)
        run = await worker.enqueue(slow)
        await stage.within(pause.begun.wait())
        assert await stage.within(worker.stop(timeout=0.6)) == [run.id]
        (thread,) = [thread for thread in threading.enumerate() if thread.name == "outlast-body-slow"]
        pause.go_on()
        await asyncio.to_thread(thread.join, WAIT_SECONDS_MAX)
        for _ in range(20):  # turns of the loop in which something could be written
            await asyncio.sleep(0.01)
        assert (await run.view()).status is RunStatus.RUNNING
