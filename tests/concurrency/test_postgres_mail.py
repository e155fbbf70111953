"""Senders, runs that are given signals, and flushes beside each other on real connections: nobody is held up, and nothing is given twice or never."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from threading import Barrier, Event

import msgspec
import pytest

from outlast import ids
from outlast.native.history import RecordKind, Wait
from outlast.native.mailbox import Mail, NewSignal, Sent
from outlast.native.store import ClaimedRun, RunCheckpoint, StepCheckpoint
from outlast.run import RunStatus
from outlast.step_key import StepKey

from .engine_world import query
from .postgres_world import WAIT, World, opened, record
from .test_postgres_signals import claimed, deliver, insisting, stranger, wait_until_in_the_way

TOPIC = "news"
SENDERS = 8


@pytest.fixture
def world(postgres_url: str) -> Iterator[World]:
    with opened(postgres_url) as world:
        yield world


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(SENDERS) as pool:
        yield pool


def signal(topic: str = TOPIC, key: str | None = None) -> NewSignal:
    return NewSignal(ids.run_id(), topic, payload="1", ttl=timedelta(hours=1), idempotency_key=key, payload_digest="one")


def send(world: World, new: NewSignal) -> Sent:
    with world.database.transaction() as tx:
        return world.store.append_signal(tx, new)


def mail(world: World, run: ClaimedRun, topic: str = TOPIC) -> Mail:
    with world.database.reading() as tx:
        return world.store.find_mail(tx, run.id, topic, 0)


def park(world: World, worker_id: int, run: ClaimedRun, seen: int, topic: str = TOPIC) -> None:
    wait = Wait(StepKey((), "wait"), RecordKind.WAIT, None, topic, seen)
    with world.database.transaction() as tx:
        world.store.fence(tx, worker_id)
        assert world.store.commit_checkpoints(tx, [RunCheckpoint(run.hold, 0, RunStatus.WAITING, None, (wait,))])() == []


def hearing(run: ClaimedRun, number: int, sent: NewSignal | None = None) -> StepCheckpoint:
    return msgspec.structs.replace(record(run.hold, "wait"), heard=(TOPIC, number), sent=sent, was_open=False)


# --- a look, a send and a park ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("is_delivered", [False, True])
def test_what_is_sent_after_the_look_is_not_slept_through(world: World, is_delivered: bool) -> None:
    """A run looks and finds nothing new, a signal comes, delivered or not, and the run parks: it goes on at once."""
    worker_id, run = claimed(world)
    send(world, signal())
    deliver(world)
    seen = mail(world, run)
    assert seen.signal is not None
    send(world, signal())
    if is_delivered:
        deliver(world)
    park(world, worker_id, run, seen.newest)
    assert world.status(run.id) is RunStatus.PENDING


def test_a_number_that_is_not_committed_is_none(world: World, pool: ThreadPoolExecutor) -> None:
    """While a delivery is open, a look is told that something is not delivered; a run that parks on what it saw then waits, and goes on."""
    worker_id, run = claimed(world)
    refused = Event()
    send(world, signal())
    with world.database.transaction() as tx:
        assert world.store.deliver_signals(tx, 100).count == 1
        assert mail(world, run) == Mail(None, 0, True)
        parking = pool.submit(insisting, lambda: park(world, worker_id, run, 0), refused)
        wait_until_in_the_way(refused, parking)
        assert refused.is_set()
    parking.result(WAIT)
    assert world.status(run.id) is RunStatus.PENDING


def test_what_commits_late_is_newer_than_what_was_seen(world: World) -> None:
    """A send that began first and commits last has the greater number: a run that has seen the others is woken by it."""
    worker_id, run = claimed(world)
    with world.database.transaction() as tx:
        world.store.append_signal(tx, signal())
        send(world, signal())
        deliver(world)
        park(world, worker_id, run, mail(world, run).newest)
        assert world.status(run.id) is RunStatus.WAITING
    assert deliver(world).lanes == {world.lane}
    assert world.status(run.id) is RunStatus.PENDING


# --- open transactions of senders -----------------------------------------------------------------------------------------------
def test_senders_in_opposite_order_hold_up_nobody(world: World) -> None:
    """One sends on A then B, the other on B then A, both in open transactions: no deadlock; deliveries, flushes and parks pass meanwhile."""
    sending_worker, sending = claimed(world)
    parking_worker, parking = claimed(world)
    with world.database.transaction() as one, world.database.transaction() as other:
        world.store.append_signal(one, signal("A"))
        world.store.append_signal(other, signal("B"))
        world.store.append_signal(one, signal("B"))
        world.store.append_signal(other, signal("A"))
        assert deliver(world).count == 0
        with world.database.transaction() as tx:
            world.store.fence(tx, sending_worker)
            assert world.store.commit_checkpoints(tx, [hearing(sending, 1, signal("A"))])() == []
        park(world, parking_worker, parking, 0, "B")
        assert deliver(world).count == 1
        assert world.status(parking.id) is RunStatus.WAITING
    assert (deliver(world).count, world.status(parking.id)) == (4, RunStatus.PENDING)


def test_a_flush_that_sends_passes_a_topic_that_is_locked(world: World, postgres_url: str) -> None:
    """Whoever has the topic locked: a record with a send, or one that uses a signal up, needs no topic."""
    worker_id, run = claimed(world)
    with stranger(postgres_url, "SELECT outlast.lock_topics(ARRAY[%s])", TOPIC), world.database.transaction() as tx:
        world.store.fence(tx, worker_id)
        assert world.store.commit_checkpoints(tx, [hearing(run, 7, signal())])() == []
    assert query(world.url, "SELECT number FROM {cursor}") == [(7,)]
    assert deliver(world).count == 1


# --- keys -----------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("commits", [True, False])
def test_an_equal_key_waits_for_the_first_sender(world: World, pool: ThreadPoolExecutor, commits: bool) -> None:
    """No longer than the time-out for locks at once; then it is told of the first one's signal, or sends its own where that was undone."""
    first, second, refused = signal(key="k"), signal(key="k"), Event()
    try:
        with world.database.transaction() as tx:
            world.store.append_signal(tx, first)
            sending = pool.submit(insisting, lambda: send(world, second), refused)
            wait_until_in_the_way(refused, sending)
            assert refused.is_set()
            if not commits:
                raise InterruptedError
    except InterruptedError:
        pass
    assert sending.result(WAIT) == (Sent(first.id, False, "one") if commits else Sent(second.id, True, "one"))


