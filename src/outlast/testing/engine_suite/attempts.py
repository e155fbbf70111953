"""What an engine promises to steps: time-outs, what `this_step` knows, and services."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from outlast.context import Context
from outlast.engine import Capabilities
from outlast.errors import RetryLater, RunFailedError, StepFailedError, StepStuckError
from outlast.retry import RetryPolicy
from outlast.run import Progress
from outlast.step import step
from outlast.task import task
from outlast.testing.kit import wait_for_event
from outlast.this_step import this_step

from .stage import Gate, Stage, StageSuite, needs

ONCE = RetryPolicy(maximum_attempts=1)
TWICE = RetryPolicy(maximum_attempts=2, initial_delay=0)


@step(process=True, timeout="300ms", retry=ONCE)
def wait_for_ever() -> None:
    threading.Event().wait()


@step(process=True, retry=ONCE)
def report(text: str) -> list[Any]:
    this_step().progress(1, 2, "half")
    return [text, this_step().attempt, this_step().fencing_token]


@step(process=True, retry=ONCE)
def fail_in_process() -> None:
    raise FileNotFoundError("gone")


class AttemptsSuite(StageSuite):
    """Attempts of steps."""

    async def test_a_coroutine_is_canceled_at_its_time_out(self, stage: Stage) -> None:
        """Each attempt has its own time; when they are used up the error says which time-out it was."""
        gate = Gate()

        @task
        async def slow(ctx: Context) -> str:
            return await ctx.step(step(gate.enter).with_options(timeout=0.05, retry=TWICE))

        worker = await stage.worker(slow)
        with pytest.raises(RunFailedError, match=r"longer than 0:00:00\.05"):
            await stage.result(await worker.enqueue(slow))
        assert gate.was_canceled.is_set()
        assert gate.count == 2

    async def test_a_thread_is_told_at_its_time_out(self, stage: Stage) -> None:
        """It sees it, ends, and the next attempt begins only then."""
        gate = Gate()

        @task
        async def slow(ctx: Context) -> str:
            return await ctx.step(step(gate.enter_thread).with_options(timeout=1.0, retry=TWICE))

        worker = await stage.worker(slow)
        with pytest.raises(RunFailedError, match="longer than 0:00:01"):
            await stage.result(await worker.enqueue(slow))
        assert gate.count == 2

    async def test_a_thread_that_does_not_end_is_stuck(self, stage: Stage) -> None:
        """After one more time-out the step fails with `StepStuckError`, and no second attempt runs beside the first."""
        opened, count = threading.Event(), []

        def deaf() -> None:
            count.append(1)
            opened.wait(60)

        @task
        async def stuck(ctx: Context) -> str:
            try:
                await ctx.step(step(deaf).with_options(timeout=0.1, retry=TWICE))
            except StepStuckError as error:
                return error.step
            return "ended"

        worker = await stage.worker(stuck)
        assert await stage.result(await worker.enqueue(stuck)) == "deaf"
        opened.set()
        assert count == [1]

    async def test_a_process_is_killed_at_its_time_out(self, stage: Stage, capabilities: Capabilities) -> None:
        """The error says that it took too long."""
        needs(capabilities, "has_process_steps")

        @task
        async def slow(ctx: Context) -> None:
            await ctx.step(wait_for_ever)

        worker = await stage.worker(slow)
        with pytest.raises(RunFailedError, match=r"longer than 0:00:00\.3"):
            await stage.result(await worker.enqueue(slow))

    async def test_a_process_step_answers(self, stage: Stage, capabilities: Capabilities) -> None:
        """Arguments, result, `this_step` and errors travel between the processes."""
        needs(capabilities, "has_process_steps")

        @task
        async def both(ctx: Context) -> list[Any]:
            answer = await ctx.step(report, "á\u2028")
            try:
                await ctx.step(fail_in_process)
            except StepFailedError as error:
                return [*answer, error.is_a(OSError), error.error.message]
            return []

        worker = await stage.worker(both)
        assert await stage.result(await worker.enqueue(both)) == ["á\u2028", 1, 1, True, "gone"]

    async def test_an_attempt_knows_itself(self, stage: Stage, capabilities: Capabilities) -> None:
        """Its number, the claim's fencing token, which grows with each claim, and what the previous attempt reported."""
        needs(capabilities, "has_fencing_tokens")
        seen: list[tuple[str, int, int, Progress | None]] = []

        async def report() -> None:
            attempt = this_step()
            seen.append((attempt.key, attempt.attempt, attempt.fencing_token, attempt.last_progress))
            attempt.progress(len(seen), 3, f"part {len(seen)}")
            if len(seen) == 1:
                raise OSError("again at once")
            if len(seen) == 2:
                raise RetryLater("1h")

        @task
        async def reporting(ctx: Context) -> None:
            await ctx.step(step(report).with_options(retry=RetryPolicy(maximum_attempts=3, initial_delay=0)))

        worker = await stage.worker(reporting)
        run = await worker.enqueue(reporting)
        await worker.settle()
        await worker.advance("1h")
        await stage.result(run)
        assert [one[:3] for one in seen] == [("report", 1, 1), ("report", 2, 1), ("report", 3, 2)]
        assert seen[:2][1][3] == Progress(1, 3, "part 1")

    async def test_progress_is_shown_and_outlasts_a_worker(self, stage: Stage) -> None:
        """What a step of more than a second reports is in the view, and the attempt in another process gets it."""
        gate = Gate()
        last: list[Progress | None] = []

        async def copy() -> str:
            last.append(this_step().last_progress)
            this_step().progress(7, 10, "chunks")
            return await gate.enter("copied")

        @task
        async def copying(ctx: Context) -> str:
            return await ctx.step(copy)

        worker = await stage.worker(copying)
        run = await worker.enqueue(copying)
        await wait_for_event(worker, "after_store", call="record_activity")
        view = await run.view()
        assert (view.current_step, view.progress) == ("copy", Progress(7, 10, "chunks"))
        assert view.why.startswith("step copy in progress on ")
        await worker.stop(timeout=0.3)
        gate.opened.set()
        other = await stage.worker(copying)
        assert await stage.result(other.handle(copying, run.id)) == "copied"
        assert last == [None, Progress(7, 10, "chunks")]

    async def test_a_body_s_log_speaks_once(self, stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
        """A line of the body comes once although the body is replayed, and names the run."""
        caplog.set_level("INFO", logger="outlast.task")

        @task
        async def talkative(ctx: Context) -> None:
            ctx.log.info("before the sleep")
            await ctx.sleep("1h")
            ctx.log.info("after the sleep")

        worker = await stage.worker(talkative)
        run = await worker.enqueue(talkative)
        await worker.settle()
        await worker.advance("1h")
        await stage.result(run)
        said = [record.getMessage() for record in caplog.records if record.name.startswith("outlast.task")]
        assert said == [f"[talkative {run.id}] before the sleep", f"[talkative {run.id}] after the sleep"]

    async def test_this_step_is_for_steps(self, stage: Stage) -> None:
        """In a body it is refused, and the message names what to use."""

        @task
        async def mistaken(ctx: Context) -> None:
            this_step()

        worker = await stage.worker(mistaken)
        with pytest.raises(RunFailedError, match="in a body use ctx"):
            await stage.result(await worker.enqueue(mistaken))


class ServicesSuite(StageSuite):
    """How bodies and steps reach the world."""

    async def test_services_are_entered_once_and_left_last(self, stage: Stage) -> None:
        """Before the first claim, and after the last body; both bodies and steps get what was entered."""
        order: list[str] = []
        gate = Gate()

        @asynccontextmanager
        async def make() -> AsyncIterator[dict[str, str]]:
            order.append("entered")
            yield {"host": "here"}
            order.append("left")

        def read() -> str:
            return str(this_step().services["host"])

        @task
        async def reading(ctx: Context) -> list[str]:
            first = await ctx.step(read)
            await ctx.step(gate.enter)
            order.append("body ended")
            return [first, ctx.services["host"]]

        worker = await stage.worker(reading, services=make)
        runs = [await worker.enqueue(reading) for _ in range(2)]
        await wait_for_event(worker, "step_attempt_started", run=runs[0].id, count=2)
        await wait_for_event(worker, "step_attempt_started", run=runs[1].id, count=2)
        stopping = asyncio.create_task(worker.stop())
        gate.opened.set()
        assert await stage.within(stopping) == []
        assert order[0] == "entered"
        assert order[-1] == "left"
        assert order.count("entered") == order.count("left") == 1

    async def test_who_only_enqueues_enters_no_services(self, stage: Stage) -> None:
        """A client never calls the factory."""

        @task
        async def nothing(ctx: Context) -> None: ...

        def refuse() -> Any:
            raise AssertionError("entered")

        client = stage.client(nothing, services=refuse)
        await client.enqueue(nothing)
        assert await client.stop() == []

    async def test_services_that_fail_stop_the_start(self, stage: Stage) -> None:
        """Nothing has begun then, and the engine can be started once they work."""
        fails = [True]

        @asynccontextmanager
        async def make() -> AsyncIterator[str]:
            if fails:
                raise ConnectionError("no database of films")
            yield "films"

        @task
        async def reading(ctx: Context) -> str:
            return str(ctx.services)

        client = stage.client(reading, services=make)
        with pytest.raises(ConnectionError):
            await client.start()
        assert await client.inspector.list_workers(only_alive=True) == ()
        fails.clear()
        await client.start()
        assert await stage.result(await client.enqueue(reading)) == "films"
