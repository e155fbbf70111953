"""Sends, deliveries and parks on one topic at once, on real connections: no order of them loses a signal."""

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
import pytest

from outlast import ids
from outlast.database.transaction import Refusal, RefusedError
from outlast.native.history import RecordKind, Wait
from outlast.native.mailbox import Delivered, NewSignal
from outlast.native.store import ClaimedRun, RunCheckpoint
from outlast.run import RunStatus
from outlast.step_key import StepKey

from .engine_world import query
from .postgres_world import WAIT, World, opened

R = TypeVar("R")
TOPIC = "$decision:7"
ROUNDS = 30


@pytest.fixture
def world(postgres_url: str) -> Iterator[World]:
    with opened(postgres_url) as world:
        yield world


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


def claimed(world: World) -> tuple[int, ClaimedRun]:
    worker_id = world.worker()
    (run,) = world.claim(worker_id, world.accept())
    return worker_id, run


def parking(run: ClaimedRun, topic: str = TOPIC) -> RunCheckpoint:
    return RunCheckpoint(run.hold, 0, RunStatus.WAITING, None, (Wait(StepKey((), "pay"), RecordKind.EFFECT, None, topic),))


def park(world: World, worker_id: int, run: ClaimedRun, topic: str = TOPIC) -> None:
    with world.database.transaction() as tx:
        world.store.fence(tx, worker_id)
        refused = world.store.commit_checkpoints(tx, [parking(run, topic)])
    assert refused() == []


def parked(world: World, topic: str = TOPIC) -> ClaimedRun:
    worker_id, run = claimed(world)
    park(world, worker_id, run, topic)
    return run


def send(world: World, topic: str = TOPIC) -> str:
    signal = NewSignal(ids.run_id(), topic)
    with world.database.transaction() as tx:
        world.store.append_signal(tx, signal)
    return signal.id


def deliver(world: World) -> Delivered:
    with world.database.transaction() as tx:
        return world.store.deliver_signals(tx, 100)


def insisting(work: Callable[[], R], refused: threading.Event | None = None) -> R:
    """Do it again for as long as somebody's lock is in the way, as the engine does, and say when that was seen."""
    while True:
        try:
            return work()
        except RefusedError as error:
            if error.refusal is not Refusal.BUSY:
                raise
            if refused is not None:
                refused.set()


def wait_until_in_the_way(refused: threading.Event, work: "Future[Any]") -> None:
    """Wait until the other one has met the lock, or has passed where there was none."""
    while not refused.wait(0.01) and not work.done():
        pass


@contextmanager
def stranger(url: str, sql: str, *values: object) -> Iterator[None]:
    """Run a statement in a transaction that is open for as long as the block."""
    with psycopg.connect(url) as connection:
        connection.execute(sql.encode(), values)
        yield
        connection.rollback()


def numbers(world: World) -> dict[str, int]:
    return dict(query(world.url, "SELECT id::text, number FROM {signal} WHERE number IS NOT NULL"))


def test_a_delivery_waits_for_who_parks(world: World, pool: ThreadPoolExecutor) -> None:
    """A run that parks while the signal is sent and delivered is woken: the delivery sees the wait, because it has waited for the park."""
    worker_id, run = claimed(world)
    refused = threading.Event()
    with world.database.transaction() as tx:
        world.store.fence(tx, worker_id)
        assert world.store.commit_checkpoints(tx, [parking(run)])() == []
        send(world)
        delivering = pool.submit(insisting, lambda: deliver(world), refused)
        wait_until_in_the_way(refused, delivering)
    assert delivering.result(WAIT).lanes == {world.lane}
    assert world.status(run.id) is RunStatus.PENDING


def test_who_parks_waits_for_a_delivery(world: World, pool: ThreadPoolExecutor) -> None:
    """A run that parks while its signal is being delivered sees the signal, and goes on."""
    worker_id, run = claimed(world)
    refused = threading.Event()
    send(world)
    with world.database.transaction() as tx:
        assert world.store.deliver_signals(tx, 100).count == 1
        parking_run = pool.submit(insisting, lambda: park(world, worker_id, run), refused)
        wait_until_in_the_way(refused, parking_run)
        assert refused.is_set()
    parking_run.result(WAIT)
    assert world.status(run.id) is RunStatus.PENDING


