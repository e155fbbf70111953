"""What an engine promises about signals that come in the very moment of something else: each is seen once, and nothing runs in circles."""

from __future__ import annotations

import asyncio
from typing import Any

from outlast.context import Context
from outlast.task import task

from .stage import Stage, StageSuite


class SignalRacesSuite(StageSuite):
    """Signals against time-outs, looks and parks."""

    async def test_a_signal_at_the_time_out_is_seen_once(self, stage: Stage) -> None:
        """Whichever comes first is recorded, stays so at every replay, and a signal that came second is there for the next wait."""

        @task
        async def twice(ctx: Context, topic: str) -> list[Any]:
            first = await ctx.wait_for(topic, timeout="1h")
            second = None if first is not None else await ctx.wait_for(topic)
            await ctx.sleep("1h")
            return [first and first.payload, second and second.payload]

        worker = await stage.worker(twice)
        sender = stage.client()
        for turn in range(6):
            topic = f"door {turn}"
            run = await worker.enqueue(twice, topic)
            await stage.parked(worker, run)
            if turn % 2:
                await asyncio.gather(worker.advance("1h"), sender.signal(topic, turn))
            else:
                await asyncio.gather(sender.signal(topic, turn), worker.advance("1h"))
            await worker.settle()
            await worker.advance("1h")
            assert await stage.result(run) in ([turn, None], [None, turn])

    async def test_a_condition_rests_after_a_signal_that_it_has_seen(self, stage: Stage) -> None:
        """A signal hurries one look, and while it stays on the topic for others the run is parked and looks no more before its time."""
        looks: list[int] = []

        async def is_granted() -> bool:
            looks.append(1)
            return False

        @task
        async def approve(ctx: Context) -> bool:
            return await ctx.until(is_granted, topic="approval", every="1d")

        worker = await stage.worker(approve)
        run = await worker.enqueue(approve)
        await stage.parked(worker, run)
        await worker.signal("approval")
        await stage.parked(worker, run, count=2)
        for _ in range(5):
            await worker.signal("another")
            await worker.advance("1h")
            await worker.settle()
        assert len(looks) == 2
        await worker.signal("approval")
        await stage.parked(worker, run, count=3)
        assert len(looks) == 3

    async def test_signals_while_a_condition_is_checked_are_not_missed(self, stage: Stage) -> None:
        """What is sent during a check hurries another one, so that a change which the check did not see is seen at once."""
        granted: list[bool] = []
        looks: list[int] = []
        sender = stage.client()

        async def is_granted() -> bool:
            looks.append(1)
            before = bool(granted)
            if not before:
                granted.append(True)
                await sender.signal("approval")
            return before

        @task
        async def approve(ctx: Context) -> bool:
            return await ctx.until(is_granted, topic="approval", every="1d")

        worker = await stage.worker(approve)
        run = await worker.enqueue(approve)
        assert await stage.result(run) is True
        assert len(looks) == 2

    async def test_senders_at_once_are_heard_in_one_order(self, stage: Stage) -> None:
        """Thirty sends from two engines beside each other: every run is given each of them once, and all in the same order."""

        @task
        async def reader(ctx: Context) -> list[Any]:
            return [signal.payload for _ in range(30) if (signal := await ctx.wait_for("news")) is not None]

        worker = await stage.worker(reader)
        sender = stage.client()
        runs = [await worker.enqueue(reader) for _ in range(3)]
        await stage.parked(worker, runs[0])
        await asyncio.gather(*((worker if number % 2 else sender).signal("news", number) for number in range(30)))
        heard = [await stage.result(run) for run in runs]
        assert heard == [heard[0]] * 3
        assert sorted(heard[0]) == list(range(30))

    async def test_a_key_is_one_signal_for_senders_at_once(self, stage: Stage) -> None:
        """Twelve sends under one key: all are told of one signal, and one of them has made it."""
        sender, other = stage.client(), stage.client()
        receipts = await asyncio.gather(*((sender if number % 2 else other).signal("news", {"a": 1, "b": 2}, idempotency_key="k") for number in range(12)))
        assert len({receipt.id for receipt in receipts}) == 1
        assert sum(receipt.created for receipt in receipts) == 1
        again = await sender.signal("news", {"b": 2, "a": 1}, idempotency_key="k")
        assert not again.created, "the order of its fields makes no other payload"
