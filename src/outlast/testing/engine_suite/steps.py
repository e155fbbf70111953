"""What an engine promises to bodies about steps: remembered, decoded, retried by policy, and told as data when they fail."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from outlast.context import Context
from outlast.errors import FinalError, RetryLater, RunFailedError, StepFailedError
from outlast.retry import RetryPolicy
from outlast.run import RunStatus
from outlast.step import step
from outlast.task import task
from outlast.testing.kit import wait_for_event

from .stage import Gate, Stage, StageSuite

AT_ONCE = RetryPolicy(maximum_attempts=3, initial_delay=0.01)
SLOWLY = RetryPolicy(maximum_attempts=3, initial_delay="1h", maximum_delay="1h", jitter=0)


@dataclass
class Point:
    x: int


class Flaky:
    """A step that fails as often as it was told to, and counts."""

    def __init__(self, failures: int, error: BaseException | None = None) -> None:
        self.failures = failures
        self.error = error or OSError("no route")
        self.count = 0

    async def locate(self) -> int:
        self.count += 1
        if self.count <= self.failures:
            raise self.error
        return self.count


class StepsSuite(StageSuite):
    """Steps are remembered."""

    async def test_a_finished_step_never_runs_again(self, stage: Stage) -> None:
        """A body that is replayed after a park gets each recorded result, and no step's function is called twice."""
        counts: list[str] = []

        async def noted(name: str) -> str:
            counts.append(name)
            return name.upper()

        @task
        async def walk(ctx: Context) -> list[str]:
            first = await ctx.step(noted, "a")
            await ctx.sleep("1h")
            second = await ctx.step(noted, "b")
            await ctx.sleep("1h")
            return [first, second, await ctx.step(noted, "c")]

        worker = await stage.worker(walk)
        run = await worker.enqueue(walk)
        for _ in range(2):
            await worker.settle()
            await worker.advance("1h")
        assert await stage.result(run) == ["A", "B", "C"]
        assert counts == ["a", "b", "c"]
        history = await worker.inspector.get_history(run.id)
        assert [(one.key, one.status, one.attempts) for one in history if one.kind == "step"] == [
            ("noted", "done", 1),
            ("noted:1", "done", 1),
            ("noted:2", "done", 1),
        ]

    async def test_results_are_decoded_the_first_time_too(self, stage: Stage) -> None:
        """The body gets what is stored and not the object that the step returned: a tuple without a type is a list at once."""
        made = Point(3)

        async def plain() -> Any:
            return (1, 2)

        async def typed() -> Point:
            return made

        @task
        async def look(ctx: Context) -> list[bool]:
            got = await ctx.step(typed)
            return [await ctx.step(plain) == [1, 2], got == made, got is not made]

        worker = await stage.worker(look)
        assert await stage.result(await worker.enqueue(look)) == [True, True, True]

    async def test_branches_keep_their_own_results(self, stage: Stage) -> None:
        """Branches that finish in the other order have their own results at the replay, and nothing runs twice."""
        gate, counts = Gate(), []

        async def quick(name: str) -> str:
            counts.append(name)
            return name

        @task
        async def gathered(ctx: Context) -> list[str]:
            both = await asyncio.gather(ctx.step(gate.enter, "slow"), ctx.step(quick, "quick"))
            await ctx.sleep("1h")
            return [*both, await ctx.step(quick, "after")]

        worker = await stage.worker(gathered)
        run = await worker.enqueue(gathered)
        await wait_for_event(worker, "step_attempt_started", run=run.id, count=2)
        gate.opened.set()
        await worker.settle()
        await worker.advance("1h")
        assert await stage.result(run) == ["slow", "quick", "after"]
        assert (gate.count, counts) == (1, ["quick", "after"])

    async def test_a_failed_step_is_data(self, stage: Stage) -> None:
        """The body gets `StepFailedError` with the recorded names, live and at the replay alike, and may go on."""
        flaky = Flaky(99, FileNotFoundError("gone"))
        seen: list[str] = []

        @task
        async def forgiving(ctx: Context) -> str:
            try:
                await ctx.step(step(flaky.locate).with_options(retry=AT_ONCE))
            except StepFailedError as error:
                seen.append(f"{error.step} {error.attempts} {error.error.message} {error.is_a(OSError)} {error.is_a(ValueError)}")
            await ctx.sleep("1h")
            return "went on"

        worker = await stage.worker(forgiving)
        run = await worker.enqueue(forgiving)
        await worker.settle()
        await worker.advance("1h")
        assert await stage.result(run) == "went on"
        assert (flaky.count, seen) == (3, ["locate 3 gone True False"] * 2)

    async def test_an_exception_group_is_data(self, stage: Stage) -> None:
        """What a group held is kept member by member, of a step and of a body."""

        async def several() -> None:
            raise ExceptionGroup("two", [OSError("a"), KeyError("b")])

        @task
        async def grouped(ctx: Context) -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(ctx.step(step(several).with_options(retry=RetryPolicy(maximum_attempts=1))))

        worker = await stage.worker(grouped)
        with pytest.raises(RunFailedError) as failed:
            await stage.result(await worker.enqueue(grouped))
        (member,) = failed.value.error.members
        assert member.is_a(StepFailedError)
        assert "two" in member.message


