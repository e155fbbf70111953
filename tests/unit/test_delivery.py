"""The timer pass by itself: when it is made, how long a worker may sleep, and that it goes on until nothing is due."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from outlast.limits import FLAGS_POLL, IDLE_POLL, OVERDUE_EVERY
from outlast.native.delivery import Delivery
from outlast.native.mailbox import Delivered
from outlast.native.store import Look

NOW = datetime(2026, 3, 1, tzinfo=UTC)


class Bench:
    """A delivery over pages of due runs that a test lays out."""

    def __init__(self) -> None:
        self.pages: list[set[int]] = []
        self.overdue = [3, 2]
        self.passes = 0
        self.next_due_at: datetime | None = None
        self.has_overdue = False
        self.signals: list[Delivered] = []
        self.delivery = Delivery(self, self, lambda: None)  # type: ignore[arg-type]  # it plays the calls and the store

    async def write(self, name: str, function: Callable[[Any], Any]) -> Any:
        return function(None)

    read = write

    def look(self, tx: Any, lanes: tuple[int, ...], now: Any) -> Look:
        return Look(False, False, self.next_due_at, NOW, self.has_overdue)

    def wake_due(self, tx: Any, limit: int, now: Any) -> set[int]:
        self.passes += 1
        return self.pages.pop(0) if self.pages else set()

    def end_overdue(self, tx: Any, limit: int, now: Any) -> int:
        return self.overdue.pop(0) if self.overdue else 0

    def deliver_signals(self, tx: Any, limit: int, now: Any) -> Delivered:
        return self.signals.pop(0)

    def seen(self, due_at: datetime | None) -> Delivery:
        """Return the delivery after a look that saw this timer next."""
        self.next_due_at = due_at
        asyncio.run(self.delivery.look((1,)))
        return self.delivery


def test_a_pass_goes_on_until_nothing_is_due() -> None:
    """Page after page, and it returns every lane that has work now."""
    bench = Bench()
    bench.pages = [{1}, {2, 3}, {1}]
    assert asyncio.run(bench.delivery.wake()) == {1, 2, 3}
    assert bench.passes == 4


def test_a_worker_sleeps_until_the_next_timer() -> None:
    """At most for a poll, and never not at all, which would be a loop."""
    bench = Bench()
    assert bench.delivery.due_in(NOW) == IDLE_POLL
    assert bench.seen(NOW + timedelta(milliseconds=300)).due_in(NOW) == timedelta(milliseconds=300)
    assert bench.seen(NOW + timedelta(days=1)).due_in(NOW) == IDLE_POLL
    assert timedelta(0) < bench.seen(NOW - timedelta(seconds=5)).due_in(NOW) <= timedelta(milliseconds=1)


def test_a_busy_worker_makes_a_pass_now_and_then() -> None:
    """At once when a timer that it knows of has come due, else so often that none it does not know of is late for long."""
    bench = Bench()

    def passes_at(seconds: float) -> int:
        before = bench.passes
        asyncio.run(bench.delivery.wake_when_due(NOW + timedelta(seconds=seconds)))
        return bench.passes - before

    assert passes_at(0) == 1
    assert passes_at(IDLE_POLL.total_seconds() - 0.1) == 0
    assert passes_at(IDLE_POLL.total_seconds()) == 1
    bench.seen(NOW + timedelta(seconds=2.1))
    assert passes_at(2.05) == 0
    assert passes_at(2.1) == 1
    bench.seen(NOW + timedelta(days=1))
    assert passes_at(2.1 + FLAGS_POLL.total_seconds() - 0.01) == 0
    assert passes_at(2.1 + FLAGS_POLL.total_seconds()) == 1


def test_overdue_runs_are_counted_over_all_pages() -> None:
    """The sweep ends when a page is empty."""
    assert asyncio.run(Bench().delivery.end_overdue()) == 5


def test_a_look_ends_what_it_shows_to_be_overdue() -> None:
    """An idle worker needs no query of its own for deadlines: its look tells whether there is anything to end."""
    bench = Bench()
    bench.seen(None)
    assert bench.overdue == [3, 2]
    bench.has_overdue = True
    bench.seen(None)
    assert bench.overdue == []


def test_only_a_worker_that_has_not_looked_lately_sweeps() -> None:
    """A busy worker does not look, so that its round asks; one that looks has just been told."""
    bench = Bench()
    bench.seen(None)
    asyncio.run(bench.delivery.sweep_overdue(NOW + OVERDUE_EVERY - timedelta(seconds=1)))
    assert bench.overdue == [3, 2]
    asyncio.run(bench.delivery.sweep_overdue(NOW + OVERDUE_EVERY))
    assert bench.overdue == []


def test_a_worker_that_never_looked_sweeps() -> None:
    """What was busy from its first claim on has seen nothing."""
    bench = Bench()
    asyncio.run(bench.delivery.sweep_overdue(NOW))
    assert bench.overdue == []


def test_a_delivery_goes_on_while_it_gets_on() -> None:
    """Page after page until a pass says that nothing more is to be had, and it returns every lane in which something was woken."""
    bench = Bench()
    bench.signals = [
        Delivered(frozenset({1}), 0, True),
        Delivered(frozenset({2, 1}), 3, True),
        Delivered(frozenset(), 1, False),
        Delivered(frozenset({9}), 1, False),
    ]
    assert asyncio.run(bench.delivery.deliver()) == {1, 2}
    assert len(bench.signals) == 1


def test_only_a_worker_that_has_not_looked_lately_delivers_unasked() -> None:
    """A signal whose sender died is delivered by a busy worker too; one that looks has just been told that there is none."""
    bench = Bench()
    bench.signals = [Delivered(frozenset({7}), 1, False)]
    bench.seen(None)
    assert asyncio.run(bench.delivery.sweep_undelivered(NOW + OVERDUE_EVERY - timedelta(seconds=1))) == set()
    assert asyncio.run(bench.delivery.sweep_undelivered(NOW + OVERDUE_EVERY)) == {7}
