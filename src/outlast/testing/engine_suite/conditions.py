"""What an engine promises about conditions, the first of several waits, and questions that a body puts."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from outlast.context import Context
from outlast.errors import RetryLater, RunFailedError, UsageError, WaitTimeoutError
from outlast.task import task

from .stage import Stage, StageSuite


class ConditionsSuite(StageSuite):
    """`until` looks at the application's own data, and leaves one record."""

    async def test_a_condition_that_holds_is_no_wait(self, stage: Stage) -> None:
        """The first look may be the last; its value is returned, and the check is not asked again at a replay."""
        looks: list[int] = []

        async def price() -> int:
            looks.append(1)
            return 42

        @task
        async def buy(ctx: Context) -> int:
            found = await ctx.until(price)
            await ctx.sleep("1h")
            return found

        worker = await stage.worker(buy)
        run = await worker.enqueue(buy)
        await worker.settle()
        await worker.advance("1h")
        assert (await stage.result(run), len(looks)) == (42, 1)

    async def test_it_is_asked_every_so_often(self, stage: Stage) -> None:
        """Between two looks the run is parked, and history and rows do not grow."""
        looks: list[int] = []

        def enough() -> int:
            looks.append(1)
            return len(looks) if len(looks) > 20 else 0

        @task
        async def wait(ctx: Context) -> int:
            return await ctx.until(enough, every="10m")

        worker = await stage.worker(wait)
        run = await worker.enqueue(wait)
        for _ in range(19):
            await worker.settle()
            await worker.advance("10m")
        await worker.settle()
        assert len([one for one in await worker.inspector.get_history(run.id) if one.status == "done"]) == 0
        await worker.advance("10m")
        assert await stage.result(run) == 21
        assert len(await worker.inspector.get_history(run.id)) == 1

    async def test_a_signal_hurries_the_next_look(self, stage: Stage) -> None:
        """The topic says that something may have changed; the data says what."""
        granted: list[str] = []

        async def is_granted(plan: str) -> bool:
            return plan in granted

        @task
        async def approve(ctx: Context) -> bool:
            return await ctx.until(is_granted, "p1", topic="approval", every="1d")

        worker = await stage.worker(approve)
        run = await worker.enqueue(approve)
        await stage.parked(worker, run)
        await worker.signal("approval")
        await stage.parked(worker, run, count=2)
        granted.append("p1")
        await worker.signal("approval")
        assert await stage.result(run) is True

    async def test_its_time_out_raises(self, stage: Stage) -> None:
        """After one last look; the body may catch it, and gets it at each replay."""
        looks: list[int] = []

        async def never() -> bool:
            looks.append(1)
            return False

        @task
        async def wait(ctx: Context) -> str:
            await ctx.until(never, every="40m", timeout="1h")
            return "so"

        worker = await stage.worker(wait)
        run = await worker.enqueue(wait)
        for _ in range(2):
            await worker.settle()
            await worker.advance("40m")
        with pytest.raises(RunFailedError, match="WaitTimeoutError"):
            await stage.result(run)
        assert len(looks) == 3

    async def test_a_check_that_raises_is_tried_again(self, stage: Stage) -> None:
        """Failures in a row use its attempts up, and a look that works begins anew."""
        script: list[Any] = [OSError("a"), OSError("b"), False, OSError("c"), OSError("d"), "yes"]

        async def check() -> Any:
            outcome = script.pop(0)
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        @task
        async def wait(ctx: Context) -> Any:
            return await ctx.until(check, every="1h")

        worker = await stage.worker(wait)
        run = await worker.enqueue(wait)
        while script:
            await worker.settle()
            await worker.advance(timedelta(hours=1))
        assert await stage.result(run) == "yes"


class FailingChecksSuite(StageSuite):
    """A condition's time-out holds whatever its check does."""

    async def test_a_check_that_fails_does_not_outlast_its_time_out(self, stage: Stage) -> None:
        """Its retry delay ends with the time-out, and a check that fails then has timed out."""

        async def broken() -> bool:
            raise RetryLater("1d")

        @task
        async def wait(ctx: Context) -> str:
            try:
                await ctx.until(broken, every="1m", timeout="10m")
            except WaitTimeoutError:
                return "timed out"
            return "so"

        worker = await stage.worker(wait)
        run = await worker.enqueue(wait)
        await worker.settle()
        await worker.advance("10m")
        assert await stage.result(run) == "timed out"


