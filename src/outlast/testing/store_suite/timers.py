"""What a store promises about timers, deadlines and flags."""

from outlast.native.store import Flagged
from outlast.run import RunStatus

from .world import World, WorldSuite, after, end, park, sleep


class TimersSuite(WorldSuite):
    """What the clock moves."""

    def test_a_waiting_run_comes_due_at_its_instant_and_not_before(self, world: World) -> None:
        """A timer never fires early, fires at its instant, and tells the lane."""
        run_id = world.enqueue(due_at=after(60))
        assert world.wake_due(after(59.999999)) == set()
        assert world.status(run_id) is RunStatus.WAITING
        assert world.wake_due(after(60)) == {world.lane()}
        assert world.status(run_id) is RunStatus.PENDING

    def test_a_woken_run_is_claimable(self, world: World) -> None:
        """A parked run that came due is claimed like any other."""
        worker = world.worker()
        run = world.claimed(worker)
        world.commit(worker, park(run, after(60), sleep()))
        assert world.claim(worker, run.id, now=after(60)) == []
        world.wake_due(after(60))
        assert world.claimed_again(worker, run, after(60)).token == 2

    def test_timers_are_moved_in_batches_oldest_first(self, world: World) -> None:
        """A pass moves so many and no more, those that have been due longest."""
        run_ids = [world.enqueue(due_at=after(10 - number)) for number in range(4)]
        world.wake_due(after(60), limit=3)
        assert [world.status(run_id) for run_id in run_ids] == [RunStatus.WAITING] + 3 * [RunStatus.PENDING]
        world.wake_due(after(60), limit=3)
        assert world.status(run_ids[0]) is RunStatus.PENDING
        assert world.wake_due(after(60)) == set()

    def test_a_run_that_never_ran_fails_at_its_deadline(self, world: World) -> None:
        """Pending and waiting runs that never ran end `failed`, with the deadline named and their key told."""
        pending = world.enqueue(deadline_at=after(60), idempotency_key="order-1")
        waiting = world.enqueue(deadline_at=after(60), due_at=after(90))
        assert world.end_overdue(after(59)) == 0
        assert world.end_overdue(after(60)) == 2
        for run_id in (pending, waiting):
            view = world.view(run_id)
            assert (view.status, view.finished_at) == (RunStatus.FAILED, after(60))
            assert view.error is not None
            assert view.error.type == "outlast.DeadlineExceeded"
            assert "2026-03-01" in view.error.message
        assert world.key("import_asset", "order-1") == (pending, RunStatus.FAILED)

    def test_a_run_that_ran_is_woken_at_its_deadline(self, world: World) -> None:
        """Another is made claimable, so that its worker ends it, and is dealt with once."""
        worker = world.worker()
        run = world.claimed(worker, deadline_at=after(60))
        world.commit(worker, park(run, after(900), sleep(due_at=after(900))))
        assert world.end_overdue(after(60)) == 1
        assert (world.status(run.id), world.view(run.id).due_at) == (RunStatus.PENDING, after(60))
        assert world.end_overdue(after(61)) == 0
        assert world.context(world.claimed_again(worker, run, after(61)), after(61)).is_past_deadline

    def test_a_held_or_ended_run_is_left_to_its_holder(self, world: World) -> None:
        """The sweep touches nothing that a worker holds, nor what is over."""
        worker = world.worker()
        world.claimed(worker, deadline_at=after(60))
        world.commit(worker, end(world.claimed(worker, deadline_at=after(60))))
        assert world.end_overdue(after(99)) == 0

    def test_a_look_tells_of_overdue_runs(self, world: World) -> None:
        """As long as the sweep would find something, whatever lane it is in, and not for what somebody holds."""

        def has_overdue(seconds: float) -> bool:
            with world.database.reading() as tx:
                return world.store.look(tx, [], after(seconds)).has_overdue

        world.claimed(world.worker(), deadline_at=after(60))
        assert not has_overdue(99)
        world.enqueue(deadline_at=after(60), due_at=after(900))
        assert (has_overdue(59), has_overdue(60)) == (False, True)
        world.end_overdue(after(60))
        assert not has_overdue(99)

    def test_overdue_runs_are_taken_in_pages(self, world: World) -> None:
        """A pass deals with so many and no more, and the next with the rest, whatever is there that needs nothing."""
        worker = world.worker()
        for _ in range(2):
            run = world.claimed(worker, deadline_at=after(1))
            world.commit(worker, end(run, RunStatus.PENDING))
        for _ in range(3):
            world.enqueue(deadline_at=after(60))
        assert [world.end_overdue(after(99), limit=2) for _ in range(3)] == [2, 1, 0]

    def test_the_holder_is_told_of_cancel_and_deadline(self, world: World) -> None:
        """A worker finds its own canceled and overdue runs, and no others."""
        worker, other = world.worker(), world.worker()
        canceled, overdue = world.claimed(worker), world.claimed(worker, deadline_at=after(60))
        world.claimed(worker)
        world.cancel(world.claimed(other).id)
        world.cancel(canceled.id, "wrong file")
        with world.database.reading() as tx:
            assert world.store.list_flagged(tx, worker, after(59)) == [Flagged(canceled.hold, "wrong file", False)]
            flagged = world.store.list_flagged(tx, worker, after(60))
        assert set(flagged) == {Flagged(canceled.hold, "wrong file", False), Flagged(overdue.hold, None, True)}
