"""Closing a body from outside: what runs of it, what does not, and that nothing of it is left."""

import asyncio
import contextlib
import logging

import pytest

from outlast.branch import BranchClosed, current_branch
from outlast.scope import inside_body
from outlast.step import step


async def close_at_standstill(stage, body):
    """Close a body at its first standstill."""
    task = stage.start(body)
    await stage.still()
    assert not task.done()
    await stage.close()
    assert task.cancelled()
    assert stage.branches.tasks == []


def test_finally_runs_and_except_does_not(play):
    """Closing is no error and no cancel for the body: of its clean-up only `finally` runs, in every branch."""

    async def scenario(stage):
        async def branch(name):
            try:
                await stage.durable(name)
            except asyncio.CancelledError:
                stage.said.append(f"{name} canceled")
                raise
            except Exception:
                stage.said.append(f"{name} failed")
                raise
            finally:
                stage.said.append(f"{name} finally")

        async def body():
            try:
                await asyncio.gather(branch("a"), branch("b"), return_exceptions=True)
            except (asyncio.CancelledError, Exception):
                stage.said.append("body caught it")
            finally:
                stage.said.append("body finally")
            stage.said.append("body went on")

        await close_at_standstill(stage, body())
        assert stage.said == ["b finally", "a finally", "body finally"]

    play(scenario)


def test_body_inside_a_task_group_is_closed(play):
    """A group's exit awaits its children and cancels them; neither keeps the body open."""

    async def scenario(stage):
        async def body():
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(stage.call("a"))
                    async with asyncio.TaskGroup() as inner:
                        inner.create_task(stage.call("b"))
                        await stage.durable("c")
                    stage.said.append("went on")
            finally:
                stage.said.append("finally")

        await close_at_standstill(stage, body())
        assert stage.said == ["finally"]

    play(scenario)


def test_body_that_waits_in_the_exit_of_a_task_group_is_closed(play):
    """The parent's own code is over and it waits for children only: it is closed all the same."""

    async def scenario(stage):
        async def body():
            async with asyncio.TaskGroup() as group:
                for name in "abc":
                    group.create_task(stage.call(name))

        await close_at_standstill(stage, body())

    play(scenario)


def test_finally_that_awaits_is_told_again_until_it_ends(play):
    """Each await of a clean-up is interrupted, so that closing is over at once and waits for nothing."""

    async def scenario(stage):
        async def body():
            try:
                try:
                    await stage.durable("a")
                finally:
                    stage.said.append("inner")
                    await asyncio.sleep(3600)
                    stage.said.append("slept")
            finally:
                stage.said.append("outer")
                with contextlib.suppress(Exception):
                    await stage.durable("b")
                stage.said.append("went on")

        await close_at_standstill(stage, body())
        assert stage.said == ["inner", "outer"]

    play(scenario)


def test_closing_a_body_blocked_in_a_finally(play):
    """A body that came to a standstill inside its clean-up is closed there."""

    async def scenario(stage):
        async def body():
            try:
                raise LookupError
            finally:
                stage.said.append("cleaning")
                await stage.durable("a")
                stage.said.append("cleaned")

        await close_at_standstill(stage, body())
        assert stage.said == ["cleaning"]

    play(scenario)


def test_helper_whose_finally_awaits_does_not_set_the_body_going_again(play):
    """`except Exception` around a helper must not catch the closing: the body would go on with real work while it is parked."""

    async def scenario(stage):
        async def helper():
            try:
                await stage.durable("a")
            finally:
                await asyncio.sleep(0)

        async def body():
            with contextlib.suppress(Exception):
                await helper()
            stage.said.append("went on")

        await close_at_standstill(stage, body())
        assert stage.said == []

    play(scenario)


def test_finally_runs_as_part_of_the_body(play):
    """In its clean-up the body is still itself: in its own context, under its own path, so that nothing runs undurably."""

    async def scenario(stage):
        @step
        async def work():
            stage.said.append("worked")

        async def branch():
            try:
                await stage.durable("a")
            finally:
                stage.said.append(f"{current_branch().path} {inside_body()}")
                await work()

        async def body():
            await asyncio.gather(stage.call("b"), branch())

        await close_at_standstill(stage, body())
        assert stage.said == ["(1,) True"]
        assert current_branch() is None

    play(scenario)


def test_tasks_made_in_a_finally_never_begin(play):
    """A clean-up cannot leave anything running behind it."""

    async def scenario(stage):
        async def late(name):
            stage.said.append(name)

        async def body():
            try:
                await stage.durable("a")
            finally:
                asyncio.create_task(late("alone"))  # noqa: RUF006 - that nobody keeps it is what is tested
                await asyncio.gather(late("gathered"), late("gathered too"))

        await close_at_standstill(stage, body())
        assert stage.said == []

    play(scenario)


