"""What a store promises about cancel and retry."""

import pytest

from outlast import ids
from outlast.run import CancelOutcome, RunStatus
from outlast.step_key import StepKey

from .world import ERROR, World, WorldSuite, after, end, failed_record, failure, park, sleep, step, step_of


class ActingSuite(WorldSuite):
    """What callers and operators do."""

    def test_nothing_is_nobody_s_run(self, world: World) -> None:
        """A run that is not there can neither be canceled nor retried."""
        assert world.cancel(ids.run_id()) is None
        assert world.retry(ids.run_id()) is None

    @pytest.mark.parametrize("due_at", [None, after(60)])
    def test_a_run_that_never_ran_is_canceled_on_the_spot(self, world: World, due_at: object) -> None:
        """Pending and waiting alike are over at once, with the reason and their key told."""
        run_id = world.enqueue(due_at=due_at, idempotency_key="order-1")
        assert world.cancel(run_id, "wrong file", now=after(1)) == (CancelOutcome.CANCELED, None)
        view = world.view(run_id)
        assert (view.status, view.cancel_reason, view.finished_at, view.due_at) == (RunStatus.CANCELED, "wrong file", after(1), None)
        assert world.key("import_asset", "order-1") == (run_id, RunStatus.CANCELED)
        assert world.claim(world.worker(), run_id, now=after(99)) == []
        assert world.wake_due(after(99)) == set()

    def test_a_running_run_is_asked_and_its_worker_named(self, world: World) -> None:
        """The caller learns whom to tell; a second cancel answers the same and keeps the first reason."""
        worker = world.worker()
        run = world.claimed(worker)
        assert world.cancel(run.id, "first") == (CancelOutcome.REQUESTED, worker)
        assert world.cancel(run.id, "second") == (CancelOutcome.REQUESTED, worker)
        assert (world.status(run.id), world.view(run.id).cancel_reason) == (RunStatus.RUNNING, "first")

    def test_a_parked_run_is_claimable_at_once(self, world: World) -> None:
        """A cancel beats a sleep: the run is due now, so that a worker ends it, and it stays canceled."""
        worker = world.worker()
        run = world.claimed(worker)
        world.commit(worker, park(run, after(900), sleep(due_at=after(900))))
        assert world.cancel(run.id, now=after(1)) == (CancelOutcome.REQUESTED, None)
        assert (world.status(run.id), world.view(run.id).due_at) == (RunStatus.PENDING, after(1))
        assert world.cancel(run.id, "second", now=after(2)) == (CancelOutcome.REQUESTED, None)
        again = world.claimed_again(worker, run, after(2))
        assert world.context(again).cancel_reason == "not wanted"

    @pytest.mark.parametrize("status", [RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.CANCELED])
    def test_what_is_over_is_over(self, world: World, status: RunStatus) -> None:
        """A cancel after the end changes nothing and says so."""
        worker = world.worker()
        run = world.claimed(worker)
        world.commit(worker, end(run, status))
        assert world.cancel(run.id) == (CancelOutcome.ALREADY_OVER, None)
        assert (world.status(run.id), world.view(run.id).cancel_reason) == (status, None)

    @pytest.mark.parametrize("status", [RunStatus.FAILED, RunStatus.CANCELED])
    def test_an_ended_run_is_retried(self, world: World, status: RunStatus) -> None:
        """A retry makes a run claimable with fresh counters and without what it ended with; its key is open again."""
        worker = world.worker()
        run = world.claimed(worker, idempotency_key="order-1")
        world.commit(worker, end(run, status, error=ERROR, attempts=3, verdict="ignored"))
        assert world.retry(run.id, now=after(9)) == (status, world.lane())
        view = world.view(run.id)
        assert (view.status, view.due_at, view.finished_at, view.error, view.attempts) == (RunStatus.PENDING, after(9), None, None, 0)
        assert (view.verdict, view.cancel_reason) == (None, None)
        assert world.key("import_asset", "order-1") == (run.id, None)
        assert world.claimed_again(worker, run, after(9)).token > run.token

    def test_a_canceled_run_that_is_retried_is_not_canceled_any_more(self, world: World) -> None:
        """The operator's retry withdraws the cancel, and the run may succeed."""
        worker = world.worker()
        run = world.claimed(worker)
        world.cancel(run.id)
        world.commit(worker, end(run, RunStatus.CANCELED, passes_cancel=True))
        world.retry(run.id)
        again = world.claimed_again(worker, run, after(1))
        assert world.context(again).cancel_reason is None
        assert world.commit(worker, end(again)) == []

    @pytest.mark.parametrize("status", [RunStatus.PENDING, RunStatus.WAITING, RunStatus.RUNNING, RunStatus.SUCCEEDED])
    def test_other_states_are_not_retried(self, world: World, status: RunStatus) -> None:
        """A retry of what goes on or succeeded names the state and changes nothing."""
        worker = world.worker()
        run = world.claimed(worker)
        if status is not RunStatus.RUNNING:
            world.commit(worker, end(run, status))
        before = world.view(run.id)
        assert world.retry(run.id, now=after(50)) == (status, world.lane())
        assert world.view(run.id) == before

    def test_a_retry_keeps_finished_steps_and_retires_the_failed_one(self, world: World) -> None:
        """The step that failed begins afresh, what came before is remembered, and the history says where it was cut."""
        worker = world.worker()
        run = world.claimed(worker)
        world.commit(worker, step(run, "locate", 0), failure(run, "copy", 1), failure(run, "copy", 2), step_of(run, failed_record("copy", 1)))
        world.commit(worker, end(run, RunStatus.FAILED, error=ERROR, failed_key=StepKey((), "copy", 0)))
        world.retry(run.id)
        history = world.context(world.claimed_again(worker, run, after(1))).history
        assert [one.key.name for one in history.records] == ["locate"]
        assert [(one.attempt, one.is_retired) for one in history.failures] == [(1, True), (2, True), (3, True)]
        assert history.failures[-1].error == ERROR
        assert history.retired_seq == 1

    def test_a_retry_lifts_a_deadline_that_has_passed(self, world: World) -> None:
        """A retried run is not ended again by the deadline that ended it; one that lies ahead stays."""
        late, early = world.enqueue(deadline_at=after(60)), world.enqueue(deadline_at=after(600))
        world.end_overdue(after(60))
        world.cancel(early)
        for run_id in (late, early):
            world.retry(run_id, now=after(61))
        assert (world.view(late).deadline_at, world.view(early).deadline_at) == (None, after(600))
        assert world.end_overdue(after(62)) == 0
