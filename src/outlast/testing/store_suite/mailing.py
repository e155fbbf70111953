"""What a store promises about signals that runs are given: in one order, each once for a run, and none slept through."""

import dataclasses
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from outlast.native.history import Outcome, RecordKind, Wait
from outlast.native.mailbox import Delivered, Mail, NewSignal
from outlast.native.store import ClaimedRun, Hold, StepCheckpoint
from outlast.run import RunStatus
from outlast.step_key import StepKey

from .world import START, World, WorldSuite, after, end, failure, named, park, record

TOPIC = "news"
HOUR = timedelta(hours=1)


def send(world: World, topic: str = TOPIC, now: datetime = START, **changes: Any) -> NewSignal:
    """Send an ordinary signal, which lives for an hour."""
    return world.send(topic, now=now, **{"ttl": HOUR, **changes})


def mail(world: World, run: ClaimedRun, topic: str = TOPIC, seen: int = 0, now: datetime = START) -> Mail:
    with world.database.reading() as tx:
        return world.store.find_mail(tx, run.id, topic, seen, now)


def given(world: World, run: ClaimedRun, seen: int = 0) -> tuple[str, int]:
    """Return id and number of the next signal on the topic."""
    found = mail(world, run, seen=seen).signal
    assert found is not None
    return found.id, found.number


def hearing(run: ClaimedRun, number: int, name: str = "wait", topic: str = TOPIC) -> StepCheckpoint:
    """Return the record of a wait that was given a signal."""
    return StepCheckpoint(run.hold, run.generation, record(name, kind=RecordKind.WAIT), False, (topic, number))


def waiting(topic: str = TOPIC, seen: int = 0, **changes: Any) -> Wait:
    return dataclasses.replace(named(topic, "wait"), kind=RecordKind.WAIT, after=seen, **changes)


def count(world: World, topic: str = TOPIC, limit: int = 1_000) -> int:
    with world.database.reading() as tx:
        return world.store.count_waiting(tx, topic, limit)


