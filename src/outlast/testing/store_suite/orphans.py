"""What a store promises about the runs of workers that are gone."""

from datetime import timedelta

from outlast.native.store import ClaimedRun, Orphan, Recovery
from outlast.run import RunStatus

from .world import ERROR, START, World, WorldSuite, after, end, failure, report, step


class OrphansSuite(WorldSuite):
    """Finding orphans and letting them go."""

    def recover(self, world: World, run: ClaimedRun, status: RunStatus = RunStatus.PENDING, delay: float = 0, strikes: int = 0) -> set[int]:
        error = ERROR if status is RunStatus.DEAD else None
        recovery = Recovery(run.hold, status, timedelta(seconds=delay), recoveries=1, losses=1, strikes=strikes, loss_mark=0, error=error)
        with world.writing() as tx:
            return world.store.recover_runs(tx, [recovery], START)

    def mark(self, world: World) -> int:
        [orphan] = world.orphans()
        return orphan.progress_mark

    def test_only_runs_of_ended_workers_are_orphans(self, world: World) -> None:
        """A living worker's runs are never listed, nor what an ended one let go in time."""
        living, dead, stopped = (world.worker() for _ in range(3))
        world.claimed(living)
        run, left = world.claimed(dead), world.claimed(stopped)
        world.commit(dead, end(world.claimed(dead)))
        assert world.orphans() == []
        world.end_worker(dead, "dead")
        world.end_worker(stopped, "stopped")
        assert {orphan.hold: orphan.has_ended_worker for orphan in world.orphans()} == {run.hold: True, left.hold: False}
        assert len(world.orphans(limit=1)) == 1

    def test_an_orphan_of_a_silent_worker_lost_it(self, world: World) -> None:
        """Silence is a loss like death."""
        worker = world.worker()
        run = world.claimed(worker)
        world.end_worker(worker, "silent")
        assert world.orphans() == [Orphan(run.hold, 0, 0, 0, 0, 0, True)]

    def test_a_recovered_run_refuses_the_old_token(self, world: World) -> None:
        """What was taken from a worker cannot be written by it any more, before and after the next claim."""
        worker, next_worker = world.worker(), world.worker()
        run = world.claimed(worker)
        world.end_worker(worker)
        assert self.recover(world, run) == {world.lane()}
        assert world.orphans() == []
        late = step(run)
        assert world.commit(next_worker, late) == [late]
        again = world.claimed_again(next_worker, run, START)
        assert again.token > run.token
        assert world.commit(next_worker, late) == [late]
        assert (world.view(run.id).recoveries, again.losses) == (1, 1)

    def test_a_recovery_can_back_off(self, world: World) -> None:
        """A run that keeps losing its worker waits before it is claimable."""
        worker = world.worker()
        run = world.claimed(worker)
        world.end_worker(worker)
        self.recover(world, run, RunStatus.WAITING, delay=20)
        assert (world.status(run.id), world.view(run.id).due_at) == (RunStatus.WAITING, after(20))
        assert world.wake_due(after(20)) == {world.lane()}

    def test_nothing_delays_a_canceled_orphan(self, world: World) -> None:
        """A cancel beats the back-off of a recovery."""
        worker = world.worker()
        run = world.claimed(worker)
        world.cancel(run.id)
        world.end_worker(worker)
        self.recover(world, run, RunStatus.WAITING, delay=20)
        assert (world.status(run.id), world.view(run.id).due_at) == (RunStatus.PENDING, START)

    def test_a_dead_run_is_over(self, world: World) -> None:
        """The third strike ends a run as dead, with its error, its counters and its key told."""
        worker = world.worker()
        run = world.claimed(worker, idempotency_key="order-1")
        world.end_worker(worker)
        self.recover(world, run, RunStatus.DEAD, strikes=3)
        view = world.view(run.id)
        assert (view.status, view.error, view.finished_at, view.strikes, view.recoveries) == (RunStatus.DEAD, ERROR, START, 3, 1)
        assert world.key("import_asset", "order-1") == (run.id, RunStatus.DEAD)
        assert world.orphans() == []

    def test_a_stale_recovery_changes_nothing(self, world: World) -> None:
        """A run that was claimed again since is not taken from its new holder."""
        worker = world.worker()
        old = world.claimed(worker)
        world.commit(worker, end(old, RunStatus.PENDING))
        new = world.claimed_again(worker, old, START)
        for status in (RunStatus.PENDING, RunStatus.DEAD):
            assert self.recover(world, old, status) == set()
        assert (world.status(new.id), world.view(new.id).recoveries) == (RunStatus.RUNNING, 0)

    def test_counters_come_back_with_the_next_orphan(self, world: World) -> None:
        """What a recovery decided is what the next one begins with."""
        worker = world.worker()
        run = world.claimed(worker)
        with world.writing() as tx:
            world.store.recover_runs(tx, [Recovery(run.hold, RunStatus.PENDING, timedelta(0), 4, 3, 2, 9, None)], START)
        again = world.claimed_again(worker, run, START)
        world.end_worker(worker)
        assert world.orphans() == [Orphan(again.hold, 4, 3, 2, 9, 0, True)]

    def test_the_progress_mark_grows_with_all_that_is_recorded_or_reported(self, world: World) -> None:
        """Records, failures and reports each count, and a record that replaces its reports takes none away."""
        worker = world.worker()
        run = world.claimed(worker)
        other = world.worker()
        world.end_worker(worker)
        marks = [self.mark(world)]
        for change in (lambda: world.report(report(run)), lambda: world.report(report(run, done=2.0)), lambda: world.commit(other, step(run))):
            change()
            marks.append(self.mark(world))
        world.commit(other, failure(run, "copy"))
        marks.append(self.mark(world))
        assert marks == sorted(set(marks))

    def test_being_busy_is_no_progress(self, world: World) -> None:
        """A long step that reports nothing of itself does not clear a suspicion."""
        worker = world.worker()
        run = world.claimed(worker)
        world.report(report(run, done=None, total=None))
        world.end_worker(worker)
        assert self.mark(world) == 0
