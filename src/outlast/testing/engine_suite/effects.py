"""What an engine promises about effects: planned before they begin, done once, and never repeated blindly."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from outlast.blocking_context import BlockingContext
from outlast.context import Context
from outlast.effect import Attempt, Done, Effect, NotDone, effect
from outlast.errors import EffectFailedError, RunFailedError, UsageError
from outlast.retry import RetryPolicy
from outlast.run import RunStatus
from outlast.task import Task, task
from outlast.testing.kit import SkippingEngine, wait_for_event

from .stage import Gate, Stage, StageSuite

AT_ONCE = RetryPolicy(maximum_attempts=3, initial_delay=0.01)


class Provider:
    """The world outside: it does what it is asked, and then answers as a test has said."""

    def __init__(self, *answers: BaseException | None) -> None:
        self.attempts: list[tuple[str, int, int]] = []
        self._answers = list(answers)

    def act(self, attempt: Attempt[Any]) -> str:
        self.attempts.append((attempt.key, attempt.number, attempt.token))
        answer = self._answers.pop(0) if self._answers else None
        if answer is not None:
            raise answer
        return f"done {len(self.attempts)}"


def buying(provider: Provider, **options: Any) -> Effect[[int], str]:
    @effect(**{"retry": AT_ONCE, **options})
    async def buy(attempt: Attempt[Any], amount: int) -> str:
        return provider.act(attempt)

    return buy


def shopping(buy: Effect[[int], str]) -> Task[Any, Any]:
    @task
    async def shop(ctx: Context, amount: int) -> str:
        return await ctx.effect(buy, amount)

    return shop


async def status_of(engine: SkippingEngine, run_id: str) -> str:
    (operation,) = await engine.inspector.list_operations(run_id)
    return operation.status


class EffectsSuite(StageSuite):
    """Effects are attempted durably, remembered, and retried only where nothing was done."""

    async def test_an_effect_is_performed_once(self, stage: Stage) -> None:
        """Its result is handed over at every replay, and its attempt has the operation's key and a token."""
        provider = Provider()
        buy = buying(provider)

        @task
        async def shop(ctx: Context) -> list[str]:
            first = await ctx.effect(buy, 5)
            await ctx.sleep("1h")
            return [first, await ctx.effect(buy, 5)]

        worker = await stage.worker(shop)
        run = await worker.enqueue(shop)
        await worker.settle()
        await worker.advance("1h")
        assert await stage.result(run) == ["done 1", "done 2"]
        (first_key, first, one), (second_key, second, two) = provider.attempts
        assert (first_key, second_key) == (f"{run.id}/0/buy", f"{run.id}/0/buy:1")
        assert (first, second) == (1, 1)
        assert two > one > 0
        assert [(record.key, record.kind, record.status) for record in await worker.inspector.get_history(run.id) if record.kind == "effect"] == [
            ("buy", "effect", "done"),
            ("buy:1", "effect", "done"),
        ]

    async def test_plan_and_attempt_are_durable_before_it_begins(self, stage: Stage) -> None:
        """While it is performed, another process reads the operation with its attempt."""
        seen: list[Any] = []

        @effect
        async def look(attempt: Attempt[Any], amount: int) -> int:
            seen.extend(await other.inspector.list_operations(attempt.run_id))
            return amount

        @task
        async def watch(ctx: Context) -> int:
            return await ctx.effect(look, 7)

        other = stage.client()
        worker = await stage.worker(watch)
        run = await worker.enqueue(watch)
        assert await stage.result(run) == 7
        (operation,) = seen
        assert (operation.status, operation.arguments, operation.result) == ("attempting", "[7]", None)
        assert [(attempt.number, attempt.outcome) for attempt in operation.attempts] == [(1, None)]
        assert await status_of(worker, run.id) == "done"

    async def test_what_is_declared_as_not_done_is_tried_again(self, stage: Stage) -> None:
        """Each attempt has the same key, the next number and a greater token; nobody is asked."""
        provider = Provider(ConnectionRefusedError("no"), NotDone("sold out"))
        buy = buying(provider, not_done=ConnectionError)
        worker = await stage.worker(shop := shopping(buy))
        run = await worker.enqueue(shop, 1)
        assert await stage.result(run) == "done 3"
        assert [number for _, number, _ in provider.attempts] == [1, 2, 3]
        assert len({key for key, *_ in provider.attempts}) == 1
        assert sorted({token for *_, token in provider.attempts}) == [token for *_, token in provider.attempts]

    async def test_attempts_that_are_used_up_fail_the_effect(self, stage: Stage) -> None:
        """The body gets `EffectFailedError`, with what the last attempt raised as data; the operation is `failed`."""
        provider = Provider(*[NotDone(FileNotFoundError("gone"))] * 3)
        buy = buying(provider)

        @task
        async def shop(ctx: Context) -> str:
            try:
                return await ctx.effect(buy, 1)
            except EffectFailedError as error:
                return f"{error.is_a(FileNotFoundError)} after {error.attempts}: {error.error.message}"

        worker = await stage.worker(shop)
        run = await worker.enqueue(shop)
        assert await stage.result(run) == "True after 3: gone"
        assert await status_of(worker, run.id) == "failed"

    async def test_an_operators_retry_gives_fresh_attempts(self, stage: Stage) -> None:
        """What had failed is attempted again, with numbers that go on."""
        provider = Provider(*[NotDone("closed")] * 3)
        worker = await stage.worker(shop := shopping(buying(provider)))
        run = await worker.enqueue(shop, 1)
        assert (await stage.ended(run)).status is RunStatus.FAILED
        await worker.operator.retry(run.id, actor="ada", reason="it is open again")
        assert await stage.result(run) == "done 4"
        assert [number for _, number, _ in provider.attempts] == [1, 2, 3, 4]

    async def test_what_a_plain_function_does_is_an_effect_too(self, stage: Stage) -> None:
        """`perform` as a `def` runs on a thread, also for a `def` body."""
        provider = Provider()

        @effect
        def buy(attempt: Attempt[Any], amount: int) -> str:
            return provider.act(attempt)

        @task
        def shop(ctx: BlockingContext) -> str:
            return ctx.effect(buy, 3)

        worker = await stage.worker(shop)
        assert await stage.result(await worker.enqueue(shop)) == "done 1"

    async def test_branches_have_effects_of_their_own(self, stage: Stage) -> None:
        """Ten effects at once are ten operations, each done once, and the results stay with their branches."""
        provider = Provider()
        buy = buying(provider)

        @task
        async def shop(ctx: Context) -> list[str]:
            return list(await asyncio.gather(*(ctx.effect(buy, amount) for amount in range(10))))

        worker = await stage.worker(shop)
        run = await worker.enqueue(shop)
        results = await stage.result(run)
        assert len(set(results)) == 10
        assert {operation.status for operation in await worker.inspector.list_operations(run.id)} == {"done"}

    async def test_what_is_no_effect_is_refused(self, stage: Stage) -> None:
        """The error says what to write."""

        async def plain() -> None: ...

        @task
        async def wrong(ctx: Context) -> None:
            await ctx.effect(plain)  # type: ignore[arg-type]

        worker = await stage.worker(wrong)
        with pytest.raises(RunFailedError, match=r"ctx\.step"):
            await stage.result(await worker.enqueue(wrong))

    async def test_a_cancel_reaches_the_effect_and_leaves_the_truth(self, stage: Stage) -> None:
        """It is told; the run is canceled, and the ledger says that nobody knows."""
        gate = Gate()

        @effect(timeout="1h")
        async def buy(attempt: Attempt[Any], amount: int) -> str:
            return await gate.enter()

        worker = await stage.worker(shop := shopping(buy))
        run = await worker.enqueue(shop, 1)
        await stage.within(gate.begun.wait())
        await worker.cancel(run.id, reason="too expensive")
        assert (await stage.ended(run)).status is RunStatus.CANCELED
        assert gate.was_canceled.is_set()
        assert await status_of(worker, run.id) in ("attempting", "unknown")