def test_both_get_on_when_a_third_lets_the_topic_go(world: World, postgres_url: str, pool: ThreadPoolExecutor) -> None:
    """While somebody else has the topic neither a park nor a delivery passes, and then the run is woken whichever was first."""
    for _ in range(5):
        worker_id, run = claimed(world)
        send(world)
        events = threading.Event(), threading.Event()
        with stranger(postgres_url, "SELECT outlast.lock_topics(ARRAY[%s])", TOPIC):
            works = [
                pool.submit(insisting, lambda: park(world, worker_id, run), events[0]),  # noqa: B023 - it ends within the round
                pool.submit(insisting, lambda: deliver(world), events[1]),
            ]
            assert [event.wait(WAIT) for event in events] == [True, True]
        for work in works:
            work.result(WAIT)
        assert world.status(run.id) is RunStatus.PENDING


def test_what_is_sent_but_not_committed_while_a_run_parks_is_delivered_later(world: World) -> None:
    """A sender's open transaction holds up neither the park nor a pass, and once it commits the next pass wakes the run."""
    worker_id, run = claimed(world)
    with world.database.transaction() as tx:
        world.store.append_signal(tx, NewSignal(ids.run_id(), TOPIC))
        park(world, worker_id, run)
        assert world.status(run.id) is RunStatus.WAITING
        assert deliver(world) == Delivered(frozenset(), 0, False)
    assert world.status(run.id) is RunStatus.WAITING
    assert deliver(world) == Delivered(frozenset({world.lane}), 1, False)
    assert world.status(run.id) is RunStatus.PENDING


def test_a_locked_run_is_woken_by_a_later_pass(world: World, postgres_url: str) -> None:
    """A waiter that somebody has locked holds up nobody else, and its signal stays undelivered until it is woken."""
    held, free = parked(world), parked(world, "another")
    send(world)
    send(world, "another")
    with stranger(postgres_url, "SELECT FROM outlast.run WHERE id = %s FOR UPDATE", held.id):
        assert deliver(world) == Delivered(frozenset({world.lane}), 1, False)
        assert (world.status(held.id), world.status(free.id)) == (RunStatus.WAITING, RunStatus.PENDING)
        assert deliver(world) == Delivered(frozenset(), 0, False)
    assert deliver(world) == Delivered(frozenset({world.lane}), 1, False)
    assert world.status(held.id) is RunStatus.PENDING


def test_a_locked_signal_keeps_its_place(world: World, postgres_url: str) -> None:
    """Later signals of its topic do not come before it, and those of other topics do not wait for it."""
    first, second, other = send(world), send(world), send(world, "another")
    with stranger(postgres_url, "SELECT FROM outlast.signal WHERE id = %s FOR UPDATE", first):
        assert deliver(world).count == 1
        assert set(numbers(world)) == {other}
    assert deliver(world).count == 2
    found = numbers(world)
    assert found[other] < found[first] < found[second]


def test_numbers_grow_as_signals_become_visible(world: World) -> None:
    """One that is committed later has the greater number, though its send began first: nobody who has seen a number misses a smaller one."""
    late = NewSignal(ids.run_id(), TOPIC)
    with world.database.transaction() as tx:
        world.store.append_signal(tx, late)
        early = send(world)
        deliver(world)
    deliver(world)
    found = numbers(world)
    assert found[early] < found[late.id]


def test_deliveries_at_once_number_each_signal_once(world: World, pool: ThreadPoolExecutor) -> None:
    """Four passes beside each other, round after round: every signal has a number of its own, and of one sender's in the order of his sends."""
    for _ in range(ROUNDS):
        sent = [send(world, f"topic {number % 2}") for number in range(6)]
        for work in [pool.submit(insisting, lambda: deliver(world)) for _ in range(4)]:
            work.result(WAIT)
        found = numbers(world)
        assert len(set(found.values())) == len(found)
        for topic in (0, 1):
            mine = [found[one] for one in sent[topic::2]]
            assert mine == sorted(mine)


def test_no_interleaving_loses_a_wake_up(world: World, pool: ThreadPoolExecutor) -> None:
    """A park, and a send with its delivery, begun in the same moment: whoever was first, the run goes on, round after round."""
    gate = threading.Barrier(2)
    chance = random.Random(7)

    def park_at_once(worker_id: int, run: ClaimedRun, topic: str, pause: float) -> None:
        gate.wait(WAIT)
        threading.Event().wait(pause)
        insisting(lambda: park(world, worker_id, run, topic))

    def send_at_once(topic: str, pause: float) -> None:
        gate.wait(WAIT)
        threading.Event().wait(pause)
        send(world, topic)
        insisting(lambda: deliver(world))

    for turn in range(ROUNDS):
        worker_id, run = claimed(world)
        topic, pauses = f"topic {turn}", (chance.random() / 200, chance.random() / 200)
        works = [pool.submit(park_at_once, worker_id, run, topic, pauses[0]), pool.submit(send_at_once, topic, pauses[1])]
        for work in works:
            work.result(WAIT)
        assert world.status(run.id) is RunStatus.PENDING
