"""What an engine promises to callers: accepted is kept, in order, when it was asked for, and once for each key."""

from __future__ import annotations

import asyncio
from dataclasses import make_dataclass
from datetime import timedelta
from typing import Any, cast

import pytest

from outlast.context import Context
from outlast.engine import Capabilities
from outlast.errors import IdempotencyConflictError, UnknownTaskError
from outlast.run import RunStatus
from outlast.task import task
from outlast.task_ref import task_ref

from .stage import Gate, Stage, StageSuite, needs


@task
async def double(ctx: Context, number: int) -> int:
    return 2 * number


class AcceptingSuite(StageSuite):
    """Enqueueing."""

    async def test_what_was_accepted_is_kept(self, stage: Stage) -> None:
        """Another engine on the same database finds a run, and executes it, although the one that accepted it is gone."""
        first = stage.client(double)
        run = await first.enqueue(double, 21)
        await first.close()
        second = await stage.worker(double)
        assert (await second.get(run.id)).input == "21"
        assert await stage.result(second.handle(double, run.id)) == 42

    async def test_a_run_is_enqueued_by_reference(self, stage: Stage) -> None:
        """A process that has not the task's code can enqueue it and read its typed result; a task object must be the engine's own."""
        client = stage.client()
        with pytest.raises(UnknownTaskError, match="double v1"):
            await client.enqueue(double, 1)
        run = await client.enqueue(task_ref("double", 1, int, int), 4)
        await stage.worker(double)
        assert await stage.result(run) == 8

    async def test_many_runs_are_answered_in_the_order_of_their_inputs(self, stage: Stage) -> None:
        """More runs than one transaction holds come back in order, and each has its own input."""
        worker = await stage.worker(double)
        runs = await worker.enqueue_many(double, range(700))
        assert len({run.id for run in runs}) == 700
        assert [int(view.input) for view in [await runs[0].view(), await runs[350].view(), await runs[-1].view()]] == [0, 350, 699]
        assert [await stage.result(run) for run in (runs[0], runs[350], runs[-1])] == [0, 700, 1398]

    async def test_none_of_many_is_written_when_one_is_wrong(self, stage: Stage) -> None:
        """A wrong input is found before the first is written."""
        client = stage.client(double)
        with pytest.raises(Exception, match="input"):
            await client.enqueue_many(double, [1, 2, cast("int", "three")])
        assert (await client.inspector.list_runs()).runs == ()

    async def test_a_delayed_run_begins_when_its_time_has_come(self, stage: Stage, capabilities: Capabilities) -> None:
        """`delay` and `available_at` hold a run back, and it says until when."""
        needs(capabilities, "has_delays")
        worker = await stage.worker(double)
        at = worker.now() + timedelta(hours=2)
        runs = [await worker.enqueue(double, 1, delay="1h"), await worker.enqueue(double, 2, available_at=at)]
        assert {run.status for run in await worker.settle()} == {RunStatus.WAITING}
        assert (await runs[1].view()).due_at == at
        assert "to be started at" in (await runs[0].view()).why
        await worker.advance("1h")
        assert [run.id for run in await worker.settle()] == [runs[1].id]
        await worker.advance("1h")
        assert [await stage.result(run) for run in runs] == [2, 4]

    async def test_smaller_priority_goes_first(self, stage: Stage, capabilities: Capabilities) -> None:
        """Of what waits in a queue the smaller priority is taken first, and among equals the older."""
        needs(capabilities, "has_priorities")
        order: list[str] = []

        @task
        async def noted(ctx: Context, name: str) -> None:
            order.append(name)

        client = stage.client(noted)
        for name, priority in (("late", 50), ("second", -5), ("third", -5), ("first", -100)):
            await client.enqueue(noted, name, priority=priority)
        worker = await stage.worker(noted, concurrency=1)
        await worker.settle()
        assert order == ["first", "second", "third", "late"]

    async def test_a_worker_claims_from_its_queues_only(self, stage: Stage) -> None:
        """A run in another queue waits, and says so, until a worker of that queue is there."""
        worker = await stage.worker(double)
        run = await worker.enqueue(double, 3, queue="night")
        assert [view.queue for view in await worker.settle()] == ["night"]
        await stage.worker(double, queues=("night", "day"))
        assert await stage.result(run) == 6

    async def test_tags_and_headers_go_along(self, stage: Stage) -> None:
        """Tags are shown, and headers reach the body."""

        @task
        async def traced(ctx: Context) -> str:
            return ctx.headers["trace"]

        worker = await stage.worker(traced)
        run = await worker.enqueue(traced, tags=("nightly", "b"), headers={"trace": "abc"})
        assert await stage.result(run) == "abc"
        view = await run.view()
        assert (view.tags, view.headers) == (("nightly", "b"), {"trace": "abc"})