class ReconcilingSuite(StageSuite):
    """An attempt of which nobody knows the outcome is asked about before anything else is done."""

    async def test_what_was_done_all_the_same_is_not_repeated(self, stage: Stage) -> None:
        """The reconciler's `Done` is believed at once and is the result."""
        provider = Provider(TimeoutError("no answer"))
        buy = buying(provider)
        asked: list[tuple[str, int]] = []

        @buy.reconcile
        async def look(attempt: Attempt[Any], amount: int) -> Done[str] | NotDone:
            asked.append((attempt.key, attempt.number))
            return Done(f"found {amount}")

        worker = await stage.worker(shop := shopping(buy))
        run = await worker.enqueue(shop, 4)
        assert await stage.result(run) == "found 4"
        assert len(provider.attempts) == 1
        assert asked == [(f"{run.id}/0/buy", 1)]

    async def test_not_done_is_not_believed_before_its_time(self, stage: Stage) -> None:
        """Until `timeout` and `settle` after the attempt's beginning nothing is repeated; then the reconciler is asked once more."""
        provider = Provider(TimeoutError("no answer"))
        buy = buying(provider, timeout="60s", settle="30s")
        asked: list[int] = []

        @buy.reconcile
        async def look(attempt: Attempt[Any], amount: int) -> NotDone:
            asked.append(attempt.number)
            return NotDone()

        worker = await stage.worker(shop := shopping(buy))
        run = await worker.enqueue(shop, 4)
        view = await stage.parked(worker, run)
        assert view.due_at is not None
        assert 85 < (view.due_at - worker.now()).total_seconds() <= 90
        await worker.advance("80s")
        await worker.settle()
        assert (len(provider.attempts), asked) == (1, [1])
        await worker.advance("20s")
        assert await stage.result(run) == "done 2"
        assert asked == [1, 1]

    async def test_what_was_revoked_is_believed_at_once(self, stage: Stage) -> None:
        """A reconciler that has seen to it that the attempt cannot take effect need not wait."""
        provider = Provider(TimeoutError("no answer"))
        buy = buying(provider, timeout="1h")

        @buy.reconcile
        def revoke(attempt: Attempt[Any], amount: int) -> NotDone:
            return NotDone(revoked=True)

        worker = await stage.worker(shop := shopping(buy))
        assert await stage.result(await worker.enqueue(shop, 4)) == "done 2"

    async def test_an_attempt_that_is_known_not_done_counts(self, stage: Stage) -> None:
        """Errors that a reconciler settles use the policy's attempts up like declared ones."""
        provider = Provider(*[TimeoutError("no answer")] * 3)
        buy = buying(provider)

        @buy.reconcile
        async def revoke(attempt: Attempt[Any], amount: int) -> NotDone:
            return NotDone(revoked=True)

        worker = await stage.worker(shop := shopping(buy))
        with pytest.raises(RunFailedError, match="no answer"):
            await stage.result(await worker.enqueue(shop, 4))
        assert len(provider.attempts) == 3

    async def test_a_time_out_is_reconciled(self, stage: Stage) -> None:
        """A coroutine that is canceled at its time-out may have done it; nobody assumes that it has not."""
        gate, calls = Gate(), []

        @effect(timeout="0.05s", retry=AT_ONCE)
        async def buy(attempt: Attempt[Any], amount: int) -> str:
            calls.append(attempt.number)
            return await gate.enter()

        @buy.reconcile
        async def look(attempt: Attempt[Any], amount: int) -> Done[str]:
            return Done("it was")

        worker = await stage.worker(shop := shopping(buy))
        assert await stage.result(await worker.enqueue(shop, 4)) == "it was"
        assert calls == [1]

    async def test_a_result_that_cannot_be_kept_is_not_lost(self, stage: Stage) -> None:
        """The attempt may have been done, so the reconciler is asked for a result that fits."""

        @effect(retry=AT_ONCE)
        async def buy(attempt: Attempt[Any], amount: int) -> str:
            return object()  # type: ignore[return-value]

        @buy.reconcile
        async def look(attempt: Attempt[Any], amount: int) -> Done[str]:
            return Done("fits")

        worker = await stage.worker(shop := shopping(buy))
        assert await stage.result(await worker.enqueue(shop, 4)) == "fits"

    async def test_a_reconciler_that_raises_is_asked_again(self, stage: Stage) -> None:
        """Its own failures repeat the question, never the effect."""
        provider = Provider(TimeoutError("no answer"))
        buy = buying(provider)
        tries: list[int] = []

        @buy.reconcile
        async def look(attempt: Attempt[Any], amount: int) -> Done[str]:
            tries.append(1)
            if len(tries) < 3:
                raise OSError("unreachable")
            return Done("found")

        worker = await stage.worker(shop := shopping(buy))
        assert await stage.result(await worker.enqueue(shop, 4)) == "found"
        assert (len(provider.attempts), len(tries)) == (1, 3)

    @pytest.mark.parametrize("error", [SystemExit(3), BaseExceptionGroup("several", [KeyError("x")]), asyncio.CancelledError("its own")], ids=repr)
    async def test_a_reconciler_may_raise_anything(self, stage: Stage, error: BaseException) -> None:
        """Whatever it raises, nothing is repeated and nobody is told that it was not done: a person is asked."""
        provider = Provider(TimeoutError("no answer"))
        buy = buying(provider)

        @buy.reconcile
        async def look(attempt: Attempt[Any], amount: int) -> NotDone:
            raise error

        worker = await stage.worker(shop := shopping(buy))
        run = await worker.enqueue(shop, 4)
        await wait_for_event(worker, "decision_opened", run=run.id)
        assert (len(provider.attempts), await status_of(worker, run.id)) == (1, "asked")

    async def test_a_time_out_is_never_declared_as_not_done(self, stage: Stage) -> None:
        """`not_done=Exception` names what the function raises, and neither its time-out nor a result that cannot be kept."""
        gate, calls = Gate(), []

        @effect(timeout="0.05s", retry=AT_ONCE, not_done=Exception)
        async def slow(attempt: Attempt[Any], amount: int) -> str:
            calls.append(attempt.number)
            return await gate.enter()

        @effect(retry=AT_ONCE, not_done=Exception)
        async def odd(attempt: Attempt[Any], amount: int) -> str:
            calls.append(attempt.number)
            return object()  # type: ignore[return-value]

        @task
        async def both(ctx: Context) -> list[str]:
            return [await ctx.effect(slow, 1), await ctx.effect(odd, 1)]

        for one in (slow, odd):

            @one.reconcile
            async def look(attempt: Attempt[Any], amount: int) -> Done[str]:
                return Done("it was")

        worker = await stage.worker(both)
        assert await stage.result(await worker.enqueue(both)) == ["it was", "it was"]
        assert calls == [1, 1]

    async def test_options_for_one_call_keep_the_reconciler(self, stage: Stage) -> None:
        """Also where they were given before it was declared; and one that takes other arguments is refused at once."""
        provider = Provider(TimeoutError("no answer"))
        buy = buying(provider)
        quick = buy.with_options(timeout="5s")

        @buy.reconcile
        async def look(attempt: Attempt[Any], amount: int) -> Done[str]:
            return Done("found")

        with pytest.raises(UsageError, match="amount"):

            @buy.reconcile  # type: ignore[arg-type]
            async def wrong(attempt: Attempt[Any], price: int, currency: str) -> Done[str]:
                return Done("found")

        with pytest.raises(UsageError, match="timeout"):
            effect(timeout=None)  # type: ignore[call-overload]
        worker = await stage.worker(shop := shopping(quick))
        assert await stage.result(await worker.enqueue(shop, 4)) == "found"