class FirstSuite(StageSuite):
    """The first of several, and the others are withdrawn."""

    async def test_the_first_wins_and_the_others_are_withdrawn(self, stage: Stage) -> None:
        """The same one at every replay, whatever comes for the others later."""

        @task
        async def race(ctx: Context) -> list[Any]:
            place, value = await ctx.first(ctx.wait_for("paid"), ctx.sleep("3d"), ctx.wait_for("refused"))
            await ctx.sleep("1h")
            return [place, value and value.payload]

        worker = await stage.worker(race)
        run = await worker.enqueue(race)
        await stage.parked(worker, run)
        await worker.signal("refused", "no money")
        await worker.settle()
        await worker.signal("paid", "too late")
        await worker.advance("1h")
        assert await stage.result(run) == [2, "no money"]
        assert sorted(one.status for one in await worker.inspector.get_history(run.id)) == ["done", "done", "given_up", "given_up"]

    async def test_a_timer_may_be_the_first(self, stage: Stage) -> None:
        """A time-out of several waits at once."""

        @task
        async def race(ctx: Context) -> int:
            place, _ = await ctx.first(ctx.wait_for("paid"), ctx.sleep("3d"))
            return int(place)

        worker = await stage.worker(race)
        run = await worker.enqueue(race)
        await stage.parked(worker, run)
        await worker.advance("3d")
        assert await stage.result(run) == 1

    async def test_no_signal_is_lost_among_several_waits(self, stage: Stage) -> None:
        """Signals that come for both waits in one moment are both got, one after the other, also when the body replays in between."""

        @task
        async def merge(ctx: Context, count: int) -> list[Any]:
            got = []
            for number in range(count):
                _, signal = await ctx.first(ctx.wait_for("a"), ctx.wait_for("b"))
                got.append(signal and signal.payload)
                if number % 3 == 2:
                    await ctx.sleep("1h")
            return got

        worker = await stage.worker(merge)
        for number in range(6):
            await worker.signal("a", f"a{number}")
            await worker.signal("b", f"b{number}")
        run = await worker.enqueue(merge, 12)
        for _ in range(4):
            await worker.settle()
            await worker.advance("1h")
        got = await stage.result(run)
        assert sorted(got) == sorted(f"{topic}{number}" for topic in "ab" for number in range(6)), got
        assert [one for one in got if one[0] == "a"] == [f"a{number}" for number in range(6)]
        assert [one for one in got if one[0] == "b"] == [f"b{number}" for number in range(6)]

    async def test_a_signal_that_a_branch_gave_up_wakes_its_neighbour(self, stage: Stage) -> None:
        """Another branch that waits for the topic gets it, although it has looked before and the store sees nothing new."""

        @task
        async def share(ctx: Context, number: int) -> list[Any]:
            async def race() -> Any:
                _, signal = await ctx.first(ctx.wait_for(f"x{number}"), ctx.wait_for(f"shared{number}"))
                return signal and signal.payload

            async def wait() -> Any:
                signal = await ctx.wait_for(f"shared{number}", timeout="1h")
                return signal and signal.payload

            return list(await asyncio.gather(race(), wait()))

        worker = await stage.worker(share)
        runs = []
        for number in range(5):
            await worker.signal(f"x{number}", "x")
            await worker.signal(f"shared{number}", "s")
            runs.append(await worker.enqueue(share, number))
            await worker.settle()
        await worker.advance("2h")
        for run in runs:
            result = await stage.result(run)
            assert result in (["x", "s"], ["s", None]), result


class QuestionsSuite(StageSuite):
    """People are asked, and answer once."""

    async def test_an_answer_goes_to_the_body(self, stage: Stage) -> None:
        """The question is on the attention list with what it is about, and the answer says who and why."""

        @task
        async def approve(ctx: Context) -> list[str]:
            answer = await ctx.ask("Buy it?", ["yes", "no"], about={"price": 5}, timeout="7d")
            await ctx.sleep("1h")
            return [answer.option, answer.by, answer.note]

        worker = await stage.worker(approve)
        run = await worker.enqueue(approve)
        view = await stage.parked(worker, run)
        assert "Buy it?" in (view.why or "")
        (decision,) = (await worker.inspector.list_attention()).decisions
        assert (decision.question, decision.options, decision.about) == ("Buy it?", ("yes", "no"), '{"price":5}')
        with pytest.raises(UsageError):
            await worker.operator.decide(decision.id, "maybe", actor="ada")
        await worker.operator.decide(decision.id, "yes", note="cheap", actor="ada")
        await worker.settle()
        await worker.advance("1h")
        assert await stage.result(run) == ["yes", "ada", "cheap"]
        assert (await worker.inspector.get_decision(decision.id)).state == "consumed"

    async def test_a_question_that_nobody_answers_times_out(self, stage: Stage) -> None:
        """The body gets `WaitTimeoutError`, and the question is off the list."""

        @task
        async def approve(ctx: Context) -> str:
            return (await ctx.ask("Buy it?", ["yes", "no"], timeout="1d")).option

        worker = await stage.worker(approve)
        run = await worker.enqueue(approve)
        await stage.parked(worker, run)
        await worker.advance("1d")
        with pytest.raises(RunFailedError, match="WaitTimeoutError"):
            await stage.result(run)
        assert (await worker.inspector.list_attention()).decisions == ()

    async def test_a_retried_run_asks_anew(self, stage: Stage) -> None:
        """What was withdrawn when the run was canceled is asked again by its retry."""

        @task
        async def approve(ctx: Context) -> str:
            return (await ctx.ask("Buy it?", ["yes", "no"])).option

        worker = await stage.worker(approve)
        run = await worker.enqueue(approve)
        await stage.parked(worker, run)
        await worker.cancel(run.id, reason="wait")
        await stage.ended(run)
        await worker.operator.retry(run.id, actor="ada", reason="now")
        await stage.parked(worker, run, count=2)
        (decision,) = (await worker.inspector.list_attention()).decisions
        await worker.operator.decide(decision.id, "no", actor="ada")
        assert await stage.result(run) == "no"
