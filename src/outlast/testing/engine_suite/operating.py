"""What an engine promises to people: each state explained, listings, histories and workers readable without code, and retries."""

from __future__ import annotations

import pytest

from outlast.context import Context
from outlast.engine import Capabilities
from outlast.errors import RunFailedError, RunNotFoundError, StepFailedError, UsageError
from outlast.ids import run_id
from outlast.retry import RetryPolicy
from outlast.run import RunStatus
from outlast.step import step
from outlast.task import task
from outlast.testing.kit import wait_for_event

from .stage import Gate, Stage, StageSuite, needs

ONCE = RetryPolicy(maximum_attempts=1)


@task
async def double(ctx: Context, number: int) -> int:
    return 2 * number


class OperatingSuite(StageSuite):
    """Reading and acting."""

    async def test_every_state_says_why(self, stage: Stage) -> None:
        """Pending, running, sleeping, retrying, over: each in words for a person."""
        gate = Gate()

        async def failing() -> None:
            raise OSError("no route")

        @task
        async def shown(ctx: Context, how: str) -> None:
            if how == "sleep":
                await ctx.sleep("1h")
            if how == "retry":
                await ctx.step(step(failing).with_options(retry=RetryPolicy(initial_delay="1h", maximum_delay="1h")))
            if how == "fail":
                raise ValueError("bad order")
            if how == "run":
                await ctx.step(gate.enter)

        worker = await stage.worker(shown, name="worker-7")
        runs = {how: await worker.enqueue(shown, how) for how in ("sleep", "retry", "fail", "run", "succeed")}
        pending = await worker.enqueue(shown, "sleep", queue="night")
        for how in ("sleep", "retry"):
            await stage.parked(worker, runs[how])
        await stage.within(gate.begun.wait())
        why = {how: (await run.view()).why for how, run in runs.items() if how not in ("fail", "succeed")}
        why |= {how: (await stage.ended(runs[how])).why for how in ("fail", "succeed")}
        assert why["sleep"].startswith("sleeping until ")
        assert why["retry"].startswith("retrying failing at ")
        assert why["fail"] == "failed: ValueError: bad order"
        assert why["run"] == "running on worker-7"
        assert why["succeed"] == "finished"
        assert (await pending.view()).why == "stranded: workers have shown v1 only in queue default"
        gate.opened.set()

    async def test_runs_are_listed_page_by_page(self, stage: Stage) -> None:
        """Newest first, filtered by state, kind and queue, and no run is on two pages or on none."""
        worker = await stage.worker(double)
        runs = await worker.enqueue_many(double, range(7))
        await worker.settle()
        late = await worker.enqueue(double, 1, queue="night")
        pages, before = [], None
        while True:
            page = await worker.inspector.list_runs(limit=3, before=before)
            pages.append([run.id for run in page.runs])
            before = page.next
            if before is None:
                break
        listed = [run for page in pages for run in page]
        assert listed == sorted([late.id, *(run.id for run in runs)], reverse=True)
        assert len((await worker.inspector.list_runs(status=RunStatus.SUCCEEDED)).runs) == 7
        assert [run.id for run in (await worker.inspector.list_runs(queue="night")).runs] == [late.id]
        assert (await worker.inspector.list_runs(kind="other")).runs == ()

    async def test_a_history_is_read_without_the_code(self, stage: Stage) -> None:
        """Records in the order in which the body got them, then what is open; results and errors are data."""

        async def fine() -> dict[str, int]:
            return {"size": 3}

        async def failing() -> None:
            raise OSError("no route")

        @task
        async def shown(ctx: Context) -> None:
            await ctx.step(fine)
            try:
                await ctx.step(step(failing).with_options(retry=ONCE))
            except StepFailedError:
                await ctx.sleep("1h")

        worker = await stage.worker(shown)
        run = await worker.enqueue(shown)
        await stage.parked(worker, run)
        await worker.close()
        reader = stage.client()
        done, failed, waiting = await reader.inspector.get_history(run.id)
        assert (done.key, done.status, done.result) == ("fine", "done", '{"size":3}')
        assert (failed.key, failed.status, failed.error and failed.error.message) == ("failing", "failed", "no route")
        assert (waiting.key, waiting.kind, waiting.status) == ("sleep", "sleep", "waiting")
        assert waiting.due_at is not None
        with pytest.raises(RunNotFoundError):
            await reader.inspector.get_history(run_id())

    async def test_workers_are_listed(self, stage: Stage) -> None:
        """Who lives, what it executes and how many; a stopped one says so."""
        gate = Gate()

        @task
        async def held(ctx: Context) -> None:
            await ctx.step(gate.enter)

        worker = await stage.worker(held, queues=("a", "b"), concurrency=7, name="worker-7")
        await worker.enqueue(held, queue="b")
        await stage.within(gate.begun.wait())
        (view,) = await worker.inspector.list_workers(only_alive=True)
        assert (view.name, view.queues, view.concurrency, view.tasks, view.running) == ("worker-7", ("a", "b"), 7, ("held v1",), 1)
        gate.opened.set()
        await worker.stop()
        assert await worker.inspector.list_workers(only_alive=True) == ()
        (view,) = await worker.inspector.list_workers()
        assert (view.is_alive, view.end, view.running) == (False, "stopped", 0)

    async def test_a_failed_run_is_retried_with_its_finished_steps(self, stage: Stage, capabilities: Capabilities) -> None:
        """The failed step has fresh attempts, what was finished is remembered, and the counters begin anew."""
        needs(capabilities, "has_operator_retry")
        counts = {"fine": 0, "mended": 0}

        async def fine() -> int:
            counts["fine"] += 1
            return 1

        async def mended() -> int:
            counts["mended"] += 1
            if counts["mended"] <= 2:
                raise OSError("no route")
            return 2

        @task
        async def repaired(ctx: Context) -> int:
            return await ctx.step(fine) + await ctx.step(step(mended).with_options(retry=RetryPolicy(maximum_attempts=2, initial_delay=0)))

        worker = await stage.worker(repaired)
        run = await worker.enqueue(repaired)
        with pytest.raises(RunFailedError):
            await stage.result(run)
        view = await worker.operator.retry(run.id, actor="ann", reason="the route is back")
        assert (view.status, view.error, view.attempts) == (RunStatus.PENDING, None, 0)
        assert await stage.result(run) == 3
        assert counts == {"fine": 1, "mended": 3}

    async def test_only_what_ended_badly_is_retried(self, stage: Stage, capabilities: Capabilities) -> None:
        """A run that succeeded, waits or runs is refused with its state, and stays as it is."""
        needs(capabilities, "has_operator_retry")
        worker = await stage.worker(double)
        run = await worker.enqueue(double, 2)
        later = await worker.enqueue(double, 2, delay="1h")
        await stage.result(run)
        for one, state in ((run, "succeeded"), (later, "waiting")):
            with pytest.raises(UsageError, match=f"is {state}"):
                await worker.operator.retry(one.id, actor="ann", reason="why not")
        assert (await run.view()).status is RunStatus.SUCCEEDED
        with pytest.raises(RunNotFoundError):
            await worker.operator.retry(run_id(), actor="ann", reason="why not")

    async def test_a_run_that_is_not_there(self, stage: Stage) -> None:
        """`find` answers None where `get` raises."""
        client = stage.client()
        assert await client.find(run_id()) is None
        with pytest.raises(RunNotFoundError):
            await client.get(run_id())

    async def test_an_undecodable_value_ends_its_own_run_only(self, stage: Stage) -> None:
        """A stored input that today's type cannot read fails that run with the field named and no attempt counted; its neighbour goes on."""

        @task("typed")
        async def loose(ctx: Context, value: str) -> str:
            return value

        @task("typed")
        async def strict(ctx: Context, value: int) -> int:
            return value

        client = stage.client(loose)
        wrong = await client.enqueue(loose, "three")
        worker = await stage.worker(strict)
        right = await worker.enqueue(strict, 3)
        assert await stage.result(right) == 3
        view = await stage.ended(worker.handle(strict, wrong.id))
        assert (view.status, view.attempts) == (RunStatus.FAILED, 0)
        assert view.error is not None
        assert view.error.message.startswith("input:")

    async def test_a_foreign_await_is_named(self, stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
        """A body that awaits something of its own keeps its slot, and is reported with kind, version and line."""
        gate = Gate()

        @task
        async def foreign(ctx: Context) -> None:
            await gate.opened.wait()

        worker = await stage.worker(foreign)
        run = await worker.enqueue(foreign)
        event = await wait_for_event(worker, "foreign_await", run=run.id)
        assert (event.facts["kind"], event.facts["version"]) == ("foreign", 1)
        assert "foreign" in event.facts["place"]
        gate.opened.set()
        await stage.result(run)
