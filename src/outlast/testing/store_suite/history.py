"""What a store promises about the history that a claim reads."""

from outlast.native.history import EMPTY, LastProgress, Outcome, RecordKind, Wait
from outlast.native.store import Hold
from outlast.run import RunStatus
from outlast.step_key import StepKey

from .world import World, WorldSuite, after, end, failed_record, failure, park, record, report, sleep, step, step_of


class HistorySuite(WorldSuite):
    """Contexts of claimed runs."""

    def test_a_first_claim_has_an_empty_context(self, world: World) -> None:
        """Nothing is remembered of a run that never ran."""
        run = world.claimed(world.worker())
        context = world.context(run)
        assert context.history == EMPTY
        assert (context.cancel_reason, context.is_past_deadline) == (None, False)

    def test_a_stale_hold_has_no_context(self, world: World) -> None:
        """A hold that is not current is absent from the answer, and does not keep others from theirs."""
        worker = world.worker()
        run, parked, ended = world.claimed(worker), world.claimed(worker), world.claimed(worker)
        world.commit(worker, park(parked, after(60)), end(ended))
        stale = Hold(run.id, run.token - 1)
        assert set(world.contexts(run.hold, stale, parked.hold, ended.hold)) == {run.hold}
        assert world.contexts() == {}

    def test_records_come_back_as_they_were_by_seq(self, world: World) -> None:
        """Every field of a record survives, and the order is that of `seq`."""
        worker = world.worker()
        run = world.claimed(worker)
        records = [
            record("charge", 1, key=StepKey((0, 2), "charge", 3), result='{"n": 1e22}'),
            failed_record("locate", 0),
            record("sleep", 2, kind=RecordKind.SLEEP, outcome=Outcome.GIVEN_UP, result=None, digest="", started_at=None),
        ]
        world.commit(worker, *(step_of(run, one) for one in records))
        history = world.context(run).history
        assert list(history.records) == sorted(records, key=lambda one: one.seq)
        assert history.record_bytes > 0

    def test_histories_are_not_mixed_up(self, world: World) -> None:
        """Each of several runs gets its own records."""
        worker = world.worker()
        runs = [world.claimed(worker) for _ in range(3)]
        world.commit(worker, *(step(run, f"step{number}") for number, run in enumerate(runs)))
        contexts = world.contexts(*(run.hold for run in runs))
        assert [contexts[run.hold].history.records[0].key.name for run in runs] == ["step0", "step1", "step2"]

    def test_failures_waits_and_progress_come_back(self, world: World) -> None:
        """A claim reads failed attempts, open waits, and what the last attempt of an open step reported."""
        worker = world.worker()
        run = world.claimed(worker)
        waits = (sleep(), Wait(StepKey((1,), "timeout", 0), RecordKind.TIMEOUT, after(90)))
        failed = failure(run, "copy", retry_at=after(60))
        world.report(report(run, "copy", 3, 10, note="third"))
        world.commit(worker, failed, park(run, after(60), *waits))
        world.wake_due(after(60))
        history = world.context(world.claimed_again(worker, run, after(60))).history
        assert history.failures == (failed.failure,)
        assert set(history.waits) == set(waits)
        assert history.progress == (LastProgress(StepKey((), "copy", 0), 3, 10, "third"),)

    def test_an_attempt_without_a_report_leaves_the_last_progress(self, world: World) -> None:
        """What an earlier attempt reported is kept until a later one reports."""
        run = world.claimed(world.worker())
        world.report(report(run, done=4, note="so far"))
        world.report(report(run, done=None, total=None, attempt=2))
        assert world.context(run).history.progress == (LastProgress(StepKey((), "locate", 0), 4, 10, "so far"),)

    def test_a_step_that_reported_nothing_has_no_progress(self, world: World) -> None:
        """A long step without a report is no progress to carry on from."""
        run = world.claimed(world.worker())
        world.report(report(run, done=None, total=None))
        assert world.context(run).history.progress == ()

    def test_a_cancel_is_in_the_context(self, world: World) -> None:
        """Whoever claims a canceled run learns of it, with the reason."""
        worker = world.worker()
        run = world.claimed(worker)
        world.cancel(run.id, "wrong file")
        assert world.context(run).cancel_reason == "wrong file"

    def test_a_deadline_is_in_the_context_once_it_has_passed(self, world: World) -> None:
        """A claim learns whether the deadline has passed."""
        run = world.claimed(world.worker(), deadline_at=after(60))
        assert not world.context(run, after(59)).is_past_deadline
        assert world.context(run, after(60)).is_past_deadline

    def test_a_retired_record_is_a_failure_and_leaves_its_seq(self, world: World) -> None:
        """A task's own retry takes the failed record out, keeps the failures as retired, and remembers where the history was cut."""
        worker = world.worker()
        run = world.claimed(worker)
        world.commit(worker, failure(run, "copy", 1), failure(run, "copy", 2), step(run, "locate", 0))
        world.commit(worker, step_of(run, failed_record("copy", 1)), step(run, "notify", 2))
        retire = StepKey((), "copy", 0)
        world.commit(worker, end(run, RunStatus.WAITING, due_at=after(9), attempts=1, retire=retire))
        world.wake_due(after(9))
        again = world.claimed_again(worker, run, after(9))
        history = world.context(again).history
        assert [one.key.name for one in history.records] == ["locate", "notify"]
        assert [(one.attempt, one.is_retired, one.retry_at) for one in history.failures] == [(1, True, None), (2, True, None), (3, True, None)]
        assert (history.retired_seq, again.attempts) == (1, 1)

    def test_the_lowest_retired_seq_is_kept(self, world: World) -> None:
        """After several retirements the history is cut at the earliest."""
        worker = world.worker()
        run = world.claimed(worker)
        world.commit(worker, step_of(run, failed_record("copy", 1)), step_of(run, failed_record("send", 2)))
        for name in ("copy", "send"):
            world.commit(worker, end(run, RunStatus.PENDING, retire=StepKey((), name, 0)))
            run = world.claimed_again(worker, run, after(1))
        assert world.context(run).history.retired_seq == 1

    def test_a_result_is_never_retired(self, world: World) -> None:
        """A finished step stays finished, whoever asks to retire it."""
        worker = world.worker()
        run = world.claimed(worker)
        world.commit(worker, step(run), end(run, RunStatus.PENDING, retire=StepKey((), "locate", 0)))
        history = world.context(world.claimed_again(worker, run, after(1))).history
        assert [one.outcome for one in history.records] == [Outcome.RESULT]
        assert (history.failures, history.retired_seq) == ((), None)
