"""Stillness: a body stands still exactly when nothing of it is about to run, however its branches are nested."""

import asyncio
import itertools
import random
import threading

import pytest

from outlast.branch import BODY, Branches

SHAPES = ["gather", "group", "wait", "first", "shield", "task", "chain"]


async def build(stage, choose, depth, name, trace):
    """Run a tree of branches whose leaves are durable calls; every parent says in `trace` that it moved on."""
    if depth == 0:
        await stage.durable(name)
        trace.append(name)
        return
    shape = choose(SHAPES)
    children = [build(stage, choose, depth - 1, f"{name}{number}", trace) for number in range(choose([1, 2]))]
    if shape == "gather":
        await asyncio.gather(*children, return_exceptions=choose([True, False]))
    elif shape == "group":
        async with asyncio.TaskGroup() as group:
            for child in children:
                group.create_task(child)
    elif shape == "wait":
        await asyncio.wait([asyncio.create_task(child) for child in children])
    elif shape == "first":
        pending = {asyncio.create_task(child) for child in children}
        while pending:
            _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            trace.append(f"{name} saw one")
    else:
        for child in children:
            await {"shield": asyncio.shield, "task": asyncio.create_task, "chain": lambda one: one}[shape](child)
    trace.append(name)


@pytest.mark.parametrize("depth", range(1, 6))
def test_nothing_moves_after_a_standstill_before_something_is_handed_over(play, depth):
    """Between the call-back and the next hand-over no branch runs a line, for turns on end: the parents have moved already."""

    async def scenario(stage):
        for seed in range(40):
            stage.branches = Branches(stage.loop)
            await drive(stage, depth, random.Random(f"{depth}/{seed}").choice)

    play(scenario)


async def drive(stage, depth, choose):
    """Hand over one leaf after the other at standstills, in any order, and look for motion in between."""
    trace = []
    task = stage.start(build(stage, choose, depth, "r", trace))
    await stage.still()
    while not task.done():
        seen = len(trace), sorted(stage.awaited)
        for _ in range(12):
            await asyncio.sleep(0)
        assert (len(trace), sorted(stage.awaited)) == seen
        assert stage.awaited, "it stands still and awaits nothing"
        stage.hand(choose(sorted(stage.awaited)))
        await stage.still()
    assert trace[-1] == "r"


@pytest.mark.parametrize("depth", range(1, 6))
def test_parents_of_nested_gathers_have_moved_before_the_call_back(play, depth):
    """The last leaf of nested gathers wakes its parents turn by turn, and only then the body stands still."""

    async def scenario(stage):
        async def nest(level):
            if level == 0:
                return await stage.durable("leaf")
            return (await asyncio.gather(nest(level - 1)))[0]

        async def body():
            await nest(depth)
            await stage.durable("after")

        stage.start(body())
        await stage.still()
        stage.hand("leaf")
        await stage.still()
        assert list(stage.awaited) == ["after"]
        await stage.close()

    play(scenario)


def test_one_body_in_motion_does_not_hold_up_another(play):
    """A body that never rests delays nobody else's standstill."""

    async def scenario(stage):
        restless = Branches(stage.loop)

        async def spins():
            for _ in itertools.count():
                await asyncio.sleep(0)

        restless.start(spins())
        spinning = restless.tasks
        stage.start(stage.call("a"))
        called = []
        stage.stillness.when_still(restless, lambda: called.append("restless"))
        await stage.still()
        assert called == []
        restless.close()
        await asyncio.wait(spinning)
        await stage.still(restless)
        await stage.close()

    play(scenario)


def test_call_back_comes_once_and_outside_of_the_body(play):
    """Each request is answered once; the newest request of a body counts; and the answer does not run in its context."""

    async def scenario(stage):
        stage.start(stage.call("a"))
        called = []
        stage.stillness.when_still(stage.branches, lambda: called.append("older"))
        stage.stillness.when_still(stage.branches, lambda: called.append(BODY.get()))
        for _ in range(10):
            await asyncio.sleep(0)
        assert called == [None]
        await stage.close()

    play(scenario)


def test_call_back_that_raises_does_not_hold_up_other_bodies():
    """One body's trouble is reported and is not the others'."""

    async def scenario():
        from outlast.stillness import Stillness

        loop = asyncio.get_running_loop()
        complaints, called = [], []
        loop.set_exception_handler(lambda _, complaint: complaints.append(complaint["exception"]))
        stillness = Stillness(loop)
        for number in range(3):
            stillness.when_still(Branches(loop), lambda number=number: called.append(1 // (number - 1)))
        for _ in range(5):
            await asyncio.sleep(0)
        assert called == [-1, 1]
        assert [type(error) for error in complaints] == [ZeroDivisionError]

    asyncio.run(scenario())


def test_an_idle_body_costs_no_turns(play):
    """Once it was answered nothing is scheduled any more: a parked worker sleeps."""

    async def scenario(stage):
        stage.start(stage.call("a"))
        await stage.still()
        await asyncio.sleep(0)
        assert list(stage.loop._ready) == []
        await stage.close()

    play(scenario)


def test_other_threads_may_schedule_at_any_time(play):
    """Steps in threads append to the loop's queue while it is looked at."""

    async def scenario(stage):
        stop = threading.Event()

        def storm():
            while not stop.is_set():
                for _ in range(50):
                    stage.loop.call_soon_threadsafe(lambda: None)
                stop.wait(0.001)

        threads = [threading.Thread(target=storm) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            stage.start(stage.call("a"))
            for _ in range(300):
                await stage.still()
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        await stage.close()

    play(scenario)
