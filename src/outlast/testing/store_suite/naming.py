"""What a store promises to runs that wait by name: no signal passes them by, whatever comes first, and what they ask ends with them."""

import dataclasses
from dataclasses import replace
from datetime import timedelta

import pytest

from outlast import ids
from outlast.decision import DecisionState, decision_topic
from outlast.decisions.store import NewAnswer, NewDecision
from outlast.native.history import RecordKind, Wait
from outlast.native.mailbox import Delivered
from outlast.native.store import ClaimedRun, Recovery
from outlast.run import RunStatus
from outlast.step_key import StepKey

from .world import ERROR, START, World, WorldSuite, after, end, failed_record, named, park, record, sleep, step_of

NOTHING = Delivered(frozenset(), 0, False)
TOPIC = "approval:7"


def unheard(waits: tuple[Wait, ...]) -> tuple[Wait, ...]:
    """Return waits as they were registered: a delivery notes in them what it has woken them for."""
    return tuple(replace(wait, after=0) for wait in waits)


class NamingSuite(WorldSuite):
    """Signals sent, delivered, and waited for."""

    def parked(self, world: World, worker: int, *topics: str) -> ClaimedRun:
        """Return a run that is parked until one of these topics is signaled, its first call on the first and so on."""
        run = world.claimed(worker)
        waits = [named(topic, f"call_{place}") for place, topic in enumerate(topics)]
        assert world.commit(worker, park(run, None, *waits)) == []
        assert world.status(run.id) is RunStatus.WAITING
        return run

    def test_a_signal_wakes_who_waits_for_it(self, world: World) -> None:
        """Sent after the park and delivered, it makes the run claimable at once; who waits for something else sleeps on."""
        worker = world.worker()
        run, other = self.parked(world, worker, TOPIC), self.parked(world, worker, "another")
        world.send(TOPIC)
        assert world.look().has_undelivered
        assert world.status(run.id) is RunStatus.WAITING
        assert world.deliver(now=after(3)) == Delivered(frozenset({world.lane()}), 1, False)
        assert (world.status(run.id), world.view(run.id).due_at) == (RunStatus.PENDING, after(3))
        assert world.status(other.id) is RunStatus.WAITING
        assert not world.look().has_undelivered
        assert world.deliver() == NOTHING
        again = world.claimed_again(worker, run, after(3))
        assert unheard(world.context(again, after(3)).history.waits) == (named(TOPIC, "call_0"),)

    @pytest.mark.parametrize("is_delivered", [False, True])
    def test_who_parks_on_a_signal_that_is_there_goes_on_at_once(self, world: World, is_delivered: bool) -> None:
        """A signal before the wait, delivered already or not, keeps the run from staying parked; its waits are registered all the same."""
        worker = world.worker()
        world.send(TOPIC)
        if is_delivered:
            assert world.deliver() == Delivered(frozenset(), 1, False)
        run = world.claimed(worker)
        parked = park(run, after(99), named(TOPIC), sleep(due_at=after(99)))
        assert world.commit(worker, parked, now=after(2)) == []
        assert (world.status(run.id), world.view(run.id).due_at) == (RunStatus.PENDING, after(2))
        assert world.find_kept(parked) == [parked]
        again = world.claimed_again(worker, run, after(2))
        assert set(world.context(again).history.waits) == {named(TOPIC), sleep(due_at=after(99))}

    def test_the_other_runs_of_a_group_stay_parked(self, world: World) -> None:
        """Of two that park in one group, one has news and the other has not, and a third sleeps."""
        worker = world.worker()
        world.send(TOPIC)
        first, second, third = (world.claimed(worker) for _ in range(3))
        world.commit(worker, park(first, None, named(TOPIC)), park(second, None, named("another")), park(third, after(60), sleep()))
        assert [world.status(run.id) for run in (first, second, third)] == [RunStatus.PENDING, RunStatus.WAITING, RunStatus.WAITING]

    def test_everybody_who_waits_is_woken(self, world: World) -> None:
        """One signal, two waiters: both go on."""
        worker = world.worker()
        runs = [self.parked(world, worker, TOPIC) for _ in range(2)]
        world.send(TOPIC)
        assert world.deliver() == Delivered(frozenset({world.lane()}), 1, False)
        assert {world.status(run.id) for run in runs} == {RunStatus.PENDING}

    def test_any_of_several_topics_wakes(self, world: World) -> None:
        """A run with two open waits goes on at the first signal, and the signal on the other finds nobody."""
        worker = world.worker()
        run = self.parked(world, worker, TOPIC, "another")
        world.send("another")
        assert world.deliver().count == 1
        assert world.status(run.id) is RunStatus.PENDING
        world.send(TOPIC)
        assert world.deliver() == Delivered(frozenset(), 1, False)

    def test_what_comes_first_wakes(self, world: World) -> None:
        """A wait with an instant and a name ends at either."""
        worker = world.worker()
        early, late = world.claimed(worker), world.claimed(worker)
        world.commit(worker, park(early, after(60), named("early", due_at=after(60))), park(late, after(60), named("late", due_at=after(60))))
        world.send("early")
        world.deliver(now=after(5))
        assert (world.view(early.id).status, world.view(early.id).due_at) == (RunStatus.PENDING, after(5))
        assert world.wake_due(after(61)) == {world.lane()}
        assert (world.view(late.id).status, world.view(late.id).due_at) == (RunStatus.PENDING, after(60))

    def test_a_signal_that_is_sent_twice_is_one(self, world: World) -> None:
        """A send that is tried again under its id adds nothing."""
        signal = world.send(TOPIC, payload='{"a":1}')
        world.send("elsewhere", id=signal.id)
        assert world.deliver() == Delivered(frozenset(), 1, False)

    def test_runs_are_woken_page_by_page(self, world: World) -> None:
        """With more waiters than a page has, the signal is delivered when the last of them is woken, and each is woken once."""
        worker = world.worker()
        runs = [self.parked(world, worker, TOPIC) for _ in range(5)]
        world.send(TOPIC)
        lanes = frozenset({world.lane()})
        assert [world.deliver(limit=2) for _ in range(4)] == [Delivered(lanes, 0, True), Delivered(lanes, 0, True), Delivered(lanes, 1, False), NOTHING]
        assert {world.status(run.id) for run in runs} == {RunStatus.PENDING}

    def test_signals_are_delivered_page_by_page(self, world: World) -> None:
        """More signals than a page has take several passes, whoever waits for them."""
        worker = world.worker()
        run = self.parked(world, worker, "topic 4")
        for number in range(5):
            world.send(f"topic {number}")
        assert [world.deliver(limit=2) for _ in range(2)] == [Delivered(frozenset(), 2, True)] * 2
        assert world.deliver(limit=2) == Delivered(frozenset({world.lane()}), 1, False)
        assert world.status(run.id) is RunStatus.PENDING

    def test_topics_are_told_apart_to_the_letter(self, world: World) -> None:
        """Quotes, commas, braces, capitals and accents are part of a name."""
        worker = world.worker()
        topics = ['a"b', "a,b", "{a}", "A", "a", "ä", "$decision:1"]
        runs = {topic: self.parked(world, worker, topic) for topic in topics}
        for topic in topics:
            world.send(topic)
            assert world.deliver().count == 1
            woken = {topic for topic, run in runs.items() if world.status(run.id) is RunStatus.PENDING}
            assert woken == {topic}
            world.claimed_again(worker, runs[topic], START)

    def test_a_run_that_backs_off_is_not_woken_by_name(self, world: World) -> None:
        """What it waited for when its body failed, or its worker was lost, is no reason to begin again before its time."""
        worker = world.worker()
        failed, lost = self.parked(world, worker, "failed"), self.parked(world, worker, "lost")
        world.send("failed")
        world.send("lost")
        world.deliver()
        failed, lost = world.claimed_again(worker, failed, START), world.claimed_again(worker, lost, START)
        world.commit(worker, park(failed, after(60), attempts=1, error=ERROR))
        world.end_worker(worker)
        with world.writing() as tx:
            world.store.list_orphans(tx, 10, START)
            world.store.recover_runs(tx, [Recovery(lost.hold, RunStatus.WAITING, timedelta(seconds=60), 1, 2, 0, 0, None)], START)
        world.send("failed")
        world.send("lost")
        assert world.deliver() == Delivered(frozenset(), 2, False)
        assert {world.status(failed.id), world.status(lost.id)} == {RunStatus.WAITING}

    def test_a_wait_that_changes_its_name_is_the_new_one(self, world: World) -> None:
        """A call that is asked about anew waits for the new answer, not for the old one; with the same name it keeps its instant."""
        worker = world.worker()
        run = world.claimed(worker)
        world.commit(worker, park(run, after(10), named("first", due_at=after(10))))
        world.wake_due(after(10))
        run = world.claimed_again(worker, run, after(10))
        world.commit(worker, park(run, after(30), named("first", due_at=after(30))), now=after(10))
        world.wake_due(after(30))
        run = world.claimed_again(worker, run, after(30))
        assert world.context(run).history.waits == (named("first", due_at=after(10)),)
        world.commit(worker, park(run, None, named("second")), now=after(30))
        world.send("first")
        assert world.deliver().lanes == frozenset()
        world.send("second")
        assert world.deliver(now=after(31)).lanes == frozenset({world.lane()})
        assert unheard(world.context(world.claimed_again(worker, run, after(31))).history.waits) == (named("second"),)

    def test_a_canceled_run_is_woken_by_its_cancel(self, world: World) -> None:
        """A run that waits by name becomes claimable when it is canceled, and a signal after that changes nothing."""
        worker = world.worker()
        run = self.parked(world, worker, TOPIC)
        world.cancel(run.id, now=after(1))
        assert (world.status(run.id), world.view(run.id).due_at) == (RunStatus.PENDING, after(1))
        world.send(TOPIC)
        assert world.deliver(now=after(2)) == Delivered(frozenset(), 1, False)
        assert world.view(run.id).due_at == after(1)

    def test_the_record_takes_its_wait_and_its_mail(self, world: World) -> None:
        """Once the call has its record, a later park of another call on the same name does not find the signal that was for it."""
        worker = world.worker()
        run = self.parked(world, worker, TOPIC)
        world.send(TOPIC, run.id)
        world.deliver()
        run = world.claimed_again(worker, run, START)
        world.commit(worker, step_of(run, record("call_0", kind=RecordKind.EFFECT)))
        assert world.context(run).history.waits == ()
        world.commit(worker, park(run, None, named(TOPIC, "call_1")))
        assert world.status(run.id) is RunStatus.WAITING


