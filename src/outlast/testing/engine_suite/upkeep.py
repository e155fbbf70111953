"""What an engine promises to operators: queues are paused, dead letters discarded, what is long over is pruned, what is stranded is named."""

from __future__ import annotations

from typing import TypedDict

import pytest

from outlast.context import Context
from outlast.effect import Attempt, effect
from outlast.engine import Capabilities
from outlast.errors import IdempotencyConflictError, ResultPrunedError, RunCanceledError, RunNotFoundError, UsageError
from outlast.ids import run_id
from outlast.inspector import BoundedCount
from outlast.run import RunStatus
from outlast.task import task
from outlast.testing.kit import SkippingEngine

from .stage import Gate, Stage, StageSuite, needs


class Who(TypedDict):
    """What every call of an operator says."""

    actor: str
    reason: str


WHO = Who(actor="ann", reason="the disk is full")


@task
async def triple(ctx: Context, number: int) -> int:
    return 3 * number


@task
async def failing(ctx: Context) -> None:
    raise OSError("no route")


@task("triple", version=2)
async def triple_v2(ctx: Context, number: int) -> int:
    return 3 * number


class UpkeepSuite(StageSuite):
    """Pausing, discarding, pruning, and what is stranded."""

    @pytest.fixture(autouse=True)
    def needs_upkeep(self, capabilities: Capabilities) -> None:
        needs(capabilities, "has_upkeep")

    async def test_a_paused_queue_is_left_alone(self, stage: Stage) -> None:
        """What runs goes on and ends, what is enqueued is accepted and waits, other queues go on, and unpausing lets it go."""
        gate = Gate()

        @task
        async def held(ctx: Context) -> str:
            return await ctx.step(gate.enter, "through")

        worker = await stage.worker(triple, held, queues=("default", "other"))
        running = await worker.enqueue(held)
        await stage.within(gate.begun.wait())
        operator = stage.client().operator
        view = await operator.pause_queue("default", **WHO)
        assert (view.name, view.paused_at is not None, view.has_changed, view.lanes) == ("default", True, True, 2)
        waiting = await worker.enqueue(triple, 1)
        gate.opened.set()
        assert await stage.result(running) == "through"
        assert await stage.result(await worker.enqueue(triple, 2, queue="other")) == 6  # the worker has claimed since
        seen = await waiting.view()
        assert (seen.status, seen.why) == (RunStatus.PENDING, "queue default is paused")
        assert (await operator.unpause_queue("default", **WHO)).has_changed
        assert await stage.result(waiting) == 3
        actions = await worker.inspector.list_actions()
        assert [(one.action, one.queue, one.actor, one.reason) for one in actions] == [
            ("unpause_queue", "default", "ann", "the disk is full"),
            ("pause_queue", "default", "ann", "the disk is full"),
        ]

    async def test_a_dead_letter_is_discarded(self, stage: Stage) -> None:
        """A failed run ends as canceled with the operator's reason and its own error; what is not over, or succeeded, is refused."""
        worker = await stage.worker(triple, failing)
        run = await worker.enqueue(failing)
        await stage.ended(run)
        view = await worker.operator.discard(run.id, **WHO)
        assert (view.status, view.cancel_reason, view.error and view.error.message) == (RunStatus.CANCELED, "the disk is full", "no route")
        with pytest.raises(RunCanceledError):
            await stage.result(run)
        later, done = await worker.enqueue(triple, 1, delay="1h"), await worker.enqueue(triple, 1)
        await stage.result(done)
        for one, words in ((later, "is waiting.*cancel it instead"), (done, "is succeeded.*nothing is left"), (run, "is canceled.*nothing is left")):
            with pytest.raises(UsageError, match=words):
                await worker.operator.discard(one.id, **WHO)
        with pytest.raises(RunNotFoundError):
            await worker.operator.discard(run_id(), **WHO)
        assert [one.action for one in await worker.inspector.list_actions(run_id=run.id)] == ["discard"]

    async def test_what_is_long_over_is_pruned(self, stage: Stage) -> None:
        """Runs that ended before the cutoff go, dead letters and the others stay, and one action counts what went."""
        worker = await stage.worker(triple, failing)
        old, dead_letter, asleep = await worker.enqueue(triple, 1), await worker.enqueue(failing), await worker.enqueue(triple, 1, delay="99d")
        await stage.result(old), await stage.ended(dead_letter)
        await worker.advance("40d")
        young = await worker.enqueue(triple, 2)
        await stage.result(young)
        report = await worker.operator.prune("30d", **WHO)
        assert (report.runs, report.kept, report.keys) == (1, 1, 0)
        assert await worker.find(old.id) is None
        assert [(await run.view()).status for run in (dead_letter, asleep, young)] == [RunStatus.FAILED, RunStatus.WAITING, RunStatus.SUCCEEDED]
        assert (await worker.operator.prune("30d", dead_letters=True, **WHO)).runs == 1
        assert (await worker.operator.prune("30d", **WHO)).runs == 0
        assert [(one.action, one.affected) for one in await worker.inspector.list_actions()] == [("prune", 0), ("prune", 1), ("prune", 1)]

    async def test_a_pruned_run_s_key_answers_and_its_result_is_gone(self, stage: Stage) -> None:
        """The same key gives the same run, whose result says that it was pruned; it makes a new one only when keys are pruned too."""
        worker = await stage.worker(triple)
        run = await worker.enqueue(triple, 1, idempotency_key="order-1")
        await stage.result(run)
        await worker.advance("40d")
        assert (await worker.operator.prune("30d", **WHO)).runs == 1
        again = await worker.enqueue(triple, 1, idempotency_key="order-1")
        assert (again.id, again.created) == (run.id, False)
        for handle in (run, again):
            with pytest.raises(ResultPrunedError):
                await stage.result(handle)
        with pytest.raises(RunNotFoundError):
            await stage.result(worker.handle(triple, run.id))
        with pytest.raises(IdempotencyConflictError):
            await worker.enqueue(triple, 2, idempotency_key="order-1")
        assert (await worker.operator.prune("30d", keys_older_than="50d", **WHO)).keys == 0
        assert (await worker.operator.prune("30d", keys_older_than="30d", **WHO)).keys == 1
        fresh = await worker.enqueue(triple, 2, idempotency_key="order-1")
        assert (fresh.created, await stage.result(fresh)) == (True, 6)

    async def test_an_effect_s_key_goes_with_the_keys(self, stage: Stage) -> None:
        """The operation of a run goes with it; one whose key the user gave answers until keys are pruned, and is done anew then."""
        served: list[str] = []

        @effect
        async def pay(attempt: Attempt[None], amount: int) -> int:
            served.append(attempt.key)
            return amount

        @task
        async def shop(ctx: Context) -> int:
            return await ctx.effect(pay, 5) + await ctx.effect(pay.with_options(key="order-1"), 5)

        worker = await stage.worker(shop)
        runs = []
        for keys_older_than, keys in ((None, 0), ("99d", 0), ("30d", 1)):
            runs.append(await worker.enqueue(shop))
            assert await stage.result(runs[-1]) == 10
            await worker.advance("40d")
            report = await worker.operator.prune("30d", keys_older_than=keys_older_than, **WHO)
            assert (report.runs, report.keys) == (1, keys)
        await stage.result(await worker.enqueue(shop))
        assert served.count("order-1") == 2
        assert len(served) == 6
        for run in runs:
            with pytest.raises(RunNotFoundError):
                await worker.inspector.list_operations(run.id)

    async def test_wrong_orders_are_refused(self, stage: Stage) -> None:
        """Each names what is wrong with it and what to write, and nothing is done or kept."""
        client = stage.client(triple)
        operator = client.operator
        for order, words in (
            (lambda: operator.prune("soon", **WHO), "older_than is 'soon'"),
            (lambda: operator.prune(-1, **WHO), "older_than is -1"),
            (lambda: operator.prune("30d", keys_older_than="x", **WHO), "keys_older_than is 'x'"),
            (lambda: operator.prune("30d", keys_older_than="7d", **WHO), "a key outlives its run"),
            (lambda: operator.prune("30d", actor="", reason="old"), "actor"),
            (lambda: operator.pause_queue("", **WHO), "queue"),
            (lambda: operator.unpause_queue("q" * 201, **WHO), "queue"),
            (lambda: operator.pause_queue("default", actor="ann", reason=""), "reason"),
        ):
            with pytest.raises(UsageError, match=words):
                await order()
        assert await client.inspector.list_actions() == ()
        assert await client.inspector.list_lanes() == ()

    async def test_what_nobody_executes_is_stranded(self, stage: Stage) -> None:
        """Each lane whose runs would go on is named with their number and the reason; what sleeps, is paused or is served is not."""
        client = stage.client(triple, triple_v2, failing)
        await client.enqueue_many(triple, range(3))
        await client.enqueue(triple_v2, 1, queue="night")
        await client.enqueue(failing, queue="paused")
        await client.enqueue(failing, delay="1h")
        await client.operator.pause_queue("paused", **WHO)
        assert [(one.queue, one.kind, one.version, str(one.runs)) for one in await client.inspector.list_stranded()] == [
            ("default", "triple", 1, "3"),
            ("night", "triple", 2, "1"),
        ]
        await stage.worker(triple_v2)
        assert await self.reasons(client) == {
            "default": "no worker has triple v1, only v2",
            "night": "workers have triple v2 only in queue default",
        }
        await stage.worker(triple)
        assert list(await self.reasons(client)) == ["night"]
        await client.enqueue(failing)
        assert (await self.reasons(client))["default"] == "no worker has failing"

    async def reasons(self, engine: SkippingEngine) -> dict[str, str]:
        return {one.queue: one.reason for one in await engine.inspector.list_stranded()}

    async def test_what_an_old_version_still_has_to_do_is_counted(self, stage: Stage) -> None:
        """A lane is listed while something goes on in it, or somebody executes it, and then no more."""
        gate = Gate()

        @task
        async def held(ctx: Context) -> None:
            await ctx.step(gate.enter)

        worker = await stage.worker(held)
        run, later = await worker.enqueue(held), await worker.enqueue(held, delay="1h")
        await stage.within(gate.begun.wait())
        (lane,) = await worker.inspector.list_lanes()
        assert (lane.queue, lane.kind, lane.version, lane.is_served, lane.paused_at) == ("default", "held", 1, True, None)
        assert (lane.pending, lane.running, lane.waiting) == (BoundedCount(0), BoundedCount(1), BoundedCount(1))
        gate.opened.set()
        await stage.result(run)
        await later.cancel(reason="not needed")
        await worker.stop()
        client = stage.client()
        assert [lane.is_served for lane in await client.inspector.list_lanes()] == [True]
        await client.advance("2m")
        assert await client.inspector.list_lanes() == ()