def test_of_senders_at_once_one_is_first(world: World, pool: ThreadPoolExecutor) -> None:
    """Eight with one key in the same moment, round after round: one signal, which all are told of."""
    for turn in range(10):
        gate = Barrier(SENDERS)

        def send_at_once(key: str, gate: Barrier = gate) -> Sent:
            gate.wait(WAIT)
            new = signal(key=key)
            return insisting(lambda: send(world, new))

        sent = [work.result(WAIT) for work in [pool.submit(send_at_once, f"key {turn}") for _ in range(SENDERS)]]
        assert len({one.id for one in sent}) == 1
        assert sum(one.created for one in sent) == 1


def test_what_has_expired_is_replaced_by_one_of_many(world: World, pool: ThreadPoolExecutor) -> None:
    """Several senders meet an expired signal under their key: one of them takes its place."""
    send(world, replace(signal(key="k"), ttl=timedelta(microseconds=1)))
    gate = Barrier(4)

    def send_at_once() -> Sent:
        gate.wait(WAIT)
        new = signal(key="k")
        return insisting(lambda: send(world, new))

    sent = [work.result(WAIT) for work in [pool.submit(send_at_once) for _ in range(4)]]
    assert (len({one.id for one in sent}), sum(one.created for one in sent)) == (1, 1)


# --- what is locked --------------------------------------------------------------------------------------------------------------
def test_what_somebody_has_locked_is_forgotten_later(world: World, postgres_url: str) -> None:
    """A tidying pass passes a locked signal and comes again."""
    locked, free = (replace(signal(), ttl=timedelta(microseconds=1)) for _ in range(2))
    for one in (locked, free):
        send(world, one)
    with stranger(postgres_url, "SELECT FROM outlast.signal WHERE id = %s FOR UPDATE", locked.id), world.database.transaction() as tx:
        assert world.store.delete_expired(tx, 100) == 1
    with world.database.transaction() as tx:
        assert world.store.delete_expired(tx, 100) == 1
