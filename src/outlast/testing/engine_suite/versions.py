"""What an engine promises about code: a run keeps its version, and changed code harms nothing."""

from __future__ import annotations

from typing import Any

import pytest

from outlast.context import Context
from outlast.errors import HistoryMismatchError
from outlast.run import RunStatus
from outlast.step import step
from outlast.task import Task, task

from .stage import Stage, StageSuite


class Steps:
    """Three steps that note that they ran."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    async def locate(self) -> str:
        self.ran.append("locate")
        return "here"

    async def inspect(self) -> str:
        self.ran.append("inspect")
        return "fine"

    async def copy(self) -> str:
        self.ran.append("copy")
        return "done"


def importer(*names: str, steps: Steps, inserted: str = "") -> Task[None, list[str]]:
    """Return a task that does these steps, with a sleep in front of the last one."""

    @task("import_asset")
    async def body(ctx: Context) -> list[str]:
        results = []
        for name in names:
            if name == names[-1]:
                await ctx.sleep("1h")
            function: Any = step(getattr(steps, name))
            results.append(await ctx.step(function.with_options(inserted=name == inserted)))
        return results

    return body


class VersionsSuite(StageSuite):
    """Versions side by side."""

    async def test_versions_live_side_by_side(self, stage: Stage) -> None:
        """A run is executed by the version that it was enqueued with, in one process or in several."""

        @task("greet", version=1)
        async def first(ctx: Context) -> str:
            return "v1"

        @task("greet", version=2)
        async def second(ctx: Context) -> str:
            return "v2"

        client = stage.client(first, second)
        runs = [await client.enqueue(first), await client.enqueue(second)]
        newer = await stage.worker(second)
        assert await stage.result(runs[1]) == "v2"
        (waiting,) = await newer.settle()
        assert (waiting.id, waiting.status) == (runs[0].id, RunStatus.PENDING)
        assert waiting.why == "stranded: no worker has greet v1, only v2"
        await stage.worker(first)
        assert await stage.result(runs[0]) == "v1"

    async def test_engines_with_other_tasks_leave_each_other_s_runs_alone(self, stage: Stage) -> None:
        """Neither claims, fails nor cancels what it does not know."""

        @task
        async def mine(ctx: Context) -> str:
            return "mine"

        @task
        async def yours(ctx: Context) -> str:
            return "yours"

        one, other = await stage.worker(mine), await stage.worker(yours)
        runs = [*await one.enqueue_many(mine, [None] * 5), *await other.enqueue_many(yours, [None] * 5)]
        assert [await stage.result(run) for run in runs] == ["mine"] * 5 + ["yours"] * 5
        assert {event.facts["kind"] for event in one.log.find("run_started")} == {"mine"}
        assert {event.facts["kind"] for event in other.log.find("run_started")} == {"yours"}


class ChangedCodeSuite(StageSuite):
    """Code that does not fit a history any more."""

    async def _changed(self, stage: Stage, steps: Steps, *names: str, **options: Any) -> tuple[Any, Any]:
        """Bring a run over its first steps with the old code, then let the changed code go on; return the run and the engine."""
        old = await stage.worker(importer("locate", "copy", steps=steps))
        run = await old.enqueue(old.tasks[0])
        await stage.parked(old, run)
        await old.close()
        assert steps.ran == ["locate"]
        new = await stage.worker(importer(*names, steps=steps, **options))
        await new.advance("1h")
        return new.handle(new.tasks[0], run.id), new

    @pytest.mark.parametrize("names", [("inspect", "locate", "copy"), ("copy", "inspect"), ("inspect", "copy")])
    async def test_changed_code_performs_nothing(self, stage: Stage, names: tuple[str, ...]) -> None:
        """Inserted, removed or renamed in front of what is recorded: the run fails, names what was expected and what came, and no attempt is counted."""
        steps = Steps()
        run, _ = await self._changed(stage, steps, *names)
        view = await stage.ended(run)
        assert (view.status, view.attempts, steps.ran) == (RunStatus.FAILED, 0, ["locate"])
        assert view.error is not None
        assert view.error.is_a(HistoryMismatchError)
        assert "locate" in view.error.message
        assert names[0] in view.error.message

    async def test_right_code_goes_on_after_a_retry(self, stage: Stage) -> None:
        """The whole history is there still: once code that fits is deployed, a retry does only what is left."""
        steps = Steps()
        run, wrong = await self._changed(stage, steps, "inspect", "copy")
        await stage.ended(run)
        await wrong.close()
        right = await stage.worker(importer("locate", "copy", steps=steps))
        await right.operator.retry(run.id, actor="ann", reason="deployed the code that fits")
        assert await stage.result(right.handle(right.tasks[0], run.id)) == ["here", "done"]
        assert steps.ran == ["locate", "copy"]

    async def test_a_body_that_ends_too_early_is_changed_code(self, stage: Stage) -> None:
        """What is recorded and was never asked for means that the code does not fit."""
        steps = Steps()
        old = await stage.worker(importer("locate", "copy", steps=steps))
        run = await old.enqueue(old.tasks[0])
        await stage.parked(old, run)
        await old.close()

        @task("import_asset")
        async def nothing(ctx: Context) -> list[str]:
            return []

        new = await stage.worker(nothing)
        await new.advance("1h")
        view = await stage.ended(new.handle(nothing, run.id))
        assert view.error is not None
        assert "the end of the body" in view.error.message

    async def test_a_declared_insertion_fits(self, stage: Stage) -> None:
        """`with_options(inserted=True)` says that runs in flight lack this call: it is performed, and the rest is remembered."""
        steps = Steps()
        run, _ = await self._changed(stage, steps, "inspect", "locate", "copy", inserted="inspect")
        assert await stage.result(run) == ["fine", "here", "done"]
        assert steps.ran == ["locate", "inspect", "copy"]

    async def test_other_arguments_are_a_warning(self, stage: Stage) -> None:
        """Of a step whose name occurs once the recorded result is used, and the run says so."""

        def greeter(name: str) -> Task[None, str]:
            async def greet(who: str) -> str:
                return f"hello {who}"

            @task("greet")
            async def body(ctx: Context) -> str:
                greeting = await ctx.step(greet, name)
                await ctx.sleep("1h")
                return greeting

            return body

        old = await stage.worker(greeter("ann"))
        run = await old.enqueue(old.tasks[0])
        await stage.parked(old, run)
        await old.close()
        new = await stage.worker(greeter("bob"))
        await new.advance("1h")
        assert await stage.result(new.handle(new.tasks[0], run.id)) == "hello ann"
        assert any("greet was recorded with other arguments" in warning for warning in (await new.get(run.id)).warnings)