class RetriesSuite(StageSuite):
    """Retries are chosen."""

    async def test_an_attempt_that_raises_is_followed_by_another(self, stage: Stage) -> None:
        """As often as the policy says, and the failures are kept."""
        flaky = Flaky(2)

        @task
        async def persistent(ctx: Context) -> int:
            return await ctx.step(step(flaky.locate).with_options(retry=AT_ONCE))

        worker = await stage.worker(persistent)
        run = await worker.enqueue(persistent)
        assert await stage.result(run) == 3
        (one,) = await worker.inspector.get_history(run.id)
        assert (one.key, one.status, one.attempts) == ("locate", "done", 3)

    @pytest.mark.parametrize("how", ["FinalError", "final="])
    async def test_a_final_error_has_no_second_attempt(self, stage: Stage, how: str) -> None:
        """Raised as final, or declared final by the policy."""
        flaky = Flaky(9, FinalError("never") if how == "FinalError" else PermissionError("never"))
        policy = RetryPolicy(maximum_attempts=5, initial_delay=0, final=() if how == "FinalError" else (OSError,))

        @task(retry=RetryPolicy(maximum_attempts=1))
        async def once(ctx: Context) -> int:
            return await ctx.step(step(flaky.locate).with_options(retry=policy))

        worker = await stage.worker(once)
        view = await stage.ended(await worker.enqueue(once))
        assert (view.status, flaky.count) == (RunStatus.FAILED, 1)
        assert "never" in view.why

    async def test_a_long_retry_delay_holds_no_slot(self, stage: Stage) -> None:
        """The run waits outside of the worker, says until when, and the next attempt comes when it is due."""
        flaky = Flaky(1)

        @task
        async def patient(ctx: Context) -> int:
            return await ctx.step(step(flaky.locate).with_options(retry=SLOWLY))

        worker = await stage.worker(patient, concurrency=1)
        run = await worker.enqueue(patient)
        other = await worker.enqueue(patient)
        assert {view.status for view in await worker.settle()} == {RunStatus.WAITING}
        assert flaky.count == 2
        assert await stage.result(other) == 2
        view = await run.view()
        assert view.why.startswith("retrying locate at ")
        assert view.current_step == "locate"
        await worker.advance("59m")
        assert [view.id for view in await worker.settle()] == [run.id]
        await worker.advance("1m")
        assert await stage.result(run) == 3

    async def test_a_step_chooses_its_own_delay(self, stage: Stage) -> None:
        """`RetryLater` says when, as long as the policy has attempts left."""
        flaky = Flaky(1, RetryLater("3h"))

        @task
        async def later(ctx: Context) -> int:
            return await ctx.step(step(flaky.locate).with_options(retry=AT_ONCE))

        worker = await stage.worker(later)
        run = await worker.enqueue(later)
        (view,) = await worker.settle()
        assert view.why.startswith("retrying locate")
        await worker.advance("2h")
        assert len(await worker.settle()) == 1
        await worker.advance("1h")
        assert await stage.result(run) == 2

    async def test_used_up_retries_fail_the_run(self, stage: Stage) -> None:
        """After the last attempt the run is failed, and it names step, attempts and error."""
        flaky = Flaky(99)

        @task
        async def hopeless(ctx: Context) -> int:
            return await ctx.step(step(flaky.locate).with_options(retry=AT_ONCE))

        worker = await stage.worker(hopeless)
        with pytest.raises(RunFailedError, match="locate failed after 3 attempts") as failed:
            await stage.result(await worker.enqueue(hopeless))
        assert failed.value.error.is_a(StepFailedError)
        assert flaky.count == 3

    async def test_a_retried_body_keeps_its_steps_and_retires_the_failed_one(self, stage: Stage) -> None:
        """The task's policy runs the body again: finished steps are remembered, and the step that failed it has fresh attempts."""
        flaky, done = Flaky(4), Flaky(0)

        @task(retry=RetryPolicy(maximum_attempts=2, initial_delay="1h", maximum_delay="1h", jitter=0))
        async def twice(ctx: Context) -> list[int]:
            before = await ctx.step(step(done.locate).with_options(name="before"))
            return [before, await ctx.step(step(flaky.locate).with_options(retry=AT_ONCE))]

        worker = await stage.worker(twice)
        run = await worker.enqueue(twice)
        (view,) = await worker.settle()
        assert (view.status, view.attempts, flaky.count) == (RunStatus.WAITING, 1, 3)
        assert "to be run again at" in view.why
        await worker.advance("1h")
        assert await stage.result(run) == [1, 5]
        assert done.count == 1
        assert (await run.view()).attempts == 1

    async def test_a_body_without_steps_is_retried_too(self, stage: Stage) -> None:
        """What the body's own code raises counts against the task's policy."""
        bodies: list[int] = []

        @task(retry=RetryPolicy(maximum_attempts=3, initial_delay=0))
        async def bare(ctx: Context) -> int:
            bodies.append(1)
            if len(bodies) < 3:
                raise ValueError("not yet")
            return len(bodies)

        worker = await stage.worker(bare)
        assert await stage.result(await worker.enqueue(bare)) == 3