class MailingSuite(WorldSuite):
    """Signals that runs are given."""

    # --- order and cursors ------------------------------------------------------------------------------------------------
    def test_signals_are_given_in_the_order_of_their_sends(self, world: World) -> None:
        """Each run is given all of them, one after the other, whatever moment they were delivered in."""
        worker = world.worker()
        one, other = world.claimed(worker), world.claimed(worker)
        sent = [send(world).id for _ in range(3)]
        world.deliver(limit=2)
        world.deliver()
        sent.append(send(world).id)
        world.deliver()
        for run in (one, other):
            heard: list[str] = []
            for place in range(4):
                found, number = given(world, run)
                heard.append(found)
                assert world.commit(worker, hearing(run, number, f"wait_{place}")) == []
            assert heard == sent
            assert mail(world, run).signal is None

    def test_a_signal_comes_as_it_was_sent(self, world: World) -> None:
        """Payload and instant of the send, not of the delivery; what has no payload is null."""
        run = world.claimed(world.worker())
        first, second = send(world, payload='{"a": [1, "ä"]}', now=after(1)), send(world, payload=None, now=after(2))
        world.deliver(now=after(9))
        found = mail(world, run, now=after(9)).signal
        assert found is not None
        assert (found.id, found.payload, found.sent_at) == (first.id, '{"a": [1, "ä"]}', after(1))
        last = mail(world, run, seen=found.number, now=after(9)).signal
        assert last is not None
        assert (last.id, last.payload) == (second.id, "null")

    def test_what_was_given_in_memory_is_passed_over(self, world: World) -> None:
        """A later branch of an execution is given the next one, before the record of the first is there."""
        run = world.claimed(world.worker())
        first, second = send(world), send(world)
        world.deliver()
        found, number = given(world, run)
        assert found == first.id
        assert given(world, run, seen=number)[0] == second.id

    def test_what_is_not_delivered_is_told(self, world: World) -> None:
        """A signal without a number is nobody's yet, and is not passed over in silence; the newest number is told with it."""
        run = world.claimed(world.worker())
        assert mail(world, run) == Mail(None, 0, False)
        send(world)
        assert mail(world, run) == Mail(None, 0, True)
        world.deliver()
        _, number = given(world, run)
        assert mail(world, run, seen=number) == Mail(None, number, False)
        assert mail(world, run, "other") == Mail(None, 0, False)

    def test_the_cursor_moves_with_the_record_only(self, world: World) -> None:
        """A record that is refused uses nothing up: the next holder of the run is given the signal."""
        worker = world.worker()
        stale = world.claimed(worker)
        send(world)
        world.deliver()
        found, number = given(world, stale)
        world.commit(worker, park(stale, after(1)))
        world.wake_due(after(1))
        run = world.claimed_again(worker, stale, after(1))
        late = hearing(stale, number)
        assert world.commit(worker, late) == [late]
        assert given(world, run) == (found, number)
        assert world.commit(worker, hearing(run, number)) == []
        assert mail(world, run).signal is None

    def test_records_of_one_group_move_the_cursor_to_the_last(self, world: World) -> None:
        """Two branches hear two signals in one flush, in any order, on one topic; another topic has a cursor of its own."""
        worker = world.worker()
        run, other = world.claimed(worker), world.claimed(worker)
        for _ in range(3):
            send(world)
        send(world, "else")
        world.deliver()
        _, first = given(world, run)
        _, second = given(world, run, first)
        third, number = given(world, run, second)
        assert world.commit(worker, hearing(run, second, "wait_b"), hearing(run, first, "wait_a"), hearing(other, second, "wait")) == []
        assert given(world, run) == (third, number)
        assert given(world, other) == (third, number)
        assert mail(world, run, "else").signal is not None
        assert world.commit(worker, hearing(run, first, "wait_c")) == [], "a cursor never goes back"
        assert given(world, run) == (third, number)

    # --- waking -----------------------------------------------------------------------------------------------------------
    def test_a_run_that_has_seen_what_is_there_stays_parked(self, world: World) -> None:
        """A signal that it has looked at, and which stays for others, neither holds it up nor wakes it at each pass; a newer one does."""
        worker = world.worker()
        run, blind = world.claimed(worker), world.claimed(worker)
        send(world)
        world.deliver()
        newest = mail(world, run).newest
        world.commit(worker, park(run, None, waiting(seen=newest)), park(blind, None, waiting()))
        assert [world.status(one.id) for one in (run, blind)] == [RunStatus.WAITING, RunStatus.PENDING]
        assert world.deliver() == Delivered(frozenset(), 0, False)
        send(world)
        assert world.deliver(now=after(1)) == Delivered(frozenset({world.lane()}), 1, False)
        assert world.status(run.id) is RunStatus.PENDING

    def test_a_signal_between_the_look_and_the_park_is_not_slept_through(self, world: World) -> None:
        """Delivered meanwhile or not, it is newer than what the run has seen."""
        worker = world.worker()
        send(world)
        world.deliver()
        for is_delivered in (False, True):
            run = world.claimed(worker)
            newest = mail(world, run).newest
            send(world)
            if is_delivered:
                world.deliver()
            world.commit(worker, park(run, None, waiting(seen=newest)))
            assert world.status(run.id) is RunStatus.PENDING

    def test_a_wait_that_parks_again_takes_note_of_what_it_has_seen(self, world: World) -> None:
        """It keeps its instant and takes the new number, so that it does not run for ever after one signal."""
        worker = world.worker()
        run = world.claimed(worker)
        world.commit(worker, park(run, after(50), waiting(due_at=after(50))))
        send(world)
        world.deliver(now=after(1))
        run = world.claimed_again(worker, run, after(1))
        newest = mail(world, run).newest
        world.commit(worker, park(run, after(60), waiting(seen=newest, due_at=after(60))), now=after(2))
        assert world.status(run.id) is RunStatus.WAITING
        world.wake_due(after(60))
        run = world.claimed_again(worker, run, after(60))
        assert world.context(run).history.waits == (waiting(seen=newest, due_at=after(50)),)

    def test_old_and_new_signals_of_a_page_are_told_apart(self, world: World) -> None:
        """While a signal is undelivered because of one waiter, another one that has seen it sleeps on, and the pass still ends."""
        worker = world.worker()
        seen, *blind = (world.claimed(worker) for _ in range(3))
        world.commit(worker, *(park(run, None, waiting()) for run in blind))
        send(world)
        assert world.deliver(limit=1) == Delivered(frozenset({world.lane()}), 0, True)  # it has a number, and one of its two waiters is woken
        newest = mail(world, seen).newest
        assert newest
        world.commit(worker, park(seen, None, waiting(seen=newest)))
        assert world.deliver().count == 1
        assert [world.status(run.id) for run in (seen, *blind)] == [RunStatus.WAITING, RunStatus.PENDING, RunStatus.PENDING]
        assert not world.look().has_undelivered

    @pytest.mark.parametrize("kind", [RecordKind.WAIT, RecordKind.UNTIL, RecordKind.ASK, RecordKind.EFFECT])
    @pytest.mark.parametrize("outcome", [Outcome.RESULT, Outcome.GIVEN_UP])
    def test_a_record_of_every_kind_takes_its_wait(self, world: World, kind: RecordKind, outcome: Outcome) -> None:
        """When the call has ended, or was withdrawn, nothing is left that a signal could wake."""
        worker = world.worker()
        run = world.claimed(worker)
        world.commit(worker, park(run, after(1), dataclasses.replace(waiting(), kind=kind)))
        world.wake_due(after(1))
        run = world.claimed_again(worker, run, after(1))
        (wait,) = world.context(run).history.waits
        assert (wait.kind, wait.topic) == (kind, TOPIC)
        world.commit(worker, StepCheckpoint(run.hold, run.generation, record("wait", kind=kind, outcome=outcome)))
        assert world.context(run).history.waits == ()
        assert [(record.kind, record.outcome) for record in world.context(run).history.records] == [(kind, outcome)]

    def test_a_thousand_are_woken_by_pages(self, world: World) -> None:
        """One signal and a thousand waiters: each pass wakes a page, none is left, and none of another topic is touched."""
        worker, lane = world.worker(), world.lane()
        run_ids = [world.enqueue(lane=lane) for _ in range(1_001)]
        runs = world.claim(worker, *run_ids, limit=2_000)
        world.commit(worker, *(park(run, None, waiting("other" if run is runs[0] else TOPIC)) for run in runs))
        assert (count(world), count(world, limit=100), count(world, "other"), count(world, "nobody's")) == (1_000, 100, 1, 0)
        send(world)
        passes = [world.deliver(limit=400) for _ in range(3)]
        assert [(one.count, one.has_more) for one in passes] == [(0, True), (0, True), (1, False)]
        assert (count(world), count(world, "other")) == (0, 1)
        assert world.view(runs[0].id).status is RunStatus.WAITING
        assert {candidate.run_id for page in range(1) for candidate in _claimable(world, lane)} == {run.id for run in runs[1:]}

    def test_runs_that_wait_in_two_branches_are_woken_by_pages(self, world: World) -> None:
        """A page is told to be full though each of its runs has two waits, and what it has woken has taken note."""
        worker, lane = world.worker(), world.lane()
        runs = world.claim(worker, *(world.enqueue(lane=lane) for _ in range(9)), limit=9)
        branches = (waiting(), dataclasses.replace(waiting(), key=StepKey((), "wait", 1)))
        world.commit(worker, *(park(run, None, *branches) for run in runs))
        send(world)
        passes = [world.deliver(limit=4)]
        while passes[-1].has_more:
            passes.append(world.deliver(limit=4))
        assert sum(one.count for one in passes) == 1
        assert {world.status(run.id) for run in runs} == {RunStatus.PENDING}
        (again,) = world.claim(worker, runs[0].id, now=after(1))
        assert max(wait.after for wait in world.context(again).history.waits) == mail(world, again).newest

    # --- what hangs on a run --------------------------------------------------------------------------------------------------
    def test_cursors_go_with_their_run(self, world: World) -> None:
        """They stay for a retry, and are pruned with the run; the signals stay for others."""
        worker = world.worker()
        run = world.claimed(worker)
        send(world)
        world.deliver()
        _, number = given(world, run)
        world.commit(worker, hearing(run, number), end(run))
        assert mail(world, run).signal is None
        with world.writing() as tx:
            assert world.store.delete_runs(tx, [run.id], timedelta(0), dead_letters=False, now=after(9)) == 1
        assert given(world, run)[1] == number, "the cursor of the pruned run is still there"

    def test_failures_of_one_call_are_forgotten_under_the_current_token(self, world: World) -> None:
        """So that only failures in a row count; those of other calls stay, and a stale holder takes nothing away."""
        worker = world.worker()
        run = world.claimed(worker)
        world.commit(worker, failure(run, "look", 1), failure(run, "look", 2), failure(run, "other", 1))
        key = StepKey((), "look", 0)
        for hold, generation in ((Hold(run.id, run.token + 1), 0), (run.hold, 1)):
            with world.writing() as tx:
                assert world.store.delete_failures(tx, hold, generation, key) == 0
        with world.writing() as tx:
            assert world.store.delete_failures(tx, run.hold, run.generation, key) == 2
        assert [one.key.name for one in world.context(run).history.failures] == ["other"]
        assert world.commit(worker, msgspec.structs.replace(hearing(run, 1, "look"), heard=None)) == []


def _claimable(world: World, lane: int) -> list[Any]:
    with world.database.reading() as tx:
        return world.store.probe_lanes(tx, [lane], 2_000, with_suspects=True, now=START)()
