"""SIGKILL before and after each store call of a run: nothing is lost, nothing is done twice that need not be."""

import itertools
import os
import shutil
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from .journey import expected_total
from .world import World, world_of

OCCURRENCES = {"commit_checkpoints": 7, "claim_runs": 2, "read_contexts": 1}
"""How many passes of one point are visited, one where nothing is said: the commits of a journey differ, its looks do not."""
AT_ONCE = 3

_numbers = itertools.count()


@pytest.fixture(params=["sqlite", "postgres"])
def new_url(request, tmp_path):
    """A maker of empty databases, and what drops them again."""
    made: list[str] = []

    def make(folder: Path) -> str:
        if request.param == "sqlite":
            return f"sqlite:///{folder / 'outlast.db'}"
        server = request.getfixturevalue("postgres_server")
        name = f"kill_{os.getpid()}_{next(_numbers)}"
        made.append(name)
        return server.create_database(name)

    if request.param == "postgres":
        request.getfixturevalue("postgres_server")
    yield make
    for name in made:
        request.getfixturevalue("postgres_server").drop_database(name)


def points_of_a_journey(new_url, folder: Path) -> list[str]:
    """Let a journey go undisturbed, and return every point that it passed, with its number."""
    folder.mkdir()
    with world_of(new_url(folder), folder) as world:
        world.enqueue_now()
        child = world.execute()
        child.wait_for("run_ended")
        points = Counter(line for line in child.said if line.startswith(("before_store:", "after_store:")))
    return [f"{point}:{number}" for point, passes in points.items() for number in range(1, min(passes, OCCURRENCES.get(point.split(":")[1], 1)) + 1)]


def visit(point: str, world: World) -> bool:
    """Kill a worker at the point, let another finish, and hold what must hold; return whether the point was reached."""
    (run_id,) = world.enqueue_now()
    victim = world.execute("--kill", point)
    world.wait_until("the victim died or the run ended", lambda: victim.process.poll() is not None or set(world.statuses()) == {"succeeded"})
    was_killed = victim.process.poll() == -9
    if was_killed:
        world.execute()
        world.wait_until_all()
    counts = world.body_counts()
    records = world.query("SELECT path, name, number, count(*) FROM {step} GROUP BY path, name, number")
    assert all(count == 1 for *_, count in records), (point, records)
    assert len(records) == 7, (point, records)
    assert (world.folder / "published-0").read_text() == str(expected_total(0)), point
    for (run, step), count in counts.items():
        attempts = 2 if step == "flaky" else 1
        assert run == run_id
        assert attempts <= count <= attempts + was_killed, (point, step, count)
    assert sum(counts.values()) <= 8 + 3, (point, counts)  # a kill cuts off what was in progress, at most two branches and their next
    return was_killed


@pytest.mark.timeout(900)
def test_a_kill_at_every_point_loses_nothing(new_url, tmp_path):
    """Whatever store call a worker is killed before or after, its run ends once, with the right result, and finished steps do not run again."""
    points = points_of_a_journey(new_url, tmp_path / "undisturbed")
    assert {"before_store:claim_runs:1", "after_store:claim_runs:1", "after_store:commit_checkpoints:1", "before_store:commit_checkpoints:3"} <= set(points)

    def one(point: str) -> bool:
        folder = tmp_path / point.replace(":", "-")
        folder.mkdir()
        with world_of(new_url(folder), folder) as world:
            reached = visit(point, world)
        shutil.rmtree(folder)
        return reached

    with ThreadPoolExecutor(AT_ONCE) as threads:
        reached = dict(zip(points, threads.map(one, points), strict=True))
    missed = [point for point, was_reached in reached.items() if not was_reached]
    assert len(missed) <= len(points) * 0.2, f"the faults did not land at {missed}"
    must = [point for point in missed if point.endswith((":claim_runs:1", ":commit_checkpoints:1", ":commit_checkpoints:2", ":commit_checkpoints:3"))]
    assert not must, f"the faults did not land at {must}"


@pytest.mark.parametrize("point", ["before_store:record_runs:1", "after_store:record_runs:1"])
def test_a_caller_killed_at_enqueue_can_call_again(point, database_url, tmp_path):
    """A caller that is killed around the commit and calls again with its key has one run."""
    with world_of(database_url, tmp_path) as world:
        world.enqueue_now("--kind", "once", "--first", "7")  # the schema is there
        victim = world.enqueue("--kind", "once", "--key", "order", "--kill", point)
        assert victim.wait() == -9
        world.enqueue_now("--kind", "once", "--key", "order")
        assert world.query("SELECT count(*) FROM {run_key}") == [(1,)]
        assert world.query("SELECT count(*) FROM {run}") == [(2,)]


def test_four_processes_with_one_key_make_one_run(database_url, tmp_path):
    """Twenty keys, each enqueued by four processes at once, are twenty runs, and one caller of each is told that it made it."""
    with world_of(database_url, tmp_path) as world:
        world.enqueue_now("--kind", "once", "--first", "1000")
        callers = [world.enqueue("--kind", "once", "--key", "order", "--count", "20") for _ in range(4)]
        assert [caller.wait() for caller in callers] == [0, 0, 0, 0]
        assert world.query("SELECT count(*) FROM {run}") == [(21,)]
        answers = [line.split() for caller in callers for line in caller.said]
        assert len({run for run, _ in answers}) == 20
        assert Counter(run for run, created in answers if created == "True") == Counter({run for run, _ in answers})


def test_two_workers_share_sixty_runs(database_url, tmp_path):
    """Two workers at once execute sixty runs with sixty bodies."""
    with world_of(database_url, tmp_path) as world:
        world.enqueue_now("--kind", "once", "--count", "60")
        world.execute(), world.execute()
        world.wait_until_all()
        assert len(world.bodies()) == 60
        assert set(world.body_counts().values()) == {1}
