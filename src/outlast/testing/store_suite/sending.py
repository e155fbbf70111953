"""What a store promises about sends: one signal for a key, a time to live, and a body's send with its record only."""

from datetime import datetime, timedelta
from typing import Any

from outlast import ids
from outlast.native.history import RecordKind
from outlast.native.mailbox import Delivered, Mail, NewSignal, Sent
from outlast.native.store import ClaimedRun, StepCheckpoint
from outlast.run import RunStatus

from .mailing import HOUR, TOPIC, mail, send, waiting
from .world import START, World, WorldSuite, after, park, record


def append(world: World, now: datetime = START, **changes: Any) -> Sent:
    signal = NewSignal(**{"id": ids.run_id(), "topic": TOPIC, "payload": "1", "ttl": HOUR, "idempotency_key": "k", "payload_digest": "one", **changes})
    with world.writing() as tx:
        return world.store.append_signal(tx, signal, now)


def sending(run: ClaimedRun, signal: NewSignal, name: str = "send") -> StepCheckpoint:
    """Return the record of a send."""
    return StepCheckpoint(run.hold, run.generation, record(name, kind=RecordKind.SIGNAL, result="null"), False, None, signal)


def expire(world: World, now: datetime, limit: int = 100) -> int:
    with world.writing() as tx:
        return world.store.delete_expired(tx, limit, now)


class SendingSuite(WorldSuite):
    """Signals that are sent."""

    # --- keys ---------------------------------------------------------------------------------------------------------------
    def test_one_key_is_one_signal(self, world: World) -> None:
        """The second send under a key is told of the first with its digest; another topic has keys of its own."""
        first = append(world)
        assert first.created
        assert append(world, payload="2", payload_digest="two") == Sent(first.id, False, "one")
        assert append(world, topic="other").created
        assert append(world, idempotency_key=None).created
        assert world.deliver().count == 3

    def test_a_send_that_is_tried_again_is_the_same(self, world: World) -> None:
        """By its id, with a key and without one."""
        for key in ("k", None):
            signal_id = ids.run_id()
            assert append(world, id=signal_id, idempotency_key=key) == Sent(signal_id, True, "one")
            assert append(world, id=signal_id, idempotency_key=key) == Sent(signal_id, True, "one")
        assert world.deliver().count == 2

    def test_a_key_is_free_when_its_signal_has_expired(self, world: World) -> None:
        """Whether or not anybody has tidied up: the new send is a signal of its own."""
        first = append(world)
        assert append(world, now=after(3_599)) == Sent(first.id, False, "one")
        second = append(world, now=after(3_600), payload_digest="two")
        assert (second.created, second.payload_digest) == (True, "two")
        assert second.id != first.id
        assert world.deliver(now=after(3_601)).count == 1

    # --- time to live -------------------------------------------------------------------------------------------------------
    def test_what_has_expired_is_given_to_nobody(self, world: World) -> None:
        """To the microsecond: at its end of life a signal is not given, does not hold up a park and wakes nobody."""
        worker = world.worker()
        run = world.claimed(worker)
        send(world, ttl=timedelta(seconds=10))
        kept = send(world, ttl=timedelta(seconds=20))
        assert mail(world, run, now=after(20)) == Mail(None, 0, False)
        world.deliver(now=after(5))
        found = mail(world, run, now=after(10)).signal
        assert found is not None
        assert found.id == kept.id
        newest = mail(world, run, now=after(20)).newest
        assert mail(world, run, now=after(20)) == Mail(None, newest, False)
        world.commit(worker, park(run, None, waiting()), now=after(20))
        assert world.status(run.id) is RunStatus.WAITING

    def test_an_expired_signal_is_delivered_to_nobody(self, world: World) -> None:
        """Not delivered within its time, it wakes nobody, and is off the list of what is to be delivered."""
        worker = world.worker()
        run = world.claimed(worker)
        world.commit(worker, park(run, None, waiting()))
        send(world, ttl=timedelta(seconds=10))
        assert world.deliver(now=after(10)) == Delivered(frozenset(), 1, False)
        assert world.status(run.id) is RunStatus.WAITING
        assert not world.look(after(10)).has_undelivered

    def test_what_has_expired_is_forgotten_page_by_page(self, world: World) -> None:
        """Delivered or not, oldest first; what lives, and what is for one run, stays."""
        run_id = world.enqueue()
        for seconds in range(1, 6):
            send(world, ttl=timedelta(seconds=seconds))
        world.deliver(limit=2)
        world.send("$reserved", run_id)
        assert [expire(world, after(4), limit=3) for _ in range(3)] == [3, 1, 0]
        assert world.deliver(now=after(4)).count == 2
        assert expire(world, after(9_999)) == 1

    # --- sends of bodies ------------------------------------------------------------------------------------------------------
    def test_a_body_sends_with_its_record(self, world: World) -> None:
        """What a record sends is there with it, in the order of the group, and only where the record is kept."""
        worker = world.worker()
        stale = world.claimed(worker)
        world.commit(worker, park(stale, after(1)))
        world.wake_due(after(1))
        run, reader = world.claimed_again(worker, stale, after(1)), world.claimed(worker)
        signals = [NewSignal(ids.run_id(), TOPIC, payload=str(number), ttl=HOUR) for number in range(3)]
        late = sending(stale, NewSignal(ids.run_id(), TOPIC, payload="9", ttl=HOUR), "late")
        group = [sending(run, signal, f"send_{place}") for place, signal in enumerate(signals)]
        assert world.commit(worker, late, *group, now=after(2)) == [late]
        assert world.look().has_undelivered
        world.deliver()
        heard, seen = [], 0
        while (found := mail(world, reader, seen=seen).signal) is not None:
            heard.append((found.id, found.payload, found.sent_at))
            seen = found.number
        assert heard == [(signal.id, str(number), after(2)) for number, signal in enumerate(signals)]

    def test_a_send_that_is_there_already_is_sent_once(self, world: World) -> None:
        """The record of a send whose first try was another claim's: its id is the same, and so is the signal."""
        worker = world.worker()
        run = world.claimed(worker)
        signal = NewSignal(ids.run_id(), TOPIC, payload="1", ttl=HOUR)
        with world.writing() as tx:
            world.store.append_signal(tx, signal, START)
        assert world.commit(worker, sending(run, signal)) == []
        assert world.deliver().count == 1
