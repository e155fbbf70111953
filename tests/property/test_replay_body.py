"""What a body sees: stored values, errors as data, cancels and closings; the first time and at every replay alike."""

import asyncio
import random
from dataclasses import dataclass
from typing import Any

import pytest

from outlast.context import Context
from outlast.errors import CancelRequested, StepFailedError, UsageError
from outlast.failure import type_name
from outlast.native.ending import Ending
from outlast.native.phase import Phase
from outlast.retry import RetryPolicy
from outlast.run import RunStatus
from outlast.step import step
from outlast.task import Task, task

from .replay_world import Kept, World, stage

ONCE = RetryPolicy(maximum_attempts=1)


@dataclass(frozen=True)
class Point:
    x: int
    y: float


def executed(body: Task[Any, Any], *, crashes: tuple[int, ...] = (), services: Any = None) -> Kept:
    """Execute a task to its end, with a crash after each of these numbers of checkpoints."""

    async def scenario() -> Kept:
        world = World(body, chance=random.Random(len(crashes)), services=services)
        for number in crashes:
            await world.execute(limit=world.kept.count + number)
        kept = await world.finish()
        world.performer.close()
        return kept

    result: Kept = stage(scenario)
    return result


def at_each_crash(body: Task[Any, Any], records: int) -> list[Kept]:
    """Execute a task without a crash, with one at each of its records, and with one after every record."""
    single = [executed(body, crashes=(number,)) for number in range(1, records + 1)]
    return [executed(body), *single, executed(body, crashes=(1,) * records)]


def test_values_are_decoded_from_their_stored_form_the_first_time_too():
    """A body never sees the object that a step returned, so it cannot come to depend on what a replay will not have."""
    made: list[Any] = []
    seen: list[Any] = []

    @step
    async def locate() -> Point:
        made.append(point := Point(1, 2.5))
        return point

    @step
    async def anything() -> Any:
        return (1, {"a": (2, 3)})

    @task
    async def body(ctx: Context) -> None:
        seen.append((await ctx.step(locate), await ctx.step(anything)))

    at_each_crash(body, 2)
    assert all(values == (Point(1, 2.5), [1, {"a": [2, 3]}]) for values in seen)
    assert all(values[0] is not one for values in seen for one in made)


def test_arguments_are_decoded_from_their_stored_form_the_first_time_too():
    """A step cannot change what the body holds."""

    @step
    async def empty(items: list[int]) -> int:
        items.clear()
        return len(items)

    @task
    async def body(ctx: Context) -> list[int]:
        items = [1, 2]
        await ctx.step(empty, items)
        return items

    assert {kept.output for kept in at_each_crash(body, 1)} == {"[1,2]"}


def test_step_error_is_data_and_the_same_at_every_replay():
    """The body gets the class's names, the message and the attempts, never the class itself."""
    seen: list[Any] = []

    @step(retry=RetryPolicy(maximum_attempts=2, initial_delay="1s"))
    async def fails() -> None:
        raise FileNotFoundError("no such asset")

    @step
    async def after() -> None: ...

    @task
    async def body(ctx: Context) -> None:
        try:
            await ctx.step(fails)
        except StepFailedError as error:
            seen.append((type(error), error.step, error.attempts, error.error.message, error.is_a(OSError), error.is_a(ValueError)))
        await ctx.step(after)

    assert {kept.status for kept in at_each_crash(body, 3)} == {RunStatus.SUCCEEDED}
    assert len(seen) >= 4
    assert set(seen) == {(StepFailedError, "fails", 2, "no such asset", True, False)}


