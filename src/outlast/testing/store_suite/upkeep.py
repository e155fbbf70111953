"""What a store promises to operators: queues are paused, dead letters discarded, lanes counted, and every deed is kept."""

from datetime import timedelta
from typing import Any

import pytest

from outlast import ids
from outlast.inspector import BoundedCount
from outlast.limits import LANE_COUNT_MAX, STRANDED_AFTER
from outlast.native.store import Candidate, LaneName, Recovery
from outlast.native.upkeep import NewAction, QueueChange
from outlast.run import RunStatus
from outlast.step_key import StepKey

from .world import ERROR, START, World, WorldSuite, after, end, failed_record, new_run, park, sleep, step_of

DEFAULT = LaneName("default", "import_asset", 1)


class QueuesSuite(WorldSuite):
    """Queues that are paused, and lanes that are counted."""

    def claimable(self, world: World, *lanes: int) -> list[Candidate]:
        with world.database.reading() as tx:
            by_priority = world.store.probe_lanes(tx, lanes, 10, with_suspects=True, now=START)()
            by_age = world.store.probe_oldest(tx, lanes, 10, with_suspects=True, now=START)()
            assert {one.run_id for one in by_priority} == {one.run_id for one in by_age}
            assert world.store.look(tx, lanes, START).has_pending == bool(by_priority)
            return by_priority

    def test_nobody_claims_from_a_paused_queue(self, world: World) -> None:
        """Probes and looks pass over it and see the other queues, runs are still accepted, and a view says why they wait."""
        lane, other = world.lane(), world.lane("bulk")
        first, elsewhere = world.enqueue(), world.enqueue(lane=other)
        change = world.pause(now=after(1))
        assert change == QueueChange(after(1), True, frozenset({lane}))
        second = world.enqueue()
        assert [one.run_id for one in self.claimable(world, lane, other)] == [elsewhere]
        assert self.claimable(world, lane) == []
        assert world.view(second).why == "queue default is paused"
        world.unpause()
        assert {one.run_id for one in self.claimable(world, lane)} == {first, second}

    def test_what_runs_goes_on_in_a_paused_queue(self, world: World) -> None:
        """A held run is renewed, recorded and ended as if nothing were."""
        worker = world.worker()
        run = world.claimed(worker)
        world.pause()
        assert world.commit(worker, end(run)) == []
        assert world.status(run.id) is RunStatus.SUCCEEDED

    def test_a_queue_stays_paused_since_it_was(self, world: World) -> None:
        """Pausing twice changes nothing and says so, and so does the end of a pause that is none; a queue that nobody used may be paused."""
        assert world.pause("bulk", after(1)) == QueueChange(after(1), True, frozenset())
        assert world.pause("bulk", after(2)) == QueueChange(after(1), False, frozenset())
        lanes = frozenset({world.lane("bulk")})
        assert world.unpause("bulk") == QueueChange(None, True, lanes)
        assert world.unpause("bulk") == QueueChange(None, False, lanes)
        assert world.pause("bulk", after(3)).paused_at == after(3)

    def test_every_deed_is_kept(self, world: World) -> None:
        """Who did what to what, when and why, the latest first; one run's by themselves."""
        worker = world.worker()
        run = world.claimed(worker)
        world.commit(worker, end(run, RunStatus.FAILED, error=ERROR))
        world.pause("bulk", after(1))
        world.retry(run.id, after(2))
        world.unpause("bulk", after(3))
        deeds = [(one.at, one.actor, one.action, one.run, one.queue, one.reason) for one in world.actions()]
        assert deeds == [
            (after(3), "ann", "unpause_queue", None, "bulk", "there is room"),
            (after(2), "ann", "retry", run.id, None, "the disk is back"),
            (after(1), "ann", "pause_queue", None, "bulk", "the disk is full"),
        ]
        assert [one.action for one in world.actions(run.id)] == ["retry"]
        assert world.actions(ids.run_id()) == []

    def test_an_action_counts_what_it_was_done_to(self, world: World) -> None:
        """What a deed of many transactions removes is added to its one row."""
        with world.writing() as tx:
            number = world.store.record_action(tx, NewAction("prune", "ann", "old", affected=2), START)
        with world.writing() as tx:
            world.store.add_to_action(tx, number, 3)
        assert [one.affected for one in world.actions()] == [5]

    def test_lanes_are_counted(self, world: World) -> None:
        """Each lane has its claimable, held and waiting runs, and of those the overdue ones; what is over counts nowhere."""
        worker = world.worker()
        held, asleep, nameless, done = (world.claimed(worker) for _ in range(4))
        world.commit(worker, park(asleep, after(9), sleep(due_at=after(9))), park(nameless, None), end(done))
        world.enqueue()
        world.enqueue(lane=world.lane("bulk"), due_at=after(99))
        row = world.lanes(after(9))[DEFAULT]
        assert (row.pending, row.running, row.waiting, row.overdue) == (BoundedCount(1), BoundedCount(1), BoundedCount(2), BoundedCount(1))
        row = world.lanes(after(8))[LaneName("bulk", "import_asset", 1)]
        assert (row.pending, row.running, row.waiting, row.overdue) == (BoundedCount(0), BoundedCount(0), BoundedCount(1), BoundedCount(0))
        world.pause("bulk", after(5))
        assert [row.paused_at for row in world.lanes().values()] == [after(5), None]
        assert world.status(held.id) is RunStatus.RUNNING

    def test_counts_end_at_a_bound(self, world: World) -> None:
        """More than a thousand are a thousand and more, however many there are."""
        lane = world.lane()
        for _ in range(2):
            world.accept(*(new_run(lane) for _ in range((LANE_COUNT_MAX + 2) // 2)))
        assert str(world.lanes()[DEFAULT].pending) == "1000+"

    def test_a_lane_is_served_while_a_worker_lives_and_a_minute_longer(self, world: World) -> None:
        """A worker that has lived within the last minute serves its lanes and no others; afterwards nobody does."""
        lane, _ = world.lane(), world.lane("bulk")
        worker = world.worker(lane)
        assert [row.is_served for row in world.lanes().values()] == [False, True]
        world.end_worker(worker, "stopped", after(10))
        minute = STRANDED_AFTER.total_seconds()
        assert [world.lanes(after(10 + seconds))[DEFAULT].is_served for seconds in (minute - 1, minute + 1)] == [True, False]

    def test_a_worker_that_nobody_declared_dead_serves_only_a_minute_beyond_its_lease(self, world: World) -> None:
        """When all workers are gone at once nobody ends their rows: their leases tell."""
        world.worker(lease=timedelta(seconds=30))
        minute = STRANDED_AFTER.total_seconds()
        assert [world.lanes(after(30 + seconds))[DEFAULT].is_served for seconds in (minute - 1, minute + 1)] == [True, False]


class DiscardingSuite(WorldSuite):
    """Dead letters that an operator has looked at."""

    def dead(self, world: World, worker: int, **changes: Any) -> str:
        run = world.claimed(worker, **changes)
        world.end_worker(worker)
        with world.writing() as tx:
            [orphan] = world.store.list_orphans(tx, 10, START)
            world.store.recover_runs(tx, [Recovery(orphan.hold, RunStatus.DEAD, timedelta(0), 1, 5, 3, 0, ERROR)], START)
        return run.id

    def test_a_failed_run_is_discarded(self, world: World) -> None:
        """It is canceled for good, keeps what it failed with, tells its key, and leaves the dead letters."""
        worker = world.worker()
        run = world.claimed(worker, idempotency_key="order-1")
        world.commit(worker, end(run, RunStatus.FAILED, error=ERROR, attempts=2))
        assert world.discard(run.id, after(9)) is RunStatus.FAILED
        view = world.view(run.id)
        assert (view.status, view.finished_at, view.cancel_reason, view.error) == (RunStatus.CANCELED, after(9), "of no use any more", ERROR)
        assert (view.attempts, view.why) == (2, "canceled: of no use any more")
        assert world.key("import_asset", "order-1") == (run.id, RunStatus.CANCELED)
        assert [(one.action, one.at, one.run) for one in world.actions()] == [("discard", after(9), run.id)]

    def test_a_dead_run_is_discarded(self, world: World) -> None:
        """What took its workers down is put aside in the same way."""
        run_id = self.dead(world, world.worker(), idempotency_key="order-1")
        assert world.discard(run_id) is RunStatus.DEAD
        assert (world.status(run_id), world.view(run_id).error) == (RunStatus.CANCELED, ERROR)
        assert world.key("import_asset", "order-1") == (run_id, RunStatus.CANCELED)

    @pytest.mark.parametrize("status", [RunStatus.PENDING, RunStatus.WAITING, RunStatus.RUNNING, RunStatus.SUCCEEDED, RunStatus.CANCELED])
    def test_nothing_else_is_discarded(self, world: World, status: RunStatus) -> None:
        """A run in another state stays as it is and nothing is kept of the attempt; a run that is not there is named as that."""
        worker = world.worker()
        run = world.claimed(worker)
        if status is not RunStatus.RUNNING:
            world.commit(worker, end(run, status))
        assert world.discard(run.id) is status
        assert (world.status(run.id), world.view(run.id).cancel_reason, world.actions()) == (status, None, [])
        assert world.discard(ids.run_id()) is None
        assert world.discard("nonsense") is None

    def test_a_discarded_run_may_still_be_retried(self, world: World) -> None:
        """A second thought is possible: the step that failed has fresh attempts, as if it had never been discarded."""
        worker = world.worker()
        run = world.claimed(worker)
        world.commit(worker, step_of(run, failed_record()), end(run, RunStatus.FAILED, error=ERROR, failed_key=StepKey((), "locate", 0)))
        world.discard(run.id)
        world.retry(run.id, after(1))
        view = world.view(run.id)
        assert (view.status, view.error, view.cancel_reason) == (RunStatus.PENDING, None, None)
        again = world.claimed_again(worker, run, after(1))
        assert world.context(again).history.records == ()
        assert world.commit(worker, end(again)) == []