class KeysSuite(StageSuite):
    """Same key, same run."""

    async def test_one_key_is_one_run(self, stage: Stage, capabilities: Capabilities) -> None:
        """The second call gets the first's run and says that it was there, also after it is over; another kind's key is another."""
        needs(capabilities, "has_idempotency_keys")

        @task
        async def other(ctx: Context, number: int) -> int:
            return number

        worker = await stage.worker(double, other)
        first = await worker.enqueue(double, 1, idempotency_key="order-7")
        again = await worker.enqueue(double, 1, idempotency_key="order-7")
        assert await stage.result(first) == 2
        later = await worker.enqueue(double, 1, idempotency_key="order-7")
        assert [first.created, again.created, later.created] == [True, False, False]
        assert first.id == again.id == later.id
        assert (await worker.enqueue(other, 1, idempotency_key="order-7")).id != first.id
        assert (await first.view()).idempotency_key == "order-7"

    async def test_twenty_callers_at_once_get_one_run(self, stage: Stage, capabilities: Capabilities) -> None:
        """From two engines at once, one call creates the run and the others meet it."""
        needs(capabilities, "has_idempotency_keys")
        engines = [stage.client(double), stage.client(double)]
        runs = await asyncio.gather(*(engines[number % 2].enqueue(double, 1, idempotency_key="k") for number in range(20)))
        assert len({run.id for run in runs}) == 1
        assert [run.created for run in runs].count(True) == 1
        assert len((await engines[0].inspector.list_runs()).runs) == 1

    async def test_another_input_is_a_conflict(self, stage: Stage, capabilities: Capabilities) -> None:
        """The caller learns whose key it is, and nothing is changed."""
        needs(capabilities, "has_idempotency_keys")
        client = stage.client(double)
        run = await client.enqueue(double, 1, idempotency_key="k")
        with pytest.raises(IdempotencyConflictError) as refused:
            await client.enqueue(double, 2, idempotency_key="k")
        assert (refused.value.kind, refused.value.key, refused.value.run_id) == ("double", "k", run.id)
        (view,) = (await client.inspector.list_runs()).runs
        assert (view.id, view.input) == (run.id, "1")

    async def test_a_new_field_with_a_default_is_no_conflict(self, stage: Stage, capabilities: Capabilities) -> None:
        """The stored input is read with today's type before it is compared."""
        needs(capabilities, "has_idempotency_keys")
        old: Any = make_dataclass("Order", [("path", str)])
        new: Any = make_dataclass("Order", [("path", str), ("is_urgent", bool, False)])
        client = stage.client()
        first = await client.enqueue(task_ref("ship", 1, old), old("a"), idempotency_key="k")
        again = await client.enqueue(task_ref("ship", 1, new), new("a"), idempotency_key="k")
        assert (again.id, again.created) == (first.id, False)
        with pytest.raises(IdempotencyConflictError):
            await client.enqueue(task_ref("ship", 1, new), new("a", True), idempotency_key="k")

    async def test_a_conflict_is_one_caller_s_own(self, stage: Stage, capabilities: Capabilities) -> None:
        """Of callers that share a transaction only the one in conflict is refused."""
        needs(capabilities, "has_idempotency_keys")
        client = stage.client(double)
        await client.enqueue(double, 1, idempotency_key="k0")
        calls = [client.enqueue(double, 2, idempotency_key=f"k{number}") for number in range(5)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert [isinstance(answer, IdempotencyConflictError) for answer in answers] == [True, False, False, False, False]


class DeadlinesSuite(StageSuite):
    """Runs that have to be over by an instant."""

    async def test_a_run_that_never_began_fails_at_its_deadline(self, stage: Stage, capabilities: Capabilities) -> None:
        """It is ended by the sweep although its own time had not come, and says why."""
        needs(capabilities, "has_deadlines")
        worker = await stage.worker(double)
        run = await worker.enqueue(double, 1, delay="2h", deadline=worker.now() + timedelta(hours=1))
        await worker.advance("1h")
        view = await run.view()
        assert (view.status, view.started_at, view.attempts) == (RunStatus.FAILED, None, 0)
        assert "deadline" in view.why

    async def test_a_sleeping_run_fails_at_its_deadline(self, stage: Stage, capabilities: Capabilities) -> None:
        """It does not sleep on until its timer."""
        needs(capabilities, "has_deadlines")

        @task
        async def sleeper(ctx: Context) -> None:
            await ctx.sleep("30d")

        worker = await stage.worker(sleeper)
        run = await worker.enqueue(sleeper, deadline=worker.now() + timedelta(days=1))
        await stage.parked(worker, run)
        await worker.advance("1d")
        view = await stage.ended(run)
        assert (view.status, view.error and view.error.type) == (RunStatus.FAILED, "outlast.DeadlineExceeded")

    async def test_a_body_in_progress_is_told_at_its_deadline(self, stage: Stage, capabilities: Capabilities) -> None:
        """Its step is interrupted as by a cancel, and the run ends failed."""
        needs(capabilities, "has_deadlines")
        gate = Gate()

        @task
        async def long(ctx: Context) -> None:
            await ctx.step(gate.enter)

        worker = await stage.worker(long)
        run = await worker.enqueue(long, deadline=worker.now() + timedelta(days=1))
        await stage.within(gate.begun.wait())
        await worker.advance("1d")
        view = await stage.ended(run)
        assert gate.was_canceled.is_set()
        assert (view.status, view.error and view.error.type, view.verdict) == (RunStatus.FAILED, "outlast.DeadlineExceeded", "acknowledged")
