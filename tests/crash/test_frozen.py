"""Workers that freeze, block or hold the interpreter: who loses a lease, who does not, and what a thawed one may write."""

import signal

import pytest

from .world import World, world_of


def test_a_thawed_worker_is_refused(database_url, tmp_path):
    """A worker frozen past its lease loses its run to another; thawed, its writes are refused, it says so, and the other's result stands."""
    with world_of(database_url, tmp_path) as world:
        world.enqueue_now("--kind", "held")
        frozen = world.execute("--lease", "2s")
        frozen.wait_for("step_attempt_started")
        world.freeze(frozen)
        other = world.execute("--lease", "2s")
        other.wait_for("step_attempt_started")
        (tmp_path / "go").touch()
        other.wait_for("run_ended")
        frozen.signal(signal.SIGCONT)
        frozen.wait_for("lease_lost")
        frozen.wait_for("worker_started", count=2)
        assert any("has lost its lease" in line for line in frozen.complained), frozen.report()
        assert world.statuses() == {"succeeded": 1}
        ((result,),) = world.query("SELECT result FROM {step}")
        assert result.strip('"') == str(other.process.pid)
        assert {body["pid"]: body["token"] for body in world.bodies()} == {frozen.process.pid: 1, other.process.pid: 2}
        assert len(world.bodies()) == 2


def test_a_killed_worker_is_found_dead_long_before_its_lease(database_url, tmp_path):
    """With a lease of ten minutes a killed worker's run goes on all the same: its process was proven to be gone."""
    with world_of(database_url, tmp_path) as world:
        world.enqueue_now("--kind", "held")
        victim = world.execute("--lease", "10m")
        victim.wait_for("step_attempt_started")
        victim.kill()
        other = world.execute("--lease", "10m")
        assert '"end": "dead"' in other.wait_for("worker_ended")
        (tmp_path / "go").touch()
        other.wait_for("run_ended")
        assert world.query("SELECT count(*) FROM {step}") == [(1,)]


@pytest.mark.parametrize("kind", ["blocked", "interpreter_held"])
def test_a_worker_that_is_blocked_keeps_its_lease(kind, database_url, tmp_path):
    """An event loop that is blocked for 25 s, or an interpreter lock held for 25 s, costs no lease: nobody takes the run."""
    with world_of(database_url, tmp_path) as world:
        (run_id,) = world.enqueue_now("--kind", kind, "--first", "25")
        busy = world.execute("--lease", "30s")
        busy.wait_for("step_attempt_started")
        other = world.execute("--lease", "30s")
        other.wait_for("worker_started")
        busy.wait_for("run_ended")
        assert world.statuses() == {"succeeded": 1}
        assert [body["pid"] for body in world.bodies()] == [busy.process.pid]
        assert not [line for line in other.said if line.startswith("worker_ended")]
        assert world.query("SELECT token FROM {run}") == [(1,)], run_id


def test_poison_ends_dead_and_its_neighbours_do_not_pay(database_url, tmp_path):
    """A run that takes its worker down is dead after five claims, three of them as the only suspect; the runs beside it succeed."""
    with world_of(database_url, tmp_path) as world:
        world.enqueue_now("--kind", "poison")
        world.enqueue_now("--kind", "innocent", "--count", "6")
        for _ in range(20):
            worker = world.execute("--lease", "2s")
            world.wait_until("the worker died or all is over", lambda worker=worker: worker.process.poll() is not None or is_over(world))
            if worker.process.poll() is None:
                break
        assert world.statuses() == {"dead": 1, "succeeded": 6}
        crashes = [body for body in world.bodies() if body["name"] == "crash"]
        assert len(crashes) == 5
        assert world.query("SELECT strikes FROM {run} WHERE status = 'dead'") == [(3,)]


def is_over(world: World) -> bool:
    """Nothing can go on any more."""
    return not set(world.statuses()) & {"running", "pending", "waiting"}