class QuestionsSuite(WorldSuite):
    """What becomes of a run's questions and its mail when it is over, and how they explain it."""

    def asking(self, world: World, worker: int) -> tuple[ClaimedRun, str]:
        """Return a run that is parked until somebody answers, and the id of what it asks."""
        run, decision_id = world.claimed(worker), ids.run_id()
        asked = NewDecision(decision_id, run.id, 0, "pay", "Was pay done?", "{}", "digest", ("done", "again"))
        with world.writing() as tx:
            world.backend.decisions.open_decision(tx, asked, START)
        world.commit(worker, park(run, None, named(decision_topic(decision_id))))
        return run, decision_id

    def state(self, world: World, decision_id: str) -> DecisionState:
        with world.database.reading() as tx:
            found = world.backend.decisions.find_decision(tx, decision_id)
        assert found is not None
        return found.state

    def test_why_names_the_question(self, world: World) -> None:
        """A run that waits for an answer says to what, and with which command it is given."""
        run, decision_id = self.asking(world, world.worker())
        view = world.view(run.id)
        assert view.why == f"waits for an answer to: Was pay done? (decision {decision_id}): outlast decide {decision_id} done|again"
        assert view.current_step == "pay"

    def test_why_names_the_topic(self, world: World) -> None:
        """A run that waits by name for anything else says for what, and until when if that ends."""
        worker = world.worker()
        run, until = world.claimed(worker), world.claimed(worker)
        world.commit(worker, park(run, None, named("approval:7")), park(until, after(60), named("approval:8", due_at=after(60))))
        assert world.view(run.id).why == "waits for topic approval:7"
        assert world.view(until.id).why == "waits for topic approval:8, until 2026-03-01T12:01:00+00:00"
        assert [(one.key, one.status, one.topic) for one in world.steps(run.id)] == [("pay", "waiting", "approval:7")]

    def test_why_names_the_condition(self, world: World) -> None:
        """A run that waits until something is so says when it looks again, what hurries that, and until when it waits at all."""
        worker = world.worker()
        bare, hurried, bounded = (world.claimed(worker) for _ in range(3))
        wait = dataclasses.replace(named("approval:7", "is_granted"), kind=RecordKind.UNTIL)
        world.commit(
            worker,
            park(bare, after(60), dataclasses.replace(wait, topic=None)),
            park(hurried, after(60), wait),
            park(bounded, after(60), dataclasses.replace(wait, topic=None, due_at=after(90))),
        )
        look = "looks again at 2026-03-01T12:01:00+00:00"
        assert world.view(bare.id).why == f"waits for is_granted to be so: {look}"
        assert world.view(bare.id).current_step == "is_granted"
        assert world.view(hurried.id).why == f"waits for is_granted to be so: {look.replace('again', 'again when topic approval:7 is signaled, or')}"
        assert world.view(bounded.id).why == f"waits for is_granted to be so: {look}, until 2026-03-01T12:01:30+00:00"

    @pytest.mark.parametrize("status", [RunStatus.FAILED, RunStatus.CANCELED])
    def test_what_a_run_asked_is_withdrawn_with_its_end(self, world: World, status: RunStatus) -> None:
        """When its body ended without success its question is withdrawn, and the answer that is on its way wakes nobody."""
        worker = world.worker()
        run, decision_id = self.asking(world, worker)
        world.send(decision_topic(decision_id), run.id)
        world.deliver()
        run = world.claimed_again(worker, run, START)
        world.commit(worker, end(run, status, error=ERROR), now=after(5))
        assert self.state(world, decision_id) is DecisionState.WITHDRAWN
        world.retry(run.id, after(6))
        run = world.claimed_again(worker, run, after(6))
        world.commit(worker, park(run, None, named(decision_topic(decision_id))), now=after(7))
        assert world.status(run.id) is RunStatus.WAITING

    def test_a_refused_end_withdraws_nothing(self, world: World) -> None:
        """An end under a token that is not current leaves the question open."""
        worker = world.worker()
        run, decision_id = self.asking(world, worker)
        stale = end(run, RunStatus.FAILED, error=ERROR)
        assert world.commit(worker, stale) == [stale]
        assert self.state(world, decision_id) is DecisionState.OPEN

    def test_what_a_run_asked_is_withdrawn_when_it_is_dead(self, world: World) -> None:
        """A third strike ends its questions too."""
        worker = world.worker()
        run, decision_id = self.asking(world, worker)
        world.send(decision_topic(decision_id), run.id)
        world.deliver()
        run = world.claimed_again(worker, run, START)
        world.end_worker(worker)
        with world.writing() as tx:
            world.store.list_orphans(tx, 10, START)
            world.store.recover_runs(tx, [Recovery(run.hold, RunStatus.DEAD, timedelta(0), 1, 5, 3, 0, ERROR)], START)
        assert self.state(world, decision_id) is DecisionState.WITHDRAWN

    def test_what_never_ran_asks_nothing_after_its_cancel(self, world: World) -> None:
        """A cancel on the spot, and a deadline that passed before the run began, withdraw what somebody has asked on its behalf."""
        canceled, overdue = world.enqueue(), world.enqueue(deadline_at=after(5))
        asked = [NewDecision(ids.run_id(), run_id, 0, "pay", "Was pay done?", "{}", "digest", ("done",)) for run_id in (canceled, overdue)]
        with world.writing() as tx:
            for one in asked:
                world.backend.decisions.open_decision(tx, one, START)
        world.cancel(canceled)
        world.end_overdue(after(6))
        assert [self.state(world, one.id) for one in asked] == [DecisionState.WITHDRAWN] * 2

    def test_a_discard_withdraws_what_is_open(self, world: World) -> None:
        """A question about a failed run, which it did not ask itself, goes when the run is put aside."""
        worker = world.worker()
        run = world.claimed(worker)
        world.commit(worker, step_of(run, failed_record("pay")), end(run, RunStatus.FAILED, error=ERROR, failed_key=StepKey((), "pay", 0)))
        decision_id = ids.run_id()
        with world.writing() as tx:
            world.backend.decisions.open_decision(tx, NewDecision(decision_id, run.id, 0, "pay", "?", "{}", "digest", ("done",)), START)
        world.discard(run.id)
        assert self.state(world, decision_id) is DecisionState.WITHDRAWN

    def test_success_leaves_answers_as_they_are(self, world: World) -> None:
        """A run that has used its answer keeps it, for whoever reads what happened, until the run is pruned with all that it asked."""
        worker = world.worker()
        run, decision_id = self.asking(world, worker)
        with world.writing() as tx:
            assert world.backend.decisions.answer_decision(tx, decision_id, "digest", NewAnswer("again", "ann"), START)
            assert world.backend.decisions.close_decision(tx, decision_id, DecisionState.CONSUMED, START)
        signal = world.send(decision_topic(decision_id), run.id)
        world.deliver()
        run = world.claimed_again(worker, run, START)
        world.commit(worker, end(run))
        assert self.state(world, decision_id) is DecisionState.CONSUMED
        with world.writing() as tx:
            assert world.store.delete_runs(tx, [run.id], timedelta(0), dead_letters=False, now=after(9)) == 1
        with world.database.reading() as tx:
            assert world.backend.decisions.find_decision(tx, decision_id) is None
        world.send("elsewhere", id=signal.id)
        assert world.deliver().count == 1, "the signal of the pruned run is still there"

    def test_the_state_of_a_run_is_read_under_its_lock(self, world: World) -> None:
        """What a run is, before something is decided about it; of what is no run nothing."""
        run_id = world.enqueue()
        with world.writing() as tx:
            assert (world.store.lock_run(tx, run_id), world.store.lock_run(tx, ids.run_id()), world.store.lock_run(tx, "nonsense")) == (
                RunStatus.PENDING,
                None,
                None,
            )
