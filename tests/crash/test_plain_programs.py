"""Programs without asyncio whose workers are killed and stopped: their `def` bodies go on elsewhere, and no finished step runs again."""

import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from .journey import expected_total
from .world import Child, World, world_of

PROGRAM = Path(__file__).with_name("plain_journey.py")


@pytest.fixture
def world(database_url: str, tmp_path: Path) -> Iterator[World]:
    with world_of(database_url, tmp_path) as world:
        yield world


def begin(world: World, role: str, *options: str) -> Child:
    child = Child([role, world.url, *options], world.folder, program=PROGRAM)
    world.children.append(child)
    return child


def enqueue(world: World) -> None:
    child = begin(world, "enqueue")
    child.wait_for("enqueued")
    assert child.wait() == 0, child.report()


def check_end(world: World, repeated: set[str]) -> None:
    """Each step ran once, the flaky one twice, those that a fault cut off once more; and each has one record."""
    world.wait_until_all()
    counts = {step: count for (_, step), count in world.body_counts().items()}
    expected = Counter({"prepare": 1, "left": 1, "right": 1, "flaky": 2, "slow": 1, "publish": 1})
    assert counts == expected + Counter(repeated)
    assert [count for *_, count in world.query("SELECT path, name, number, count(*) FROM {step} GROUP BY path, name, number")] == [1] * 7
    assert (world.folder / "published-0").read_text() == str(expected_total(0))


def test_a_kill_in_a_step_of_a_def_body_loses_nothing(world: World):
    """The next worker runs the step that was cut off again, and nothing else."""
    enqueue(world)
    victim = begin(world, "execute")
    victim.wait_for('step_attempt_started {"run"', count=6)  # the sixth attempt is the slow step's first
    world.wait_until("the slow step runs", lambda: any(body["name"] == "slow" for body in world.bodies()))
    victim.signal(signal.SIGKILL)
    victim.wait()
    begin(world, "execute")
    check_end(world, {"slow"})


@pytest.mark.parametrize("point", ["before_store:commit_checkpoints:2", "after_store:commit_checkpoints:2", "after_store:commit_checkpoints:6"])
def test_a_kill_at_a_commit_of_a_def_body_loses_nothing(world: World, point: str):
    """What was committed is not run again; the step whose record was not is."""
    enqueue(world)
    victim = begin(world, "execute", "--kill", point)
    assert victim.wait() == -signal.SIGKILL, victim.report()
    records = {name for (name,) in world.query("SELECT name FROM {step}")}
    cut_off = {body["name"] for body in world.bodies()} - records - {"flaky"}
    begin(world, "execute")
    world.wait_until_all()
    counts = {step: count for (_, step), count in world.body_counts().items()}
    assert all(count == 1 + (step == "flaky") or step in cut_off | {"flaky"} for step, count in counts.items()), counts
    assert (world.folder / "published-0").read_text() == str(expected_total(0))


def test_sigterm_stops_a_blocking_worker(world: World):
    """`engine.blocking.run` returns what it left, which is nothing: the step in progress is waited for and the rest is handed back."""
    enqueue(world)
    first = begin(world, "execute")
    world.wait_until("the slow step runs", lambda: any(body["name"] == "slow" for body in world.bodies()))
    first.signal(signal.SIGTERM)
    assert first.wait() == 0, first.report()
    assert first.wait_for("left") == "left []"
    assert set(world.statuses()) == {"pending"}
    begin(world, "execute")
    check_end(world, set())
