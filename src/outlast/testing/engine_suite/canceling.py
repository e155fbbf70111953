"""What an engine promises about cancel: once accepted the run never succeeds, and what runs is told."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from outlast.context import Context
from outlast.engine import Capabilities
from outlast.errors import RunCanceledError, RunNotFoundError
from outlast.ids import run_id
from outlast.retry import RetryPolicy
from outlast.run import CancelOutcome, RunStatus
from outlast.step import step
from outlast.task import task
from outlast.testing.kit import wait_for_event
from outlast.this_step import this_step

from .stage import Gate, Stage, StageSuite, needs

SLOWLY = RetryPolicy(maximum_attempts=3, initial_delay="1h", maximum_delay="1h", jitter=0)


@step(process=True)
def wait_in_process(mark: Path, is_stubborn: bool) -> str:
    """Leave a mark that it has begun, then wait for ever; the stubborn one does not look whether it is to end."""
    mark.touch()
    while True:
        if not is_stubborn:
            this_step().raise_if_canceled()
        threading.Event().wait(0.02)


class CancelingSuite(StageSuite):
    """Cancel wins."""

    async def test_what_never_ran_is_canceled_on_the_spot(self, stage: Stage) -> None:
        """Nobody has to execute it for that, and no body begins afterwards."""
        gate = Gate()

        @task
        async def never(ctx: Context) -> None:
            await ctx.step(gate.enter)

        client = stage.client(never)
        runs = [await client.enqueue(never), await client.enqueue(never, delay="1h")]
        assert [await run.cancel(reason="not wanted") for run in runs] == [CancelOutcome.CANCELED] * 2
        assert {(await run.view()).status for run in runs} == {RunStatus.CANCELED}
        worker = await stage.worker(never)
        await worker.advance("1h")
        assert await worker.settle() == ()
        assert gate.count == 0
        with pytest.raises(RunCanceledError, match="not wanted"):
            await stage.result(runs[0])

    async def test_a_sleep_is_beaten(self, stage: Stage) -> None:
        """A parked run ends at once and not at its timer, and it never wakes again."""

        @task
        async def sleeper(ctx: Context) -> None:
            await ctx.sleep("7d")

        worker = await stage.worker(sleeper)
        run = await worker.enqueue(sleeper)
        await stage.parked(worker, run)
        assert await run.cancel(reason="enough") is CancelOutcome.REQUESTED
        view = await stage.ended(run)
        assert (view.status, view.cancel_reason, view.why) == (RunStatus.CANCELED, "enough", "canceled: enough")
        await worker.advance("8d")
        assert (await run.view()).status is RunStatus.CANCELED

    async def test_a_retry_delay_is_beaten(self, stage: Stage) -> None:
        """No further attempt is made."""
        attempts: list[int] = []

        async def failing() -> None:
            attempts.append(1)
            raise OSError("no route")

        @task
        async def retrying(ctx: Context) -> None:
            await ctx.step(step(failing).with_options(retry=SLOWLY))

        worker = await stage.worker(retrying)
        run = await worker.enqueue(retrying)
        await stage.parked(worker, run)
        await run.cancel(reason="enough")
        assert (await stage.ended(run)).status is RunStatus.CANCELED
        await worker.advance("1d")
        assert await worker.settle() == ()
        assert len(attempts) == 1

    @pytest.mark.parametrize("by", ["its own engine", "another engine"])
    async def test_an_async_step_is_interrupted(self, stage: Stage, by: str) -> None:
        """It is told while it runs, whoever canceled; the run is canceled, and the verdict says that it obeyed."""
        gate = Gate()

        @task
        async def long(ctx: Context) -> str:
            return await ctx.step(gate.enter)

        worker = await stage.worker(long)
        client = worker if by == "its own engine" else stage.client(long)
        run = await client.enqueue(long)
        await stage.within(gate.begun.wait())
        assert await client.cancel(run.id, reason="enough") is CancelOutcome.REQUESTED
        await stage.within(gate.was_canceled.wait())
        await wait_for_event(worker, "run_ended", run=run.id, status=RunStatus.CANCELED)
        view = await stage.ended(run)
        assert (view.status, view.verdict, gate.count) == (RunStatus.CANCELED, "acknowledged", 1)
        assert worker.log.find("run_told", run=run.id)[0].facts["reason"] == "enough"

    async def test_a_thread_step_sees_it(self, stage: Stage) -> None:
        """`this_step().raise_if_canceled()` raises in the thread, and that is an answer."""
        gate = Gate()

        @task
        async def long(ctx: Context) -> str:
            return await ctx.step(gate.enter_thread)

        worker = await stage.worker(long)
        run = await worker.enqueue(long)
        await stage.within(gate.begun.wait())
        await run.cancel(reason="enough")
        await stage.within(gate.was_canceled.wait())
        view = await stage.ended(run)
        assert (view.status, view.verdict) == (RunStatus.CANCELED, "acknowledged")

    async def test_what_ignores_a_cancel_is_named_and_its_result_refused(self, stage: Stage) -> None:
        """After the grace the run is canceled although its thread goes on; what that returns later is recorded nowhere."""
        begun, opened, ended = asyncio.Event(), threading.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()

        def deaf() -> str:
            loop.call_soon_threadsafe(begun.set)
            opened.wait(60)
            loop.call_soon_threadsafe(ended.set)
            return "late"

        @task
        async def long(ctx: Context) -> str:
            return await ctx.step(deaf)

        worker = await stage.worker(long)
        run = await worker.enqueue(long)
        await stage.within(begun.wait())
        await run.cancel(reason="enough")
        view = await stage.ended(run)
        opened.set()
        await stage.within(ended.wait())
        assert (view.status, view.verdict) == (RunStatus.CANCELED, "ignored")
        assert (await run.view()).status is RunStatus.CANCELED
        assert all(one.result is None for one in await worker.inspector.get_history(run.id))

    @pytest.mark.parametrize(("is_stubborn", "verdict"), [(False, "acknowledged"), (True, "killed")])
    async def test_a_process_step_ends(self, stage: Stage, tmp_path: Path, capabilities: Capabilities, is_stubborn: bool, verdict: str) -> None:
        """It is told first, and killed when it does not listen."""
        needs(capabilities, "has_process_steps")
        mark = tmp_path / "begun"

        @task
        async def long(ctx: Context) -> str:
            return await ctx.step(wait_in_process, mark, is_stubborn)

        worker = await stage.worker(long)
        run = await worker.enqueue(long)
        async with asyncio.timeout(30):
            while not mark.exists():  # noqa: ASYNC110 - another process can set no event of ours
                await asyncio.sleep(0.02)
        await run.cancel(reason="enough")
        view = await stage.ended(run)
        assert (view.status, view.verdict) == (RunStatus.CANCELED, verdict), (view.status, view.verdict)

    async def test_a_body_that_catches_it_is_canceled_all_the_same(self, stage: Stage) -> None:
        """Whatever a body makes of the cancel, also returning a value, the run does not succeed; asking for more raises again."""
        gate = Gate()
        refused: list[str] = []

        @task
        async def stubborn(ctx: Context) -> str:
            try:
                await ctx.step(gate.enter)
            except asyncio.CancelledError:
                try:
                    await ctx.step(gate.enter)
                except asyncio.CancelledError as error:
                    refused.append(type(error).__name__)
            return "finished"

        worker = await stage.worker(stubborn)
        run = await worker.enqueue(stubborn)
        await stage.within(gate.begun.wait())
        await run.cancel(reason="enough")
        assert (await stage.ended(run)).status is RunStatus.CANCELED
        assert (gate.count, refused) == (1, ["CancelRequested"])

    async def test_a_body_that_awaits_something_of_its_own_is_interrupted(self, stage: Stage) -> None:
        """Also in a branch, and also what is not durable."""
        begun: list[str] = []

        @task
        async def foreign(ctx: Context, is_branched: bool) -> None:
            begun.append(ctx.run_id)
            if is_branched:
                await asyncio.gather(asyncio.Event().wait(), ctx.sleep("1h"))
            else:
                await asyncio.Event().wait()

        worker = await stage.worker(foreign)
        for is_branched in (False, True):
            run = await worker.enqueue(foreign, is_branched)
            await wait_for_event(worker, "run_started", run=run.id)
            await run.cancel(reason="enough")
            view = await stage.ended(run)
            assert (view.status, view.verdict) == (RunStatus.CANCELED, "acknowledged")

    async def test_cancel_and_completion_agree(self, stage: Stage) -> None:
        """Whichever comes first, the answer to the cancel and the end of the run say the same."""

        async def quick() -> int:
            return 1

        @task
        async def short(ctx: Context) -> int:
            return await ctx.step(quick)

        worker, client = await stage.worker(short), stage.client(short)

        async def race(number: int) -> tuple[CancelOutcome, RunStatus]:
            run = await client.enqueue(short)
            await asyncio.sleep(number / 1000)
            outcome = await (worker, client)[number % 2].cancel(run.id, reason="race")
            return outcome, (await stage.ended(run)).status

        ends = await asyncio.gather(*(race(number) for number in range(40)))
        assert set(ends) <= {
            (CancelOutcome.CANCELED, RunStatus.CANCELED),
            (CancelOutcome.REQUESTED, RunStatus.CANCELED),
            (CancelOutcome.ALREADY_OVER, RunStatus.SUCCEEDED),
        }

    async def test_a_cancel_accepted_in_the_last_moment_wins(self, stage: Stage) -> None:
        """A step that has its own run canceled and returns at once: the body ends with a value, and no run succeeds."""

        async def cancel_me(run: str) -> str:
            return str(await client.cancel(run, reason="at the last moment"))

        @task
        async def short(ctx: Context) -> str:
            return await ctx.step(cancel_me, ctx.run_id)

        worker, client = await stage.worker(short), stage.client(short)
        views = await asyncio.gather(*(stage.ended(run) for run in await worker.enqueue_many(short, [None] * 30)))
        assert {(view.status, view.cancel_reason, view.output) for view in views} == {(RunStatus.CANCELED, "at the last moment", None)}

    async def test_a_second_cancel_changes_nothing(self, stage: Stage) -> None:
        """The first reason stays, and a cancel of what is over says so."""
        gate = Gate()

        @task
        async def long(ctx: Context) -> str:
            return await ctx.step(gate.enter)

        worker = await stage.worker(long)
        run, done = await worker.enqueue(long), await worker.enqueue(long)
        await wait_for_event(worker, "step_attempt_started", run=run.id)
        assert [await run.cancel(reason="first"), await run.cancel(reason="second")] == [CancelOutcome.REQUESTED] * 2
        assert (await stage.ended(run)).cancel_reason == "first"
        assert await run.cancel(reason="third") is CancelOutcome.ALREADY_OVER
        gate.opened.set()
        await stage.result(done)
        assert await done.cancel(reason="late") is CancelOutcome.ALREADY_OVER
        assert (await done.view()).cancel_reason is None
        with pytest.raises(RunNotFoundError):
            await worker.cancel(run_id(), reason="nobody's")

    async def test_a_canceled_run_can_be_retried(self, stage: Stage, capabilities: Capabilities) -> None:
        """An operator's retry withdraws the cancel, and what was finished is remembered."""
        needs(capabilities, "has_operator_retry")
        gate, finished = Gate(), []

        async def note() -> None:
            finished.append(1)

        @task
        async def long(ctx: Context) -> str:
            await ctx.step(note)
            return await ctx.step(gate.enter, "through")

        worker = await stage.worker(long)
        run = await worker.enqueue(long)
        await stage.within(gate.begun.wait())
        await run.cancel(reason="enough")
        await stage.ended(run)
        gate.opened.set()
        assert (await worker.operator.retry(run.id, actor="ann", reason="wanted after all")).status is RunStatus.PENDING
        assert await stage.result(run) == "through"
        view = await run.view()
        assert (len(finished), view.cancel_reason, view.verdict) == (1, None, None)