def test_values_that_need_no_record_are_the_same_at_every_replay():
    """now, uuid and random depend on the run, the place and what was handed over; every place has its own."""
    seen: list[list[Any]] = []

    @step
    async def one() -> int:
        await asyncio.sleep(0.25)
        return 1

    async def branch(ctx: Context) -> None:
        seen[-1] += [ctx.now(), ctx.uuid(), ctx.random()]
        await ctx.step(one)
        seen[-1] += [ctx.now(), ctx.uuid(), ctx.random(), ctx.uuid()]

    @task
    async def body(ctx: Context) -> None:
        seen.append([ctx.uuid()])
        await branch(ctx)
        await asyncio.gather(branch(ctx), branch(ctx))

    executed(body, crashes=(1, 1, 1))
    assert len(seen) == 4
    assert all(values == seen[-1][: len(values)] for values in seen)
    assert len({str(value) for value in seen[-1]}) == 1 + 3 * 5 + 4, "one instant at first, and one for each record"


# --- told --------------------------------------------------------------------------------------------------------------
def test_cancel_is_raised_by_what_is_awaited_and_by_every_call_after_it():
    """A body that catches the cancel is told again at each call, in each branch, and nothing of it is recorded."""
    seen: list[Any] = []

    @step
    async def slow() -> None:
        await asyncio.sleep(100)

    async def branch(ctx: Context, name: str) -> None:
        for _ in range(3):
            try:
                await ctx.step(slow)
            except CancelRequested as error:
                seen.append((name, error.reason))
        try:
            async with ctx.timeout("1h"):
                seen.append("inside")
        except CancelRequested as error:
            seen.append((name, error.reason))

    @task
    async def body(ctx: Context) -> None:
        await asyncio.gather(branch(ctx, "a"), branch(ctx, "b"))

    async def scenario() -> None:
        world = World(body)
        ended = world.begin()
        await asyncio.sleep(1)
        assert world.driver is not None
        world.driver.tell("enough")
        root = world.driver.root
        assert root is not None
        await root  # it ends by itself, because it swallowed every one of them
        assert world.driver.phase is Phase.TOLD
        world.driver.end_told(Ending(None, "enough"))
        await ended
        await world.drain()
        assert world.kept.count == 0

    stage(scenario)
    assert sorted(seen) == sorted([("a", "enough"), ("b", "enough")] * 4)


def test_what_a_told_step_returns_is_not_recorded():
    """An attempt that ends after the cancel was told changes nothing any more."""

    @step
    async def stubborn() -> int:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            await asyncio.sleep(0)
        return 1

    @task
    async def body(ctx: Context) -> int:
        return await ctx.step(stubborn)

    async def scenario() -> None:
        world = World(body)
        world.begin()
        await asyncio.sleep(1)
        assert world.driver is not None
        world.driver.tell("enough")
        await world.drain()
        world.driver.end_told(Ending(None, "enough"))
        assert world.kept.count == 0

    stage(scenario)


# --- closing -------------------------------------------------------------------------------------------------------------
def test_park_runs_finally_and_no_except_and_no_gather_swallows_it():
    """A park is nothing that a body can catch; what it does meanwhile with its context is not recorded."""
    seen: list[str] = []

    @step
    async def tidy() -> None:
        seen.append("tidied")

    async def branch(ctx: Context) -> None:
        try:
            await ctx.sleep("1h")
        except asyncio.CancelledError:
            seen.append("canceled")
            raise
        except Exception:
            seen.append("failed")
        finally:
            seen.append("finally")
            if len(seen) < 3:
                await ctx.step(tidy)

    @task
    async def body(ctx: Context) -> str:
        results = await asyncio.gather(branch(ctx), branch(ctx), return_exceptions=True)
        seen.append("went on")
        return str(results)

    kept = executed(body)
    assert kept.output == '"[None, None]"'
    assert seen == ["finally", "finally", "finally", "finally", "went on"]
    assert [str(record.key) for record in kept.records] == ["0/sleep", "1/sleep"]


# --- what must not end the loop --------------------------------------------------------------------------------------------
ENDINGS = [
    SystemExit(3),
    KeyboardInterrupt(),
    GeneratorExit(),
    StopIteration(1),
    StopAsyncIteration(),
    asyncio.CancelledError("own"),
    ExceptionGroup("several", [ValueError("a"), SystemError("b")]),
    BaseExceptionGroup("several", [ValueError("a"), SystemExit(1)]),
    RecursionError("deep"),
]