def test_tasks_made_after_the_closing_never_begin(play):
    """A call-back that the body left on the loop belongs to it, and begins nothing more."""

    async def scenario(stage):
        tasks, made = [], asyncio.Event()

        async def late():
            stage.said.append("late")

        def make():
            tasks.append(asyncio.create_task(late()))
            made.set()

        async def body():
            try:
                await stage.durable("a")
            finally:
                stage.loop.call_later(0.001, make)

        await close_at_standstill(stage, body())
        await asyncio.wait_for(made.wait(), 20)
        await asyncio.wait(tasks)
        assert tasks[0].cancelled()
        assert stage.said == []

    play(scenario)


def test_error_in_a_finally_ends_the_closing_of_that_branch_only(play):
    """What a clean-up raises is nobody's business any more, and every other branch is closed."""

    async def scenario(stage):
        async def branch(name):
            try:
                await stage.durable(name)
            finally:
                stage.said.append(name)
                raise KeyError(name)

        async def body():
            await asyncio.gather(*(branch(name) for name in "abc"))

        await close_at_standstill(stage, body())
        assert stage.said == ["c", "b", "a"]

    play(scenario)


def test_branch_that_has_not_begun_is_closed_without_a_warning(play):
    """A coroutine whose task never ran a line is closed and not reported as never awaited."""

    async def scenario(stage):
        async def late():
            stage.said.append("began")

        async def body():
            await stage.durable("a")

        stage.start(body())
        stage.start(late())
        await stage.close()
        assert stage.said == []

    play(scenario)


def test_failed_branch_that_nobody_has_looked_at_is_not_reported_at_a_park(play):
    """The body would have looked at it after the wait, and will at its replay: asyncio must not call it forgotten."""

    async def scenario(stage):
        async def fails():
            raise LookupError

        async def body():
            first, second = asyncio.create_task(fails()), asyncio.gather(fails(), stage.call("b"))
            await stage.durable("a")
            await first
            await second

        await close_at_standstill(stage, body())

    play(scenario)


def test_gather_that_is_not_awaited_yet_is_not_reported_at_a_park(play):
    """Canceling the children sets an error on a future that only the body knew."""

    async def scenario(stage):
        async def body():
            later = asyncio.gather(stage.call("b"), asyncio.shield(stage.call("c")))
            await stage.durable("a")
            await later

        await close_at_standstill(stage, body())

    play(scenario)


def test_failed_branch_that_is_dropped_is_still_reported():
    """Outside of a park a forgotten error is a mistake in the body, and asyncio says so."""
    complaints = []

    async def scenario():
        from outlast.branch import Branches, TaskFactory

        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, complaint: complaints.append(complaint["message"]))
        factory = TaskFactory(loop)
        factory.install()

        async def fails():
            raise LookupError

        async def body():
            task = asyncio.create_task(fails())
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert task.done()

        await Branches(loop).start(body())
        factory.uninstall()

    asyncio.run(scenario())
    assert complaints == ["Task exception was never retrieved"]


@pytest.mark.parametrize("turns", range(12))
def test_body_is_closed_at_any_moment_of_a_race(play, turns):
    """A lost lease closes a body that is moving: whatever its branches were about to see, nothing is left and nothing reported."""

    async def scenario(stage):
        async def branch(name):
            await stage.durable(name)
            await stage.durable(f"{name} again")
            raise LookupError(name)

        async def both():
            done, _ = await asyncio.wait({asyncio.create_task(branch("a")), asyncio.create_task(branch("b"))})
            stage.said += [str(one.exception()) for one in done]

        async def body():
            async with asyncio.TaskGroup() as group:
                group.create_task(both())
                await asyncio.gather(branch("c"), asyncio.shield(branch("d")), asyncio.gather(branch("e")))

        stage.start(body())
        await stage.still()
        for name in "abcde":
            stage.hand(name)
        for turn in range(turns):
            await asyncio.sleep(0)
            for name in [name for name in stage.awaited if "again" in name and turn > 1]:
                stage.hand(name)
        await stage.close()

    play(scenario)


def test_closing_twice_changes_nothing(play):
    """An end can come from two sides."""

    async def scenario(stage):
        async def body():
            try:
                await stage.durable("a")
            finally:
                stage.said.append("finally")

        stage.start(body())
        await stage.still()
        stage.branches.close()
        await stage.close()
        assert stage.said == ["finally"]

    play(scenario)


def test_async_generator_in_a_body_is_closed_with_it(play):
    """A body that stands inside a generator of its own leaves neither the generator nor a task for its end behind."""

    async def scenario(stage):
        async def pages():
            try:
                for name in "ab":
                    yield await stage.durable(name)
            finally:
                stage.said.append("generator finally")

        async def body():
            async for _ in pages():
                pass

        await close_at_standstill(stage, body())
        assert stage.said == ["generator finally"]

    play(scenario)


def test_finally_that_awaits_for_ever_is_named_and_left(play, caplog):
    """A body that answers every closing with another await is given up after a bound, aloud."""

    async def scenario(stage):
        async def body():
            stubborn = True
            while stubborn:
                try:
                    await stage.durable("a")
                except BranchClosed:
                    stubborn = len(stage.said) < 150
                    stage.said.append("again")

        stage.start(body())
        await stage.still()
        await stage.close()

    with caplog.at_level(logging.ERROR, "outlast.branch"):
        play(scenario)
    assert "awaits in its `finally` for ever" in caplog.text
