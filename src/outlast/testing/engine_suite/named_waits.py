"""What an engine promises about waits by name: no signal is lost, each is seen once and in one order, and a time-out is told apart."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from outlast.context import Context
from outlast.errors import IdempotencyConflictError, UsageError
from outlast.run import RunStatus, SignalOptions
from outlast.task import task

from .stage import Gate, Stage, StageSuite


@dataclass
class Paid:
    amount: int


@task
async def waiter(ctx: Context, topic: str) -> Any:
    signal = await ctx.wait_for(topic)
    return None if signal is None else signal.payload


@task
async def patient(ctx: Context, topic: str) -> str:
    signal = await ctx.wait_for(topic, timeout="1h")
    return "nothing" if signal is None else f"got {signal.payload}"


@task
async def reader(ctx: Context, count: int) -> list[Any]:
    return [signal.payload for _ in range(count) if (signal := await ctx.wait_for("news")) is not None]


class SignalsSuite(StageSuite):
    """Signals reach whoever waits for them, whenever they were sent."""

    async def test_a_signal_wakes_who_waits(self, stage: Stage) -> None:
        """The run is parked without an instant, and says what it waits for; the signal ends that."""
        worker = await stage.worker(waiter)
        run = await worker.enqueue(waiter, "door")
        view = await stage.parked(worker, run)
        assert (view.status, view.due_at) == (RunStatus.WAITING, None)
        assert "door" in (view.why or "")
        receipt = await worker.signal("door", {"open": True})
        assert receipt.waiting == 1
        assert await stage.result(run) == {"open": True}

    async def test_a_signal_may_come_first(self, stage: Stage) -> None:
        """Sent before the run was there, and before its worker was, it is kept and seen."""
        sender = stage.client()
        receipt = await sender.signal("door", "early")
        assert receipt.waiting == 0
        worker = await stage.worker(waiter)
        assert await stage.result(await worker.enqueue(waiter, "door")) == "early"

    async def test_a_signal_may_come_before_the_wait(self, stage: Stage) -> None:
        """What is sent while the run does something else is there when it waits."""
        gate = Gate()

        @task
        async def busy(ctx: Context) -> Any:
            await ctx.step(gate.enter)
            signal = await ctx.wait_for("door")
            return signal and signal.payload

        worker = await stage.worker(busy)
        run = await worker.enqueue(busy)
        await stage.within(gate.begun.wait())
        await worker.signal("door", 7)
        gate.opened.set()
        assert await stage.result(run) == 7

    async def test_each_signal_is_seen_once_and_in_order(self, stage: Stage) -> None:
        """Ten sends one after the other are ten signals in that order, across parks, for every run."""
        worker = await stage.worker(reader)
        runs = [await worker.enqueue(reader, 10) for _ in range(3)]
        for number in range(5):
            await worker.signal("news", number)
        await worker.settle()
        for number in range(5, 10):
            await worker.signal("news", number)
        assert [await stage.result(run) for run in runs] == [list(range(10))] * 3

    async def test_an_empty_payload_is_no_time_out(self, stage: Stage) -> None:
        """A signal without a payload is a signal; None is returned at the time-out only, and the time-out is kept."""
        worker = await stage.worker(patient)
        signaled, forgotten = await worker.enqueue(patient, "door"), await worker.enqueue(patient, "other")
        await stage.parked(worker, signaled)
        await stage.parked(worker, forgotten)
        await worker.signal("door")
        assert await stage.result(signaled) == "got None"
        await worker.advance("1h")
        assert await stage.result(forgotten) == "nothing"

    async def test_branches_that_wait_for_one_topic_share_its_signals(self, stage: Stage) -> None:
        """Two branches and two signals: one each, none twice."""

        @task
        async def both(ctx: Context) -> list[Any]:
            one, two = await asyncio.gather(ctx.wait_for("news"), ctx.wait_for("news"))
            return [one and one.payload, two and two.payload]

        worker = await stage.worker(both)
        run = await worker.enqueue(both)
        await stage.parked(worker, run)
        await worker.signal("news", "a")
        await worker.settle()
        await worker.signal("news", "b")
        heard = await stage.result(run)
        assert sorted(heard) == ["a", "b"]

    async def test_a_payload_has_a_type(self, stage: Stage) -> None:
        """`of` decodes it; what does not fit is an error in the body, which may catch it, the same at every replay."""

        @task
        async def typed(ctx: Context) -> str:
            first = await ctx.wait_for("paid", of=Paid)
            try:
                await ctx.wait_for("paid", of=Paid)
            except UsageError as error:
                await ctx.sleep("1h")
                return f"{first and first.payload.amount} then {type(error).__name__}"
            return "no error"

        worker = await stage.worker(typed)
        run = await worker.enqueue(typed)
        await worker.signal("paid", Paid(5))
        await worker.signal("paid", "five")
        await worker.settle()
        await worker.advance("1h")
        assert await stage.result(run) == "5 then PayloadError"

    async def test_a_signal_is_kept_for_its_time_to_live(self, stage: Stage) -> None:
        """Nobody gets one that has expired; one that a wait was given does not expire any more."""
        worker = await stage.worker(patient, waiter)
        await worker.signal("door", "old", ttl="10m")
        await worker.signal("gate", "kept", ttl="10m")
        heard = await worker.enqueue(waiter, "gate")
        assert await stage.result(heard) == "kept"
        await worker.advance("11m")
        late = await worker.enqueue(patient, "door")
        await stage.parked(worker, late)
        await worker.advance("1h")
        assert await stage.result(late) == "nothing"

    async def test_one_key_sends_once(self, stage: Stage) -> None:
        """The same key gives the same signal; another payload under it is refused, and nothing is sent."""
        worker = await stage.worker(reader)
        first = await worker.signal("news", 1, idempotency_key="k")
        again = await worker.signal("news", 1, idempotency_key="k")
        assert (again.id, first.created, again.created) == (first.id, True, False)
        with pytest.raises(IdempotencyConflictError):
            await worker.signal("news", 2, idempotency_key="k")
        await worker.signal("news", 3)
        assert await stage.result(await worker.enqueue(reader, 2)) == [1, 3]

    async def test_what_no_signal_can_be_is_refused(self, stage: Stage) -> None:
        """Bad topics, payloads and times name what to write, and nothing is sent."""
        sender = stage.client()
        bad: list[tuple[str, Any, SignalOptions]] = [
            ("", None, {}),
            ("$x", None, {}),
            ("t" * 400, None, {}),
            ("t", object(), {}),
            ("t", "x" * 70_000, {}),
            ("t", None, {"ttl": 0}),
            ("t", None, {"ttl": "400d"}),
            ("t", None, {"idempotency_key": ""}),
            ("t", None, {"headers": {"name": "x" * 100_000}}),
        ]
        for topic, payload, options in bad:
            with pytest.raises(UsageError):
                await sender.signal(topic, payload, **options)

    async def test_a_thousand_waiters_are_woken(self, stage: Stage) -> None:
        """One signal, and every run that waits for it goes on."""
        worker = await stage.worker(waiter, concurrency=100)
        runs = await worker.enqueue_many(waiter, ["door"] * 1_000)
        await worker.settle(timeout=120)
        receipt = await worker.signal("door", "all")
        assert receipt.waiting == 1_000
        assert {await stage.result(run) for run in runs} == {"all"}

    async def test_a_signal_to_a_run_that_is_over_is_accepted(self, stage: Stage) -> None:
        """It wakes nothing and harms nothing."""
        worker = await stage.worker(waiter)
        run = await worker.enqueue(waiter, "door")
        await worker.signal("door", 1)
        assert await stage.result(run) == 1
        receipt = await worker.signal("door", 2)
        assert receipt.waiting == 0
        assert (await run.view()).status is RunStatus.SUCCEEDED

    async def test_a_body_sends_once(self, stage: Stage) -> None:
        """`ctx.signal` is recorded with what it sends: a replay sends nothing more."""

        @task
        async def sender(ctx: Context) -> str:
            await ctx.signal("news", "one")
            await ctx.sleep("1h")
            await ctx.signal("news", "two")
            return "sent"

        worker = await stage.worker(sender, reader)
        hearing = await worker.enqueue(reader, 2)
        run = await worker.enqueue(sender)
        await worker.settle()
        await worker.advance("1h")
        assert await stage.result(run) == "sent"
        assert await stage.result(hearing) == ["one", "two"]

    async def test_a_run_has_topics_of_its_own(self, stage: Stage) -> None:
        """`run.signal` reaches that run and no other."""

        @task
        async def own(ctx: Context) -> Any:
            signal = await ctx.wait_for(ctx.topic("go"), timeout="1h")
            return signal and signal.payload

        worker = await stage.worker(own)
        one, two = await worker.enqueue(own), await worker.enqueue(own)
        await worker.settle()
        await one.signal("go", "you")
        assert await stage.result(one) == "you"
        await worker.advance("1h")
        assert await stage.result(two) is None

    async def test_a_waiting_run_is_canceled_at_once(self, stage: Stage) -> None:
        """Nothing has to be signaled for it."""
        worker = await stage.worker(waiter)
        run = await worker.enqueue(waiter, "door")
        await stage.parked(worker, run)
        await worker.cancel(run.id, reason="no more")
        assert (await stage.ended(run)).status is RunStatus.CANCELED
