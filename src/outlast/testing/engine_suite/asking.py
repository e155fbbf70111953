"""What an engine promises about effects of which nobody can tell whether they were done, and about operations that runs share."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from outlast import ids
from outlast.context import Context
from outlast.database.transaction import Transaction
from outlast.effect import Attempt, NotDone, Unsure, effect
from outlast.errors import OperationConflictError, PayloadError, RunFailedError, UsageError, WaitTimeoutError
from outlast.ledger.asking import new_question
from outlast.ledger.operation import Change, OperationChange, OperationStatus
from outlast.limits import OPERATION_POLL
from outlast.native.backend import Backend
from outlast.run import RunStatus
from outlast.task import task
from outlast.testing.kit import SkippingEngine, wait_for_event

from .effects import Provider, buying, shopping, status_of
from .stage import Gate, Stage, StageSuite


@effect
async def unlucky(attempt: Attempt[Any], amount: int) -> str:
    """An effect whose provider never answers."""
    raise TimeoutError("no answer")


class AskingSuite(StageSuite):
    """When nobody can tell, a person is asked, and the run waits without a slot."""

    async def _asked(self, stage: Stage, provider: Provider, reason: str | None = "cannot tell") -> tuple[SkippingEngine, Any, str]:
        buy = buying(provider)
        if reason is not None:

            @buy.reconcile
            async def look(attempt: Attempt[Any], amount: int) -> Unsure:
                return Unsure(reason)

        worker = await stage.worker(shop := shopping(buy))
        run = await worker.enqueue(shop, 4)
        view = await stage.parked(worker, run)
        assert (view.status, view.due_at) == (RunStatus.WAITING, None)
        (decision,) = await worker.inspector.list_decisions(run.id)
        assert decision.state == "open"
        assert decision.id in (view.why or "")
        assert (reason or "no reconciler") in decision.question
        return worker, run, decision.id

    async def test_an_answer_with_the_result_ends_it(self, stage: Stage) -> None:
        """Nothing is done again, and the answer is used once."""
        provider = Provider(TimeoutError("no answer"))
        worker, run, decision = await self._asked(stage, provider)
        await worker.operator.decide(decision, "done", result="by hand", actor="ada")
        assert await stage.result(run) == "by hand"
        assert len(provider.attempts) == 1
        assert (await worker.inspector.get_decision(decision)).state == "consumed"

    async def test_an_answer_for_another_attempt_begins_one(self, stage: Stage) -> None:
        """Without a reconciler a person is asked at once; "again" is obeyed whatever the policy has left."""
        provider = Provider(*[TimeoutError("no answer")] * 3)
        worker, run, decision = await self._asked(stage, provider, reason=None)
        for count in (2, 3):
            await worker.operator.decide(decision, "again", actor="ada")
            await stage.parked(worker, run, count=count)
            decision = (await worker.inspector.list_decisions(run.id))[-1].id
        await worker.operator.decide(decision, "again", actor="ada")
        assert await stage.result(run) == "done 4"

    async def test_an_answer_may_end_it_as_failed(self, stage: Stage) -> None:
        """The body gets the person's word as the error."""
        worker, run, decision = await self._asked(stage, Provider(TimeoutError("no answer")))
        await worker.operator.decide(decision, "fail", note="we buy elsewhere", actor="ada")
        with pytest.raises(RunFailedError, match="we buy elsewhere"):
            await stage.result(run)
        assert await status_of(worker, run.id) == "failed"

    async def test_an_answer_that_cannot_be_one_is_refused(self, stage: Stage) -> None:
        """A missing result, a superfluous one, an option that is none and a second answer are errors that change nothing."""
        worker, run, decision = await self._asked(stage, Provider(TimeoutError("no answer")))
        for option, options in (("done", {}), ("maybe", {}), ("again", {"result": "x"})):
            with pytest.raises(UsageError):
                await worker.operator.decide(decision, option, actor="ada", **options)
        assert (await worker.inspector.get_decision(decision)).state == "open"
        await worker.operator.decide(decision, "done", result="x", actor="ada")
        with pytest.raises(UsageError, match="ada"):
            await worker.operator.decide(decision, "again", actor="bob")
        assert await stage.result(run) == "x"

    async def test_a_result_that_does_not_fit_is_asked_for_again(self, stage: Stage) -> None:
        """Where only the worker knows its type, the question is put again with the reason, and nothing is done meanwhile."""
        provider = Provider(TimeoutError("no answer"))
        worker, run, decision = await self._asked(stage, provider)
        await worker.operator.decide(decision, "done", result=5, actor="ada")
        await stage.parked(worker, run, count=2)
        first, second = await worker.inspector.list_decisions(run.id)
        assert (first.state, second.state) == ("superseded", "open")
        assert "does not fit" in second.question
        await worker.operator.decide(second.id, "done", result="fits", actor="ada")
        assert await stage.result(run) == "fits"
        assert len(provider.attempts) == 1

    async def test_a_result_is_checked_at_once_where_its_effect_is_known(self, stage: Stage) -> None:
        """A process that has imported the effect refuses what does not fit its type, and names the field."""
        worker = await stage.worker(shop := shopping(unlucky))
        run = await worker.enqueue(shop, 4)
        await stage.parked(worker, run)
        (decision,) = await worker.inspector.list_decisions(run.id)
        with pytest.raises(PayloadError, match="unlucky"):
            await worker.operator.decide(decision.id, "done", result=5, actor="ada")
        await worker.operator.decide(decision.id, "done", result="five", actor="ada")
        assert await stage.result(run) == "five"

    async def test_a_question_is_on_the_attention_list_until_it_is_answered(self, stage: Stage) -> None:
        """A person finds it there with what to do, and a cancel withdraws it."""
        worker, run, decision = await self._asked(stage, Provider(TimeoutError("no answer")))
        assert [one.id for one in (await worker.inspector.list_attention()).decisions] == [decision]
        await worker.cancel(run.id, reason="enough")
        assert (await stage.ended(run)).status is RunStatus.CANCELED
        assert (await worker.inspector.list_attention()).decisions == ()
        with pytest.raises(UsageError):
            await worker.operator.decide(decision, "again", actor="ada")

    async def test_a_question_that_the_body_gave_up_is_withdrawn(self, stage: Stage) -> None:
        """A durable time-out around the effect takes its question off the list, and the run goes on."""
        buy = buying(Provider(TimeoutError("no answer")))

        @task
        async def hasty(ctx: Context) -> str:
            try:
                async with ctx.timeout("1h"):
                    return await ctx.effect(buy, 1)
            except WaitTimeoutError:
                return "gave up"

        worker = await stage.worker(hasty)
        run = await worker.enqueue(hasty)
        await stage.parked(worker, run)
        await worker.advance("1h")
        assert await stage.result(run) == "gave up"
        (decision,) = await worker.inspector.list_decisions(run.id)
        assert decision.state in ("superseded", "withdrawn")
        assert (await worker.inspector.list_attention()).decisions == ()

    async def test_a_branch_that_works_hears_the_answer_of_its_neighbour(self, stage: Stage) -> None:
        """A run that cannot park while another branch performs goes on with the answer all the same."""
        gate, provider = Gate(), Provider(TimeoutError("no answer"))
        buy = buying(provider)

        @task
        async def both(ctx: Context) -> list[str]:
            return list(await asyncio.gather(ctx.effect(buy, 1), ctx.step(gate.enter, "later")))

        worker = await stage.worker(both)
        run = await worker.enqueue(both)
        await stage.within(gate.begun.wait())
        opened = await wait_for_event(worker, "decision_opened", run=run.id)
        await worker.operator.decide(opened.facts["decision"], "done", result="said", actor="ada")
        await wait_for_event(worker, "effect_recorded", run=run.id)
        gate.opened.set()
        assert await stage.result(run) == ["said", "later"]

    async def test_a_failed_effect_is_resumed_with_a_result(self, stage: Stage) -> None:
        """What a person gives stands in for it, in the history and in the ledger."""
        provider = Provider(*[NotDone("closed")] * 3)
        worker = await stage.worker(shop := shopping(buying(provider)))
        run = await worker.enqueue(shop, 1)
        assert (await stage.ended(run)).status is RunStatus.FAILED
        await worker.operator.resume(run.id, "by hand", actor="ada", reason="paid in cash")
        assert await stage.result(run) == "by hand"
        assert (len(provider.attempts), await status_of(worker, run.id)) == (3, "done")

    @pytest.mark.parametrize("status", [OperationStatus.ATTEMPTING, OperationStatus.UNKNOWN, OperationStatus.ASKED])
    async def test_an_effect_without_a_known_end_is_resumed_with_a_result(self, stage: Stage, status: OperationStatus) -> None:
        """What its last attempt did is not waited for: the ledger has the result too, the attempt is over, and nobody is asked any more."""
        provider = Provider(*[NotDone("closed")] * 3)
        worker = await stage.worker(shop := shopping(buying(provider).with_options(key="order 7")))
        run = await worker.enqueue(shop, 1)
        assert (await stage.ended(run)).status is RunStatus.FAILED
        runtime = await worker._open()
        await runtime.calls.write("begin", lambda tx: _leave(runtime.backend, tx, run.id, status))
        assert await status_of(worker, run.id) == status
        await worker.operator.resume(run.id, "by hand", actor="ada", reason="paid in cash")
        assert await stage.result(run) == "by hand"
        (operation,) = await worker.inspector.list_operations(run.id)
        assert (operation.status, operation.result, operation.attempts[-1].outcome) == ("done", '"by hand"', "unknown")
        assert await stage.result(await worker.enqueue(shop, 1)) == "by hand"
        assert [decision.state for decision in await worker.inspector.list_decisions(run.id)] == (["withdrawn"] if status is OperationStatus.ASKED else [])
        assert len(provider.attempts) == 3


