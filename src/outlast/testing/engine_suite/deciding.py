"""What an engine promises to people who are asked: one list, one answer, by whoever is there, and a result for what had failed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from outlast.context import Context
from outlast.effect import _DECLARED as EFFECTS_BY_PLACE
from outlast.effect import Attempt, effect
from outlast.errors import PayloadError, RunFailedError, RunNotFoundError, UsageError
from outlast.ids import run_id
from outlast.retry import RetryPolicy
from outlast.run import RunStatus
from outlast.step import step
from outlast.task import task
from outlast.testing.kit import SkippingEngine

from .stage import Stage, StageSuite


@effect
async def ship(attempt: Attempt[Any]) -> int:
    """An effect that this process knows by its place, as one that an application imports."""
    raise ConnectionResetError("no answer")


class DecidingSuite(StageSuite):
    """Questions and dead letters, and what people do about them."""

    async def asked(self, stage: Stage, *results: Any) -> tuple[SkippingEngine, Any, str]:
        """Return a worker, a run that waits for a person, and the id of the question. `results` are what further attempts return."""
        left = list(results)

        @effect
        async def pay(attempt: Attempt[Any], amount: int) -> str:
            if attempt.number == 1:
                raise ConnectionResetError("sent, and then the line went dead")
            return str(left.pop(0))

        @task
        async def buy(ctx: Context, amount: int) -> str:
            paid: str = await ctx.effect(pay, amount)
            return f"paid by {paid}"

        worker = await stage.worker(buy)
        run = await worker.enqueue(buy, 40)
        await stage.parked(worker, run)
        (decision,) = await worker.inspector.list_decisions(run.id)
        return worker, run, decision.id

    async def test_whoever_reaches_the_database_may_answer(self, stage: Stage) -> None:
        """A process that executes nothing and knows no task answers, and the worker goes on; the deed is kept."""
        _, run, decision = await self.asked(stage)
        client = stage.client()
        answered = await client.operator.decide(decision, "done", result="card", note="it is on the statement", actor="ann")
        assert (answered.state, answered.answer, answered.result, answered.answered_by) == ("answered", "done", '"card"', "ann")
        assert await stage.result(run) == "paid by card"
        (action,) = await client.inspector.list_actions(run_id=run.id)
        assert (action.action, action.actor) == ("decide", "ann")
        assert action.reason == f"decision {decision}: done: it is on the statement"

    async def test_the_list_has_questions_and_dead_letters(self, stage: Stage) -> None:
        """All that waits for a person, the latest first and page by page; what was answered, retried or discarded is off it."""

        @task
        async def failing(ctx: Context) -> None:
            raise ValueError("bad order")

        _, run, decision = await self.asked(stage, "card")
        client = stage.client()
        assert (await client.inspector.list_attention()).decisions[0].id == decision
        second = await stage.worker(failing, queues=("others",))
        failed = await second.enqueue(failing, queue="others")
        await stage.ended(failed)
        first = await client.inspector.list_attention(limit=1)
        rest = await client.inspector.list_attention(limit=1, before=first.next)
        assert {first.items[0].run, rest.items[0].run} == {failed.id, run.id}
        assert (first.next is not None, rest.next) == (True, None)
        await client.operator.decide(decision, "again", actor="ann")
        await client.operator.discard(failed.id, actor="ann", reason="a test")
        assert await stage.result(run) == "paid by card"
        assert (await client.inspector.list_attention()).items == ()

    async def test_of_two_people_one_is_heard(self, stage: Stage) -> None:
        """Two answers at the same moment: one is taken, and the other names who was first."""
        worker, run, decision = await self.asked(stage, "card", "card")
        client = stage.client()
        said = await asyncio.gather(
            *(engine.operator.decide(decision, "again", actor=actor) for engine, actor in ((client, "ann"), (worker, "bob"))), return_exceptions=True
        )
        (refused,) = [one for one in said if isinstance(one, BaseException)]
        (heard,) = [one for one in said if not isinstance(one, BaseException)]
        assert isinstance(refused, UsageError)
        assert f"answered by {heard.answered_by}" in str(refused)
        assert await stage.result(run) == "paid by card"

    async def test_a_result_of_another_type_is_asked_about_anew(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where the effect was not imported the worker checks it: the first question is superseded, and the next says what did not fit."""

        @task
        async def send(ctx: Context) -> int:
            return await ctx.effect(ship)

        worker = await stage.worker(send)
        run = await worker.enqueue(send)
        await stage.parked(worker, run)
        (asked,) = await worker.inspector.list_decisions(run.id)
        with pytest.raises(PayloadError, match="ship"):
            await worker.operator.decide(asked.id, "done", result="seven", actor="ann")
        assert (await worker.inspector.get_decision(asked.id)).state == "open"
        monkeypatch.delitem(EFFECTS_BY_PLACE, ship.place)
        await worker.operator.decide(asked.id, "done", result="seven", actor="ann")
        await stage.parked(worker, run, count=2)
        first, second = await worker.inspector.list_decisions(run.id)
        assert (first.state, second.state) == ("superseded", "open")
        assert "does not fit" in second.question
        await worker.operator.decide(second.id, "done", result=7, actor="ann")
        assert await stage.result(run) == 7

    async def test_a_question_of_a_run_that_is_over_is_closed(self, stage: Stage) -> None:
        """After a cancel nobody waits for the answer any more, and a retry asks anew under another id."""
        worker, run, decision = await self.asked(stage, "card")
        await worker.cancel(run.id, reason="too dear")
        assert (await stage.ended(run)).status is RunStatus.CANCELED
        assert (await worker.inspector.get_decision(decision)).state == "withdrawn"
        with pytest.raises(UsageError, match="withdrawn"):
            await worker.operator.decide(decision, "again", actor="ann")
        await worker.operator.retry(run.id, actor="ann", reason="after all")
        await stage.parked(worker, run, count=2)
        first, second = await worker.inspector.list_decisions(run.id)
        assert (first.id, second.state) == (decision, "open")
        await worker.operator.decide(second.id, "again", actor="ann")
        assert await stage.result(run) == "paid by card"

    async def test_what_cannot_be_answered_is_said(self, stage: Stage) -> None:
        """An unknown question, an option that is none, a result that is missing or out of place, and one that is no JSON change nothing."""
        worker, _, decision = await self.asked(stage)
        for wrong, options, remedy in (
            (decision, {"option": "maybe"}, "done, again, fail"),
            (decision, {"option": "done"}, "needs a result"),
            (decision, {"option": "again", "result": None}, "leave it out"),
            (decision, {"option": "done", "result": float("nan")}, "result"),
            (decision, {"option": "done", "result": "x", "actor": ""}, "actor"),
            (run_id(), {"option": "again"}, "outlast attention"),
        ):
            given: dict[str, Any] = {"actor": "ann", **options}
            with pytest.raises(UsageError, match=remedy):
                await worker.operator.decide(wrong, given.pop("option"), **given)
        assert (await worker.inspector.get_decision(decision)).state == "open"
        with pytest.raises(UsageError, match="outlast attention"):
            await worker.inspector.get_decision(run_id())
        with pytest.raises(RunNotFoundError):
            await worker.inspector.list_decisions(run_id())
        with pytest.raises(UsageError, match="limit"):
            await worker.inspector.list_attention(limit=501)

    async def test_a_failed_step_is_given_a_result(self, stage: Stage) -> None:
        """The run goes on from there, its earlier steps stay, nothing is performed again, and the body cannot tell the difference."""
        calls: list[str] = []

        def locate() -> str:
            calls.append("locate")
            return "/in"

        def copy(source: str) -> str:
            calls.append("copy")
            raise OSError("no space")

        @task
        async def work(ctx: Context) -> str:
            source = await ctx.step(locate)
            copied = await ctx.step(step(copy).with_options(retry=RetryPolicy(maximum_attempts=1)), source)
            return f"{source} -> {copied}"

        worker = await stage.worker(work)
        run = await worker.enqueue(work)
        assert (await stage.ended(run)).status is RunStatus.FAILED
        view = await worker.operator.resume(run.id, "/out", actor="ann", reason="copied by hand")
        assert view.status is RunStatus.PENDING
        assert await stage.result(run) == "/in -> /out"
        assert calls == ["locate", "copy"]
        assert [(one.key, one.status) for one in await worker.inspector.get_history(run.id)] == [("locate", "done"), ("copy", "resumed")]
        (action,) = await worker.inspector.list_actions(run_id=run.id)
        assert (action.action, action.reason) == ("resume", "copied by hand")

    async def test_a_given_result_of_another_type_fails_the_run_again(self, stage: Stage) -> None:
        """The worker, which has the type, says which field does not fit, and another result may be given."""

        def count() -> int:
            raise OSError("no route")

        @task
        async def work(ctx: Context) -> int:
            return await ctx.step(step(count).with_options(retry=RetryPolicy(maximum_attempts=1)))

        worker = await stage.worker(work)
        run = await worker.enqueue(work)
        await stage.ended(run)
        await worker.operator.resume(run.id, "seven", actor="ann", reason="a guess")
        with pytest.raises(RunFailedError, match="count"):
            await stage.result(run)

    async def test_only_what_a_step_has_failed_is_resumed(self, stage: Stage) -> None:
        """A run in another state, one whose body failed by itself, and one that is not there are named as that."""

        @task
        async def work(ctx: Context, fails: bool) -> None:
            if fails:
                raise ValueError("bad order")

        worker = await stage.worker(work)
        done, failed = await worker.enqueue(work, False), await worker.enqueue(work, True)
        await stage.ended(done)
        await stage.ended(failed)
        with pytest.raises(UsageError, match="is succeeded"):
            await worker.operator.resume(done.id, 1, actor="ann", reason="r")
        with pytest.raises(UsageError, match="retry it"):
            await worker.operator.resume(failed.id, 1, actor="ann", reason="r")
        with pytest.raises(RunNotFoundError):
            await worker.operator.resume(run_id(), 1, actor="ann", reason="r")
