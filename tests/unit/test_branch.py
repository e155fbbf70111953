"""Branches: which path and number a durable call has, whatever the body is made of."""

import asyncio
import contextvars
from types import SimpleNamespace

import pytest

from outlast.branch import NO_BODY, Branches, TaskFactory, bodies_with_timers, current_branch
from outlast.driver import Handed
from outlast.errors import NotSupportedError, UsageError
from outlast.scope import inside_body
from outlast.stillness import Stillness


async def named(stage, name):
    """A durable call that says under which key it was made."""
    stage.said.append(stage.here(name))
    return await stage.durable(name)


def test_the_body_itself_has_the_empty_path(play):
    """Calls in the body's own task have no path, and equal names are counted."""

    async def scenario(stage):
        async def body():
            for name in ("a", "b", "a"):
                await named(stage, name)

        task = stage.start(body())
        for name in ("a", "b", "a"):
            await stage.still()
            stage.hand(name)
        await task
        assert stage.said == ["/a:0", "/b:0", "/a:1"]

    play(scenario)


def test_gather_gives_each_argument_a_path(play):
    """A branch is named by its place in the call, so that it does not matter which one is quicker."""

    async def scenario(stage):
        async def body():
            await asyncio.gather(named(stage, "a"), named(stage, "x"), named(stage, "b"))
            await asyncio.gather(named(stage, "c"))
            await named(stage, "d")

        task = stage.start(body())
        for name in ("b", "a", "x", "c", "d"):
            await stage.still()
            stage.hand(name)
        await task
        assert stage.said == ["0/a:0", "1/x:0", "2/b:0", "3/c:0", "/d:0"]

    play(scenario)


def test_paths_of_nested_branches_are_chains(play):
    """A child's path is its parent's and its index among its parent's children."""

    async def scenario(stage):
        async def pair(depth):
            if depth == 0:
                stage.said.append(stage.here("leaf"))
                return
            await asyncio.gather(pair(depth - 1), pair(depth - 1))

        await stage.start(pair(3))
        assert sorted(stage.said) == [f"{a}.{b}.{c}/leaf:0" for a in (0, 1) for b in (0, 1) for c in (0, 1)]

    play(scenario)


def test_task_group_and_create_task_count_in_one_row(play):
    """Every way to make a task of the body takes the next index."""

    async def scenario(stage):
        async def leaf():
            stage.said.append(stage.here("leaf"))

        async def body():
            first = asyncio.create_task(leaf(), name="mine")
            async with asyncio.TaskGroup() as group:
                group.create_task(leaf())
                group.create_task(leaf())
            await asyncio.wait({asyncio.ensure_future(leaf())})
            await asyncio.shield(leaf())
            await asyncio.get_running_loop().create_task(leaf())
            assert first.get_name() == "mine"

        await stage.start(body())
        assert stage.said == [f"{index}/leaf:0" for index in range(6)]

    play(scenario)


def test_numbers_are_counted_within_one_path(play):
    """The same name in two branches and in the body is the first of its path each time."""

    async def scenario(stage):
        async def branch():
            stage.said += [stage.here("a"), stage.here("a"), stage.here("b")]

        async def body():
            stage.said.append(stage.here("a"))
            await asyncio.create_task(branch())
            await asyncio.create_task(branch())
            stage.said.append(stage.here("a"))

        await stage.start(body())
        assert stage.said == ["/a:0", "0/a:0", "0/a:1", "0/b:0", "1/a:0", "1/a:1", "1/b:0", "/a:1"]

    play(scenario)


def test_a_coroutine_has_the_path_of_the_task_that_awaits_it(play):
    """Where a coroutine was made says nothing: it is named when it is first awaited."""

    async def scenario(stage):
        async def call():
            stage.said.append(stage.here("a"))

        async def awaits(coroutine):
            await coroutine

        async def body():
            made_here = call()
            await asyncio.create_task(awaits(made_here))

        await stage.start(body())
        assert stage.said == ["0/a:0"]

    play(scenario)


def test_explicit_context_is_kept_and_stays_in_the_body(play):
    """A task made with `context=` sees the variables given to it and is a branch all the same."""
    colour = contextvars.ContextVar("colour", default="none")

    async def scenario(stage):
        async def leaf():
            assert inside_body()
            stage.said.append(f"{stage.here('leaf')} {colour.get()}")
            await asyncio.create_task(deeper())

        async def deeper():
            stage.said.append(f"{stage.here('deeper')} {colour.get()}")

        async def body():
            own, empty = contextvars.copy_context(), contextvars.Context()
            own.run(colour.set, "red")
            await asyncio.create_task(leaf(), context=own)
            await asyncio.create_task(leaf(), context=empty)

        await stage.start(body())
        assert stage.said == ["0/leaf:0 red", "0.0/deeper:0 red", "1/leaf:0 none", "1.0/deeper:0 none"]

    play(scenario)


