"""SIGKILL at every point of an effect: what was planned is what was sent, and nothing is repeated that was done."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from .effect_child import Job, Order
from .effect_world import EffectWorld, effect_world
from .world import Child

AT_ONCE = 3
PASSES_MAX = 3
"""How many passes of one point are visited."""

IDLE_CALLS = {"set_idle", "look", "list_flagged", "renew_worker", "wake_due", "probe_lanes"}
"""What a worker does now and then, whatever it executes."""

_numbers = itertools.count()


@pytest.fixture(params=["sqlite", "postgres"])
def new_url(request, tmp_path) -> Iterator[Callable[[Path], str]]:
    """A maker of empty databases, and what drops them again."""
    made: list[str] = []

    def make(folder: Path) -> str:
        if request.param == "sqlite":
            return f"sqlite:///{folder / 'outlast.db'}"
        made.append(f"effect_{os.getpid()}_{next(_numbers)}")
        return request.getfixturevalue("postgres_server").create_database(made[-1])

    if request.param == "postgres":
        request.getfixturevalue("postgres_server")
    yield make
    for name in made:
        request.getfixturevalue("postgres_server").drop_database(name)


@dataclass(frozen=True)
class Story:
    """One run: how the provider treats its orders, what it comes to, and which calls are worth a kill."""

    job: Job
    words: tuple[str, ...] = ()
    calls: str = ""
    """Only points that contain this."""


STORIES = {
    "smooth": Story(Job(Order("bread"))),
    "rough": Story(Job(Order("bread"), timeout="3s", attempts=4), words=("reject", "lose", "drop"), calls="effect"),
    "keyed": Story(Job(Order("bread", is_keyed=True)), words=("twice",), calls="effect_"),
    "asked": Story(Job(Order("bread"), effect="place_blindly"), words=("drop",), calls="effect"),
}


def finish(world: EffectWorld, run: str, tend: Callable[[], None] = lambda: None) -> None:
    """Answer what is asked, truly as the provider knows it, and wait for the end; `tend` is called again and again."""

    def is_asked_or_over() -> bool:
        tend()
        return world.status(run) == "succeeded" or world.open_decisions() != []

    world.wait_until("somebody is asked, or it is over", is_asked_or_over)
    while world.status(run) != "succeeded":
        for decision in world.open_decisions():
            if world.provider.lines("executed"):
                world.decide(decision["id"], "done", result={"number": 1, "name": "bread"})
            else:
                world.decide(decision["id"], "again")
        world.wait_until("somebody is asked again, or it is over", is_asked_or_over)


def points_of(story: Story, world: EffectWorld) -> list[str]:
    """Let a run go undisturbed, and return every point that it passed, with its number."""
    world.provider.say("bread", *story.words)
    child = world.worker()
    child.wait_for("worker_started")
    began = len(child.said)
    (run,) = world.accept(story.job)
    finish(world, run)
    child.wait_for("run_ended")
    labels = [line.split()[0] for line in child.said[began:]]
    points = [label for label in labels if label.startswith(("before_store:", "after_store:", "effect_", "decision_")) and story.calls in label]
    passes = Counter(label for label in points if label.partition(":")[2] not in IDLE_CALLS)
    world.check()
    return [f"{label}:{number}" for label, count in passes.items() for number in range(1, min(count, PASSES_MAX) + 1)]


def visit(point: str, story: Story, world: EffectWorld) -> bool:
    """Kill a worker at the point, let another finish, and hold what must hold; return whether the point was reached."""
    world.provider.say("bread", *story.words)
    (run,) = world.accept(story.job)
    victim = world.worker("--kill", point)
    others: list[Child] = []

    def tend() -> None:
        if victim.process.poll() is not None and not others:
            others.append(world.worker())

    finish(world, run, tend)
    operation = world.operation()
    assert operation["status"] == "done", (point, operation)
    assert world.output(run) == f"bread {operation['result']['number']}", point
    world.check(executed=1)
    return victim.process.poll() == -signal.SIGKILL


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", STORIES)
def test_a_kill_at_every_point_of_an_effect_does_nothing_twice(new_url, tmp_path, name):
    """Wherever a worker is killed, the provider executes the order once, and the ledger, the record and the provider agree."""
    story = STORIES[name]

    def in_world(folder_name: str, play: Callable[[EffectWorld], object]) -> object:
        folder = tmp_path / folder_name
        folder.mkdir()
        with effect_world(new_url(folder), folder) as world:
            result = play(world)
        shutil.rmtree(folder)
        return result

    points = in_world("undisturbed", lambda world: points_of(story, world))
    assert {"effect_attempt_started:1", "effect_recorded:1"} <= set(points), points
    with ThreadPoolExecutor(AT_ONCE) as threads:
        visits = threads.map(lambda point: in_world(point.replace(":", "-"), lambda world: visit(point, story, world)), points)
        reached = dict(zip(points, visits, strict=True))
    missed = [point for point, was_reached in reached.items() if not was_reached]
    assert len(missed) <= len(points) * 0.2, f"the faults did not land at {missed}"
    assert not {"effect_attempt_started:1", "effect_performed:1", "effect_recorded:1", "after_store:take_effect:1"} & set(missed), missed
