"""What an engine promises to `def` bodies: the same as to `async` ones, from a thread of their own that is unwound at each park."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from outlast.blocking_context import BlockingContext
from outlast.context import Context
from outlast.errors import FinalError, StepFailedError
from outlast.retry import RetryPolicy
from outlast.run import RunStatus
from outlast.step import step
from outlast.task import task
from outlast.testing.kit import SkippingEngine

from .stage import Stage, StageSuite

AT_ONCE = RetryPolicy(maximum_attempts=3, initial_delay=0.01)
SLOWLY = RetryPolicy(maximum_attempts=3, initial_delay="1h", maximum_delay="1h", jitter=0)
ONCE = RetryPolicy(maximum_attempts=1)


def double(number: int) -> int:
    return 2 * number


async def triple(number: int) -> int:
    return 3 * number


async def keys(engine: SkippingEngine, run_id: str) -> list[tuple[str, str]]:
    return [(one.key, one.status) for one in await engine.inspector.get_history(run_id)]


class PlainBodiesSuite(StageSuite):
    """Steps, parks and errors in `def` bodies."""

    async def test_a_def_body_has_the_history_of_its_async_twin(self, stage: Stage) -> None:
        """The same calls have the same keys and results, so that a body may become `async` while its runs are under way."""

        def declared(is_plain: bool) -> Any:
            def plain(ctx: BlockingContext, number: int) -> list[Any]:
                values: list[Any] = [ctx.step(double, number), ctx.step(triple, number), ctx.step(double, number + 1)]
                before = ctx.now()
                ctx.sleep("1h")
                values += [str(ctx.uuid()), ctx.random(), ctx.uuid() != ctx.uuid(), before < ctx.now()]
                return [*values, ctx.step(triple, number + 1)]

            async def twin(ctx: Context, number: int) -> list[Any]:
                values: list[Any] = [await ctx.step(double, number), await ctx.step(triple, number), await ctx.step(double, number + 1)]
                before = ctx.now()
                await ctx.sleep("1h")
                values += [str(ctx.uuid()), ctx.random(), ctx.uuid() != ctx.uuid(), before < ctx.now()]
                return [*values, await ctx.step(triple, number + 1)]

            return task("twins")(plain if is_plain else twin)

        results = []
        for first, second in ((True, False), (False, True), (True, True)):
            worker = await stage.worker(declared(first), queues=("twins",))
            run = await worker.enqueue(worker.tasks[0], 1, queue="twins")
            await stage.parked(worker, run)
            await worker.close()
            worker = await stage.worker(declared(second), queues=("twins",))
            await worker.advance("1h")
            results.append(await stage.result(worker.handle(worker.tasks[0], run.id)))
            assert await keys(worker, run.id) == [("double", "done"), ("triple", "done"), ("double:1", "done"), ("sleep", "done"), ("triple:1", "done")]
            await worker.close()
        assert [[*result[:3], *result[5:]] for result in results] == [[2, 3, 4, True, True, 6]] * 3

    async def test_a_parked_def_body_holds_neither_slot_nor_thread(self, stage: Stage) -> None:
        """It is unwound: `finally` runs and `except Exception` does not; the replay runs no finished step again."""
        seen: list[str] = []

        @task
        def walk(ctx: BlockingContext) -> list[int]:
            seen.append(threading.current_thread().name)
            first = ctx.step(counted, 1)
            try:
                ctx.sleep("1h")
            except Exception:
                seen.append("caught")
            finally:
                seen.append("finally")
            return [first, ctx.step(counted, 2)]

        @task
        def quick(ctx: BlockingContext) -> int:
            return ctx.step(double, 1)

        def counted(number: int) -> int:
            seen.append(f"step {number}")
            return number

        worker = await stage.worker(walk, quick, concurrency=1)
        run = await worker.enqueue(walk)
        await stage.parked(worker, run)
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("outlast-body")]
        assert await stage.result(await worker.enqueue(quick)) == 2
        await worker.advance("1h")
        assert await stage.result(run) == [1, 2]
        assert seen == ["outlast-body-walk", "step 1", "finally", "outlast-body-walk", "finally", "step 2"]

    @pytest.mark.parametrize("policy", [AT_ONCE, SLOWLY], ids=["at once", "slowly"])
    async def test_a_step_of_a_def_body_is_retried(self, stage: Stage, policy: RetryPolicy) -> None:
        """By its own policy, parked during a long delay; the body gets what the last attempt returned."""
        attempts: list[int] = []

        def flaky() -> int:
            attempts.append(1)
            if len(attempts) < 3:
                raise OSError("no route")
            return len(attempts)

        @task
        def retrying(ctx: BlockingContext) -> int:
            return ctx.step(step(flaky).with_options(retry=policy))

        worker = await stage.worker(retrying)
        run = await worker.enqueue(retrying)
        if policy is SLOWLY:
            for count in (1, 2):
                await stage.parked(worker, run, count=count)
                await worker.advance("1h")
        assert await stage.result(run) == 3

    async def test_a_failed_step_is_told_to_a_def_body(self, stage: Stage) -> None:
        """It can be caught and compared, the first time and at a replay; uncaught it ends the run, or has the body tried again."""

        def failing() -> None:
            raise FileNotFoundError("gone")

        @task(retry=RetryPolicy(maximum_attempts=2, initial_delay=0.01))
        def told(ctx: BlockingContext, is_caught: bool) -> list[bool]:
            try:
                ctx.step(step(failing).with_options(retry=ONCE))
            except StepFailedError as error:
                ctx.sleep("1h")
                if is_caught:
                    return [error.is_a(OSError), error.is_a(ValueError)]
                raise
            return []

        worker = await stage.worker(told)
        caught, uncaught = await worker.enqueue(told, True), await worker.enqueue(told, False)
        await worker.settle()
        await worker.advance("1h")
        assert await stage.result(caught) == [True, False]
        await worker.settle()
        await worker.advance("1h")
        view = await stage.ended(uncaught)
        assert (view.status, view.attempts) == (RunStatus.FAILED, 2)
        assert view.error is not None
        assert view.error.is_a(StepFailedError)

    @pytest.mark.parametrize(("error", "message"), [(FinalError("no use"), "no use"), (SystemExit(3), "the body raised SystemExit"), (StopIteration(), "")])
    async def test_what_a_def_body_raises_ends_its_run_only(self, stage: Stage, error: BaseException, message: str) -> None:
        """Whatever it is, the worker goes on."""

        @task
        def raising(ctx: BlockingContext, raises: bool) -> int:
            if raises:
                raise error
            return ctx.step(double, 4)

        worker = await stage.worker(raising)
        view = await stage.ended(await worker.enqueue(raising, True))
        assert view.status is RunStatus.FAILED
        assert view.error is not None
        assert message in view.error.message
        assert await stage.result(await worker.enqueue(raising, False)) == 8

    async def test_misuse_in_a_def_body_is_named(self, stage: Stage) -> None:
        """A call from another thread, a coroutine as the result, and a step called directly."""

        @step
        def declared_step() -> int:
            return 1

        def elsewhere(ctx: BlockingContext) -> None:
            raised: list[BaseException] = []

            def use() -> None:
                try:
                    ctx.step(double, 1)
                except BaseException as error:
                    raised.append(error)

            other = threading.Thread(target=use)
            other.start()
            other.join()
            raise raised[0]

        def unawaited(ctx: BlockingContext) -> Any:
            return triple(3)

        def direct(ctx: BlockingContext) -> int:
            return declared_step()

        def in_a_step(ctx: BlockingContext) -> None:
            def use() -> None:
                ctx.sleep(1)

            ctx.step(step(use).with_options(retry=ONCE))

        expected: dict[Callable[..., Any], str] = {
            elsewhere: "outside of its body's own thread",
            unawaited: "returned a coroutine",
            direct: "would not be remembered",
            in_a_step: "or in a step",
        }
        declared = [task(function) for function in expected]
        worker = await stage.worker(*declared)
        for one, message in zip(declared, expected.values(), strict=True):
            view = await stage.ended(await worker.enqueue(one))
            assert view.status is RunStatus.FAILED
            assert view.error is not None
            assert message in view.error.message