def test_as_completed_over_coroutines_is_refused_by_name(play):
    """It makes its tasks in the order of a set, so no path would be the same twice; the message says what to write."""

    async def scenario(stage):
        async def leaf():
            raise AssertionError("it was begun")

        async def body():
            with pytest.raises(UsageError, match="create_task"):
                for one in asyncio.as_completed([leaf()]):
                    await one

        await stage.start(body())

    play(scenario)


def test_as_completed_over_tasks_works(play):
    """Tasks made one by one have their paths already."""

    async def scenario(stage):
        async def body():
            tasks = [asyncio.create_task(named(stage, name)) for name in ("a", "b")]
            return [await one for one in asyncio.as_completed(tasks)]

        task = stage.start(body())
        for name in ("b", "a"):
            await stage.still()
            stage.hand(name, name)
        assert await task == ["b", "a"]
        assert stage.said == ["0/a:0", "1/b:0"]

    play(scenario)


def test_tasks_outside_of_a_body_are_ordinary(play):
    """The factory touches nothing that does not belong to a body, and hands on to the one before it."""

    async def scenario(stage):
        async def plain():
            return current_branch(), inside_body()

        assert await asyncio.create_task(plain()) == (None, False)
        assert await asyncio.create_task(plain(), context=NO_BODY.copy()) == (None, False)
        made = []

        def previous(loop, coroutine, **options):
            made.append(coroutine.__qualname__)
            return asyncio.Task(coroutine, loop=loop, **options)

        loop = asyncio.get_running_loop()
        before = loop.get_task_factory()
        loop.set_task_factory(previous)
        factory = TaskFactory(loop)
        factory.install()
        await asyncio.create_task(plain())
        await Branches(loop).start(plain())
        factory.uninstall()
        assert loop.get_task_factory() is previous
        assert len(made) == 1
        loop.set_task_factory(before)

    play(scenario)


def test_uninstalling_leaves_another_factory_alone(play):
    """What somebody installed later is not ours to take away."""

    async def scenario(stage):
        loop = asyncio.get_running_loop()
        ours, theirs = loop.get_task_factory(), TaskFactory(loop)
        theirs.install()
        ours.uninstall()
        assert loop.get_task_factory() is theirs
        theirs.uninstall()

    play(scenario)


def test_what_is_no_coroutine_is_refused_as_asyncio_does(play):
    """A mistake in the body is reported where it is made, not in a task that nobody looks at."""

    async def scenario(stage):
        async def body():
            with pytest.raises(TypeError, match="a coroutine was expected, got 5"):
                await asyncio.create_task(5)

        await stage.start(body())

    play(scenario)


def test_two_bodies_on_one_loop_do_not_mix(play):
    """Each body counts its own children, and only its own tasks belong to it."""

    async def scenario(stage):
        other = Branches(stage.loop)

        async def leaf():
            stage.said.append(stage.here("leaf"))
            await stage.durable("never")

        async def body():
            await asyncio.gather(leaf(), leaf())

        stage.start(body())
        other.start(body())
        await stage.still()
        assert sorted(stage.said) == ["0/leaf:0", "0/leaf:0", "1/leaf:0", "1/leaf:0"]
        assert len(other.tasks) == len(stage.branches.tasks) == 3
        other_tasks = other.tasks
        other.close()
        await asyncio.wait(other_tasks)
        assert len(stage.branches.tasks) == 3
        await stage.close()

    play(scenario)


def test_errors_and_results_pass_through_a_branch(play):
    """A branch is seen by its parent exactly as a task is."""

    async def scenario(stage):
        async def fails():
            raise LookupError("here")

        async def returns():
            return 3

        async def body():
            assert await asyncio.gather(fails(), returns(), return_exceptions=True) != []
            with pytest.raises(LookupError, match="here"):
                await asyncio.create_task(fails())
            with pytest.raises(ExceptionGroup):
                async with asyncio.TaskGroup() as group:
                    group.create_task(fails())
            task = asyncio.create_task(stage.call("never"))
            await asyncio.sleep(0)
            task.cancel("why")
            with pytest.raises(asyncio.CancelledError, match="why"):
                await task
            return await asyncio.create_task(returns())

        assert await stage.start(body()) == 3

    play(scenario)


def test_a_loop_that_hides_its_queue_is_refused():
    """Without the queue a standstill cannot be seen; the message says which loop to use."""
    with pytest.raises(NotSupportedError, match="SimpleNamespace.*asyncio's own event loop"):
        Stillness(SimpleNamespace())


# --- foreign awaits -----------------------------------------------------------------------------------------------------
async def place_of(stage, body):
    """Return what is reported of a body at its standstill, and close it."""
    stage.start(body)
    await stage.still()
    place = stage.branches.foreign_await()
    await stage.close()
    return place


