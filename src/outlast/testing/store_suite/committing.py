"""What a store promises about checkpoints."""

import pytest

from outlast.database.transaction import Refusal, RefusedError
from outlast.native.history import EMPTY, RecordKind, Wait
from outlast.native.store import Checkpoint, Hold, StepCheckpoint
from outlast.run import RunStatus
from outlast.step_key import StepKey

from .world import ERROR, START, World, WorldSuite, after, end, failed_record, failure, park, record, report, sleep, step, step_of


class CommittingSuite(WorldSuite):
    """Records, ends, parks, refusals."""

    def test_an_end_is_kept(self, world: World) -> None:
        """A run ends with its output, at the instant of the commit, and nobody holds it."""
        worker = world.worker()
        run = world.claimed(worker)
        assert world.commit(worker, step(run), end(run, output='{"path":"/c"}', attempts=2), now=after(7)) == []
        view = world.view(run.id)
        assert (view.status, view.output, view.finished_at, view.worker, view.attempts, view.due_at) == (
            RunStatus.SUCCEEDED,
            '{"path":"/c"}',
            after(7),
            None,
            2,
            None,
        )

    def test_no_output_is_null(self, world: World) -> None:
        """A run that succeeded without an output returned null."""
        worker = world.worker()
        run = world.claimed(worker)
        world.commit(worker, end(run))
        assert world.view(run.id).output == "null"

    def test_a_failure_is_kept(self, world: World) -> None:
        """A run that failed shows its error and no output."""
        worker = world.worker()
        run = world.claimed(worker)
        world.commit(worker, end(run, RunStatus.FAILED, error=ERROR, verdict="ignored", warnings=("slow", "slow")))
        view = world.view(run.id)
        assert (view.status, view.error, view.output, view.verdict, view.warnings) == (RunStatus.FAILED, ERROR, None, "ignored", ("slow",))

    def test_warnings_are_added_once_each(self, world: World) -> None:
        """A run's warnings grow by those that it does not have yet."""
        worker = world.worker()
        run = world.claimed(worker)
        world.commit(worker, end(run, RunStatus.PENDING, warnings=("a", "b")))
        run = world.claimed_again(worker, run, START)
        world.commit(worker, end(run, warnings=("b", "c")))
        assert world.view(run.id).warnings == ("a", "b", "c")

    @pytest.mark.parametrize("status", [RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.CANCELED])
    def test_a_key_learns_how_its_run_ended(self, world: World, status: RunStatus) -> None:
        """The key keeps the end of its run."""
        worker = world.worker()
        run = world.claimed(worker, idempotency_key="order-1")
        assert world.key("import_asset", "order-1") == (run.id, None)
        world.commit(worker, end(run, status))
        assert world.key("import_asset", "order-1") == (run.id, status)

    def test_a_group_of_many_runs_is_kept_whole(self, world: World) -> None:
        """One group carries records, failures, ends and parks of many runs."""
        worker = world.worker()
        runs = [world.claimed(worker) for _ in range(12)]
        group = [step(run, f"s{n}", n) for run in runs for n in range(3)]
        ends = [end(run) if number % 2 else park(run, after(60), sleep()) for number, run in enumerate(runs)]
        assert world.commit(worker, *group, *(failure(run, "copy") for run in runs), *ends) == []
        assert {world.status(run.id) for run in runs[1::2]} == {RunStatus.SUCCEEDED}
        assert {world.status(run.id) for run in runs[::2]} == {RunStatus.WAITING}
        assert [view.key for view in world.steps(runs[0].id)] == ["s0", "s1", "s2", "copy", "sleep"]

    def test_a_stale_token_is_refused_and_the_rest_is_kept(self, world: World) -> None:
        """What belongs to an older claim is reported as refused, with nothing of it there, and its neighbours are kept."""
        worker = world.worker()
        old = world.claimed(worker)
        world.commit(worker, end(old, RunStatus.PENDING))
        new = world.claimed_again(worker, old, START)
        other = world.claimed(worker)
        stale: list[Checkpoint] = [step(old), failure(old, "copy"), end(old, output='"late"')]
        good: list[Checkpoint] = [step(other), failure(other, "copy"), end(other)]
        assert world.commit(worker, *stale[:2], *good[:2], stale[2], good[2]) == stale
        assert world.status(new.id) is RunStatus.RUNNING
        assert world.context(new).history == EMPTY
        assert world.status(other.id) is RunStatus.SUCCEEDED

    def test_a_token_of_the_future_is_refused(self, world: World) -> None:
        """Only the current token writes."""
        worker = world.worker()
        run = world.claimed(worker)
        late = StepCheckpoint(Hold(run.id, run.token + 1), 0, record())
        assert world.commit(worker, late) == [late]

    def test_another_generation_is_refused(self, world: World) -> None:
        """A record of a generation that the run is not in is refused."""
        worker = world.worker()
        run = world.claimed(worker)
        late = StepCheckpoint(run.hold, 1, record())
        assert world.commit(worker, late) == [late]

    def test_nothing_is_written_after_the_end(self, world: World) -> None:
        """A run that is over takes neither records nor another end, under its own token."""
        worker = world.worker()
        run = world.claimed(worker)
        world.commit(worker, end(run))
        late: list[Checkpoint] = [step(run), end(run, RunStatus.FAILED, error=ERROR)]
        assert world.commit(worker, *late) == late
        assert world.status(run.id) is RunStatus.SUCCEEDED
        assert world.steps(run.id) == []

    def test_a_duplicate_record_voids_the_group(self, world: World) -> None:
        """A record that meets one of its key is an error, and nothing of its group is there."""
        worker = world.worker()
        run, other = world.claimed(worker), world.claimed(worker)
        world.commit(worker, step(run, result='"first"'))
        with pytest.raises(RefusedError) as refused:
            world.commit(worker, step(other), step(run, seq=1, result='"second"'), end(other))
        assert refused.value.refusal is Refusal.DUPLICATE
        assert world.status(other.id) is RunStatus.RUNNING
        assert world.context(other).history.records == ()
        assert [one.result for one in world.context(run).history.records] == ['"first"']

    def test_a_duplicate_failure_voids_the_group(self, world: World) -> None:
        """A failed attempt is kept once."""
        worker = world.worker()
        run = world.claimed(worker)
        world.commit(worker, failure(run))
        with pytest.raises(RefusedError) as refused:
            world.commit(worker, step(run, "other"), failure(run))
        assert refused.value.refusal is Refusal.DUPLICATE
        assert world.context(run).history.records == ()

    @pytest.mark.parametrize("status", [RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.WAITING, RunStatus.PENDING])
    def test_an_end_after_a_cancel_is_refused(self, world: World, status: RunStatus) -> None:
        """Once a cancel was accepted a run neither ends nor parks by itself; its records are still kept."""
        worker = world.worker()
        run = world.claimed(worker)
        world.cancel(run.id)
        ended = end(run, status)
        assert world.commit(worker, step(run), ended) == [ended]
        assert world.status(run.id) is RunStatus.RUNNING
        assert len(world.context(run).history.records) == 1

    def test_the_way_of_cancel_passes(self, world: World) -> None:
        """The end that a cancel leads to is accepted."""
        worker = world.worker()
        run = world.claimed(worker)
        world.cancel(run.id)
        assert world.commit(worker, end(run, RunStatus.CANCELED, passes_cancel=True, verdict="acknowledged")) == []
        view = world.view(run.id)
        assert (view.status, view.cancel_reason, view.verdict) == (RunStatus.CANCELED, "not wanted", "acknowledged")

    def test_a_park_registers_its_waits_once(self, world: World) -> None:
        """An open wait keeps the instant that it was registered with."""
        worker = world.worker()
        run = world.claimed(worker)
        world.commit(worker, park(run, after(60), sleep(due_at=after(60)), attempts=1))
        assert (world.status(run.id), world.view(run.id).due_at) == (RunStatus.WAITING, after(60))
        world.wake_due(after(60))
        run = world.claimed_again(worker, run, after(60))
        world.commit(worker, park(run, after(60), sleep(due_at=after(500)), sleep("nap", after(70)), attempts=1))
        assert {(view.key, view.due_at) for view in world.steps(run.id)} == {("sleep", after(60)), ("nap", after(70))}

    def test_a_refused_park_registers_nothing(self, world: World) -> None:
        """A stale park leaves no wait behind."""
        worker = world.worker()
        old = world.claimed(worker)
        world.commit(worker, end(old, RunStatus.PENDING))
        new = world.claimed_again(worker, old, START)
        assert len(world.commit(worker, park(old, after(60), sleep()))) == 1
        assert world.context(new).history.waits == ()

    @pytest.mark.parametrize("kind", [RecordKind.SLEEP, RecordKind.TIMEOUT])
    def test_the_record_of_a_wait_withdraws_it(self, world: World, kind: RecordKind) -> None:
        """A wait is open until its record is kept; others stay open."""
        worker = world.worker()
        run = world.claimed(worker)
        over, still_open = Wait(StepKey((), "over", 0), kind, after(60)), sleep("open")
        world.commit(worker, park(run, after(60), over, still_open))
        world.wake_due(after(60))
        run = world.claimed_again(worker, run, after(60))
        world.commit(worker, step_of(run, record("over", kind=kind)))
        assert world.context(run).history.waits == (still_open,)

    def test_the_end_withdraws_waits_and_activity(self, world: World) -> None:
        """A run that is over has nothing open."""
        worker = world.worker()
        run = world.claimed(worker)
        world.commit(worker, park(run, after(60), sleep()))
        world.wake_due(after(60))
        run = world.claimed_again(worker, run, after(60))
        world.report(report(run))
        world.commit(worker, end(run))
        assert world.steps(run.id) == []

    def test_a_run_that_is_handed_back_is_claimable_now(self, world: World) -> None:
        """A hand-back is due at once, counts nothing, and another worker may claim it."""
        worker = world.worker()
        run = world.claimed(worker)
        world.commit(worker, end(run, RunStatus.PENDING), now=after(5))
        view = world.view(run.id)
        assert (view.status, view.due_at, view.attempts, view.recoveries, view.worker) == (RunStatus.PENDING, after(5), 0, 0, None)
        assert [one.id for one in world.claim(world.worker(), run.id, now=after(5))] == [run.id]

    def test_a_park_by_name_only_has_no_timer(self, world: World) -> None:
        """A run that waits for no instant is never woken by the clock."""
        worker = world.worker()
        run = world.claimed(worker)
        world.commit(worker, park(run, None))
        assert world.wake_due(after(1_000_000)) == set()
        assert world.status(run.id) is RunStatus.WAITING

    def test_the_error_of_an_attempt_is_shown_until_a_success(self, world: World) -> None:
        """A body that failed and is tried again shows its last error, and not any more once it succeeded."""
        worker = world.worker()
        run = world.claimed(worker)
        world.commit(worker, park(run, after(9), attempts=1, error=ERROR))
        assert (world.view(run.id).error, world.view(run.id).attempts) == (ERROR, 1)
        world.wake_due(after(9))
        world.commit(worker, end(world.claimed_again(worker, run, after(9)), attempts=1))
        assert world.view(run.id).error is None

    def test_what_was_kept_is_found_by_token(self, world: World) -> None:
        """After an unknown commit each checkpoint is told apart: there, or not."""
        worker = world.worker()
        done, parked, back, open_ = (world.claimed(worker) for _ in range(4))
        kept: list[Checkpoint] = [step(done), failure(open_, "copy"), end(done, output='"x"'), park(parked, after(60)), end(back, RunStatus.PENDING)]
        lost: list[Checkpoint] = [step(open_), failure(open_, "copy", 2), end(open_)]
        assert world.commit(worker, *kept) == []
        assert world.find_kept(*kept, *lost) == kept

    def test_what_another_claim_kept_is_not_found(self, world: World) -> None:
        """A record of a later claim is not mistaken for one's own."""
        worker = world.worker()
        old = world.claimed(worker)
        world.commit(worker, end(old, RunStatus.PENDING))
        new = world.claimed_again(worker, old, START)
        world.commit(worker, step(new), end(new))
        assert world.find_kept(step(old), end(old)) == []

    def test_a_park_is_found_after_its_timer(self, world: World) -> None:
        """A parked run that came due since counts as parked."""
        worker = world.worker()
        run = world.claimed(worker)
        parked = park(run, after(60))
        world.commit(worker, parked)
        world.wake_due(after(60))
        assert world.find_kept(parked) == [parked]

    def test_activity_is_one_row_for_each_step(self, world: World) -> None:
        """Reports replace each other, and the record of a step replaces them."""
        worker = world.worker()
        run = world.claimed(worker)
        for done in range(5):
            world.report(report(run, done=done))
        [view] = world.steps(run.id)
        assert (view.status, view.progress and view.progress.done) == ("in_progress", 4)
        world.commit(worker, step(run))
        assert [view.status for view in world.steps(run.id)] == ["done"]
        assert world.context(run).history.progress == ()

    def test_a_stale_report_is_dropped(self, world: World) -> None:
        """Of a hold that is not current nothing is written, and that is no error."""
        worker = world.worker()
        old = world.claimed(worker)
        world.commit(worker, end(old, RunStatus.PENDING))
        world.claimed_again(worker, old, START)
        world.report(report(old))
        assert world.steps(old.id) == []

    def test_a_failed_record_can_end_a_run(self, world: World) -> None:
        """The failing step and the failed run are one group."""
        worker = world.worker()
        run = world.claimed(worker)
        key = StepKey((), "locate", 0)
        assert world.commit(worker, step_of(run, failed_record()), end(run, RunStatus.FAILED, error=ERROR, failed_key=key)) == []
        assert [(view.key, view.status, view.error) for view in world.steps(run.id)] == [("locate", "failed", ERROR)]