def _leave(backend: Backend, tx: Transaction, run_id: str, status: OperationStatus) -> None:
    """Leave the operation of a failed run as one whose last attempt has no known end."""
    ledger = backend.ledger
    (operation,) = ledger.list_operations(tx, run_id)
    assert operation.attempt is not None
    change = OperationChange(operation.name, Change.REVIVE, operation.owner, operation.attempt.number)
    assert ledger.change_operation(tx, change)
    begun = ledger.begin_attempt(tx, replace(change, change=Change.BEGIN), timedelta(seconds=60), timedelta(0))
    assert begun is not None
    if status is OperationStatus.UNKNOWN:
        assert ledger.change_operation(tx, replace(change, change=Change.DOUBT, attempt=begun.number))
    if status is OperationStatus.ASKED:
        backend.decisions.open_decision(tx, new_question(ids.run_id(), unlucky, operation, begun, "nobody can tell"))
        (decision,) = backend.decisions.list_of_run(tx, run_id)
        assert ledger.change_operation(tx, replace(change, change=Change.ASK, attempt=begun.number, decision=decision.id))


class SharedKeysSuite(StageSuite):
    """A key of the user's own names one operation for every run."""

    async def test_runs_that_share_a_key_share_the_effect(self, stage: Stage) -> None:
        """Twenty runs, one attempt; each gets its result, also while it is under way elsewhere."""
        gate, provider = Gate(), Provider()

        @effect
        async def buy(attempt: Attempt[Any], amount: int) -> str:
            assert attempt.key == "order 7"
            await gate.enter()
            return provider.act(attempt)

        worker = await stage.worker(shop := shopping(buy.with_options(key="order 7")))
        runs = [await worker.enqueue(shop, 1) for _ in range(20)]
        await stage.within(gate.begun.wait())
        gate.opened.set()
        await worker.settle()
        await worker.advance(OPERATION_POLL)
        assert {await stage.result(run) for run in runs} == {"done 1"}
        assert gate.count == 1

    async def test_other_arguments_under_a_key_are_a_conflict(self, stage: Stage) -> None:
        """The second effect fails for good, and nothing is done."""
        provider = Provider()
        worker = await stage.worker(shop := shopping(buying(provider).with_options(key="order 7")))
        assert await stage.result(await worker.enqueue(shop, 1)) == "done 1"
        with pytest.raises(RunFailedError) as failed:
            await stage.result(await worker.enqueue(shop, 2))
        assert OperationConflictError.__name__ in str(failed.value)
        assert len(provider.attempts) == 1