def ids(error: BaseException) -> str:
    return type(error).__name__


@pytest.mark.parametrize("error", ENDINGS, ids=ids)
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_whatever_a_body_raises_ends_its_run_and_nothing_else(error, depth):
    """In the body itself, in a branch, in a branch of a TaskGroup: the run fails, the loop goes on."""

    @step
    async def one() -> int:
        return 1

    async def raises(ctx: Context) -> None:
        await ctx.step(one)
        raise error

    @task
    async def body(ctx: Context) -> None:
        if depth == 0:
            await raises(ctx)
        elif depth == 1:
            await asyncio.gather(raises(ctx), ctx.sleep(1))
        else:
            async with asyncio.TaskGroup() as group:
                group.create_task(raises(ctx))
                group.create_task(ctx.step(one))

    for crashes in ((), (1,)):
        kept = executed(body, crashes=crashes)
        swallowed = depth == 2 and isinstance(error, asyncio.CancelledError)  # a group takes a canceled child for one that ended
        assert kept.status is (RunStatus.SUCCEEDED if swallowed else RunStatus.FAILED)


@pytest.mark.parametrize("error", ENDINGS, ids=ids)
@pytest.mark.parametrize("is_async", [True, False])
def test_whatever_a_step_raises_ends_its_attempt_and_nothing_else(error, is_async):
    """It is retried and then handed to the body as data, whether it came from a coroutine or from a thread."""

    async def raises_in_coroutine() -> None:
        raise error

    def raises_in_thread() -> None:
        raise error

    fails = step(name="fails", retry=RetryPolicy(maximum_attempts=2, initial_delay=0))(raises_in_coroutine if is_async else raises_in_thread)

    @task
    async def body(ctx: Context) -> str:
        try:
            await ctx.step(fails)
        except StepFailedError as caught:
            return f"{caught.attempts} {caught.error.type}"
        return "nothing"

    async def scenario() -> Kept:
        world = World(body)
        world.loop.waits_for_threads = not is_async
        kept = await world.finish()
        world.performer.close()
        return kept

    expected = RuntimeError if isinstance(error, StopIteration) else type(error)
    assert stage(scenario).output == f'"2 {type_name(expected)}"'


def test_step_called_outside_of_its_body_is_refused():
    """A context that leaked into a step is of no use there, and says so."""

    @step
    async def leaks() -> str:
        with pytest.raises(UsageError, match="outside of its body"):
            await contexts[0].sleep(1)
        return "refused"

    contexts: list[Context] = []

    @task
    async def body(ctx: Context) -> str:
        contexts.append(ctx)
        return await ctx.step(leaks)

    assert executed(body).output == '"refused"'


def test_body_that_cancels_its_own_task_goes_the_same_way_again():
    """The cancel reaches the call before its record is handed over; the loop has nothing to complain about."""

    @step
    async def one() -> int:
        return 1

    @task
    async def body(ctx: Context) -> str:
        await ctx.step(one)
        own = asyncio.current_task()
        assert own is not None
        own.cancel()
        try:
            await ctx.step(one)
        except asyncio.CancelledError:
            own.uncancel()
            await ctx.step(one)
            return "went on"
        return "not canceled"

    assert {kept.output for kept in at_each_crash(body, 3)} == {'"went on"'}


def test_branch_that_fails_in_the_turn_in_which_its_body_ends_is_no_complaint():
    """asyncio would report an error as forgotten that only came when the body was being closed."""

    @task
    async def body(ctx: Context) -> None:
        async def fails() -> None:
            raise LookupError

        asyncio.create_task(fails())  # noqa: RUF006 - forgotten on purpose

    assert executed(body).status is RunStatus.SUCCEEDED