async def sleeps():
    await asyncio.sleep(3600)


async def waits_for_an_event():
    await asyncio.Event().wait()


async def takes_from_a_queue():
    await asyncio.Queue().get()


async def waits_for_a_thread():
    await asyncio.get_running_loop().create_future()


async def waits_for_a_foreign_future():
    await asyncio.wait([asyncio.get_running_loop().create_future()])


async def gathers_a_foreign_future():
    await asyncio.gather(asyncio.get_running_loop().create_future())


async def shields_a_foreign_future():
    await asyncio.shield(asyncio.get_running_loop().create_future())


async def gathers_a_sleep():
    await asyncio.gather(waits_for_an_event())


FOREIGN = [
    (sleeps, "sleeps, line"),
    (waits_for_an_event, "waits_for_an_event, line"),
    (takes_from_a_queue, "takes_from_a_queue, line"),
    (waits_for_a_thread, "waits_for_a_thread, line"),
    (waits_for_a_foreign_future, "waits_for_a_foreign_future, line"),
    (gathers_a_foreign_future, "gathers_a_foreign_future, line"),
    (shields_a_foreign_future, "shields_a_foreign_future, line"),
    (gathers_a_sleep, "waits_for_an_event, line"),
]


@pytest.mark.parametrize(("body", "expected"), FOREIGN, ids=[body.__name__ for body, _ in FOREIGN])
def test_foreign_await_is_named_with_its_line(play, body, expected):
    """The user is told which line of which function keeps the run in memory."""

    async def scenario(stage):
        place = await place_of(stage, body())
        assert place is not None
        assert place.startswith(expected)
        assert place.endswith(f"of {__file__}")

    play(scenario)


async def limited(stage):
    async with asyncio.timeout(3600):
        await stage.durable("a")


async def limited_wait(stage):
    await asyncio.wait({asyncio.create_task(stage.call("a"))}, timeout=3600)


@pytest.mark.parametrize("body", [limited, limited_wait])
def test_timer_of_asyncio_around_a_durable_call_is_named(play, body):
    """Its clock begins anew at each replay, so it is a mistake, and the message says what to use."""

    async def scenario(stage):
        place = await place_of(stage, body(stage))
        assert place is not None
        assert "ctx.timeout" in place

    play(scenario)


async def in_a_group(stage):
    async with asyncio.TaskGroup() as group:
        group.create_task(stage.call("a"))
        group.create_task(in_gather(stage))


async def in_gather(stage):
    await asyncio.gather(stage.call("b"), asyncio.gather(stage.call("c"), stage.durable("d")))


async def in_wait(stage):
    await asyncio.wait({asyncio.create_task(stage.call("a")), asyncio.create_task(in_gather(stage))}, return_when=asyncio.FIRST_COMPLETED)


async def in_shield(stage):
    await asyncio.shield(in_gather(stage))


async def in_as_completed(stage):
    for one in asyncio.as_completed([asyncio.create_task(stage.call("a")), asyncio.create_task(stage.call("b"))]):
        await one


async def in_a_task(stage):
    await asyncio.create_task(in_wait(stage))


@pytest.mark.parametrize("body", [in_a_group, in_gather, in_wait, in_shield, in_as_completed, in_a_task])
def test_combinations_of_durable_calls_are_not_foreign(play, body):
    """Parents of branches wait on futures of asyncio's own, and are no reason to keep the run in memory."""

    async def scenario(stage):
        assert await place_of(stage, body(stage)) is None

    play(scenario)


def test_body_that_has_ended_awaits_nothing(play):
    """Nothing is reported of a finished body."""

    async def scenario(stage):
        await stage.start(asyncio.sleep(0))
        assert stage.branches.foreign_await() is None
        assert isinstance(stage.durable("a"), Handed)

    play(scenario)


def test_timers_of_all_bodies_are_found_in_one_look():
    """Who asks for many bodies looks once over the loop's timers: a body with one is told apart from one without."""

    async def scenario():
        loop = asyncio.get_running_loop()
        timed, plain = Branches(loop), Branches(loop)

        async def waiting():
            await Handed(loop=loop)

        async def with_timer():
            async with asyncio.timeout(60):
                await Handed(loop=loop)

        timed.start(with_timer())
        plain.start(waiting())
        await asyncio.sleep(0)
        bodies = bodies_with_timers(loop)
        assert timed in bodies
        assert plain not in bodies
        assert "ctx.timeout" in str(timed.foreign_await(bodies))
        assert timed.foreign_await(()) is None
        assert plain.foreign_await(bodies) is None
        timed.close()
        plain.close()
        await asyncio.sleep(0)

    asyncio.run(scenario())
