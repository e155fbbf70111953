"""What a store promises to those who look after what failed: a result in place of an error, and the dead letters in the order of their ends."""

import pytest

from outlast import ids
from outlast.native.history import Outcome, RecordKind
from outlast.native.store import Checkpoint, ClaimedRun
from outlast.native.upkeep import Resumed
from outlast.run import RunStatus
from outlast.step_key import StepKey

from .world import ERROR, World, WorldSuite, after, end, failed_record, failure, record, step, step_of

KEY = StepKey((), "locate", 0)


class ResumingSuite(WorldSuite):
    """Runs that failed, and what people do about them."""

    def failed(self, world: World, worker: int, kind: RecordKind = RecordKind.STEP) -> ClaimedRun:
        """Return a run that its second step has failed, after a first that was done and before one that the body gave up."""
        run = world.claimed(worker, idempotency_key=ids.run_id())
        ended: list[Checkpoint] = [
            step(run, "before", 0),
            failure(run, "locate", 1, after(3)),
            step_of(run, record(seq=1, outcome=Outcome.ERROR, result=None, error=ERROR, attempts=2, kind=kind)),
            step_of(run, record("beside", 2, outcome=Outcome.GIVEN_UP, result=None)),
        ]
        assert world.commit(worker, *ended, end(run, RunStatus.FAILED, error=ERROR, failed_key=KEY)) == []
        return run

    def resume(self, world: World, run_id: str, result: str = '{"path":"/by/hand"}') -> Resumed | None:
        with world.writing() as tx:
            return world.store.resume_run(tx, run_id, result, "ann", "copied by hand", after(9))

    @pytest.mark.parametrize("kind", [RecordKind.STEP, RecordKind.EFFECT])
    def test_a_failed_run_goes_on_with_a_given_result(self, world: World, kind: RecordKind) -> None:
        """The error's record becomes a retired attempt, and one with the result stands in its place, at the same `seq`."""
        worker = world.worker()
        run = self.failed(world, worker, kind)
        assert self.resume(world, run.id) == Resumed(RunStatus.FAILED, world.lane(), 0, KEY, kind)
        view = world.view(run.id)
        assert (view.status, view.due_at, view.error, view.finished_at) == (RunStatus.PENDING, after(9), None, None)
        assert [(one.action, one.actor, one.reason) for one in world.actions(run.id)] == [("resume", "ann", "copied by hand")]
        assert [(one.key, one.status, one.result) for one in world.steps(run.id)] == [
            ("before", "done", '"/found"'),
            ("locate", "resumed", '{"path":"/by/hand"}'),
        ]
        again = world.claimed_again(worker, run, after(9))
        history = world.context(again).history
        given = history.records[1]
        assert (given.key, given.seq, given.kind, given.outcome, given.digest) == (KEY, 1, kind, Outcome.RESUMED, "digest-of-arguments")
        assert (given.attempts, given.finished_at, given.error) == (2, after(9), None)
        assert [(one.attempt, one.is_retired, one.error) for one in history.failures] == [(1, True, ERROR), (2, True, ERROR)]
        assert history.retired_seq == 1
        assert world.commit(worker, end(again)) == []

    def test_a_given_result_is_never_replaced(self, world: World) -> None:
        """Should the run fail once more elsewhere, a retry leaves what the person gave."""
        worker = world.worker()
        run = self.failed(world, worker)
        self.resume(world, run.id)
        again = world.claimed_again(worker, run, after(9))
        other = StepKey((), "after", 0)
        world.commit(worker, step_of(again, failed_record("after", 5)), end(again, RunStatus.FAILED, error=ERROR, failed_key=other), now=after(10))
        world.retry(run.id, after(11))
        assert [(one.key, one.status) for one in world.steps(run.id) if one.status != "retrying"] == [("before", "done"), ("locate", "resumed")]

    @pytest.mark.parametrize("status", [RunStatus.PENDING, RunStatus.RUNNING, RunStatus.SUCCEEDED, RunStatus.CANCELED])
    def test_only_a_failed_run_is_resumed(self, world: World, status: RunStatus) -> None:
        """A run in another state stays as it is and nothing is kept of the attempt; a run that is not there is named as that."""
        worker = world.worker()
        run = world.claimed(worker)
        if status is not RunStatus.RUNNING:
            world.commit(worker, step_of(run, failed_record()), end(run, status, failed_key=KEY))
        found = self.resume(world, run.id)
        assert found is not None
        assert (found.found, found.key) == (status, None)
        assert (world.status(run.id), world.actions()) == (status, [])
        assert self.resume(world, ids.run_id()) is None
        assert self.resume(world, "nonsense") is None

    @pytest.mark.parametrize("failed_key", [None, KEY])
    def test_a_run_that_no_step_has_failed_is_not_resumed(self, world: World, failed_key: StepKey | None) -> None:
        """Where the body failed by itself, or its step has no record, there is nothing that a result could be given to."""
        worker = world.worker()
        run = world.claimed(worker)
        world.commit(worker, end(run, RunStatus.FAILED, error=ERROR, failed_key=failed_key))
        found = self.resume(world, run.id)
        assert found is not None
        assert (found.found, found.key) == (RunStatus.FAILED, None)
        assert world.status(run.id) is RunStatus.FAILED

    def test_dead_letters_come_in_the_order_of_their_ends(self, world: World) -> None:
        """The one that ended last first, page by page, of two in one instant the one with the greater id; what is not one of them is left out."""
        worker = world.worker()
        runs = [world.claimed(worker) for _ in range(6)]
        for run, seconds in zip(runs, (5, 3, 4, 4, 9, 9), strict=True):
            status = RunStatus.SUCCEEDED if run is runs[4] else RunStatus.FAILED
            world.commit(worker, end(run, status, error=ERROR), now=after(seconds))
        world.discard(runs[5].id)
        twins = sorted((runs[2].id, runs[3].id), reverse=True)
        pages, before = [], None
        with world.database.reading() as tx:
            while page := world.store.list_dead_letters(tx, 2, before, after(20)):
                pages.append([one.id for one in page])
                assert page[-1].finished_at is not None
                before = page[-1].finished_at, page[-1].id
        assert pages == [[runs[0].id, twins[0]], [twins[1], runs[1].id]]
