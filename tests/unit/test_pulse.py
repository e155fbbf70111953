"""The renewals of a lease by themselves, over a clock and a database that a test moves by hand."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from outlast.errors import UnavailableError
from outlast.events import Event, Events
from outlast.native.pulse import Pulse

NOW = datetime(2026, 3, 1, tzinfo=UTC)
LEASE = timedelta(seconds=30)


class HandClock:
    """A clock that stands still unless a test moves it."""

    def __init__(self) -> None:
        self.seconds = 1_000.0

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds


class Bench:
    """A pulse without its thread: a test takes each turn itself."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.tick = self.clock.seconds
        self.answer: datetime | Exception | None = NOW
        self.said: list[str] = []
        self.renewals: list[bool] = []
        self.is_lockable = True
        self.held: set[int] = set()
        events = Events()
        events.subscribe(self._heard)
        self.pulse = Pulse(
            calls=self,  # type: ignore[arg-type]  # it plays the calls, the store and the lock
            store=self,  # type: ignore[arg-type]
            liveness=self,  # type: ignore[arg-type]
            worker_id=7,
            lease=LEASE,
            clock=self.clock,
            events=events,
            now=lambda: None,
            loop_tick=lambda: self.tick,
            on_time=lambda instant: self.said.append("time"),
            on_silent=lambda reason: self.said.append("silent"),
            on_ended=lambda reason: self.said.append("ended"),
        )

    def _heard(self, event: Event) -> None:
        self.said.append(event.name)

    # --- what it plays
    def write_blocking(self, name: str, function: Callable[[Any], Any]) -> Any:
        return function(None)

    def renew_worker(self, tx: Any, worker_id: int, now: Any, *, is_provable: bool) -> datetime | None:
        self.renewals.append(is_provable)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def hold(self, worker_id: int) -> None:
        if not self.is_lockable:
            raise UnavailableError
        self.held.add(worker_id)

    def is_held(self, worker_id: int) -> bool:
        return worker_id in self.held

    def release(self, worker_id: int) -> None:
        self.held.discard(worker_id)

    # --- what tests do
    def renew(self, after: float = 3.0) -> bool:
        """Renew once, so many seconds later, with a loop that moves."""
        self.clock.seconds += after
        self.tick = self.clock.seconds
        self.said.clear()
        return self.pulse._renew()

    def look(self, after: float) -> list[str]:
        """Let the loop look, so many seconds later."""
        self.clock.seconds += after
        self.said.clear()
        self.pulse.watch_renewal()
        return list(self.said)


def test_a_renewal_tells_the_time() -> None:
    """The database's answer corrects the process's estimate of its clock."""
    bench = Bench()
    assert bench.renew()
    assert bench.said == ["time", "lease_renewed"]


def test_a_blocked_loop_is_not_renewed() -> None:
    """A loop that has not moved for longer than the lease goes silent; one that was merely busy does not."""
    bench = Bench()
    bench.clock.seconds += 30
    assert bench.pulse._renew()
    assert len(bench.renewals) == 1
    bench.clock.seconds += 0.5
    assert bench.pulse._renew()
    assert len(bench.renewals) == 1
    assert bench.renew()
    assert len(bench.renewals) == 2


def test_bodies_are_told_before_the_lease_ends() -> None:
    """Renewals that fail are told once, and only near the end; a renewal that succeeds begins anew."""
    bench = Bench()
    assert bench.renew()
    bench.answer = UnavailableError()
    heard = []
    for _ in range(10):
        assert bench.renew()
        heard += [bench.clock.seconds] * bench.said.count("silent")
    assert heard == [1_030.0]  # the last success was at 1003, so the lease ends at 1033
    bench.answer = NOW
    assert bench.renew()
    bench.answer = UnavailableError()
    assert bench.renew(25)
    assert bench.said == ["lease_not_renewed"]
    assert bench.renew(1)
    assert bench.said == ["lease_not_renewed", "silent"]


def test_a_hanging_renewal_is_told_by_the_loop() -> None:
    """Near the end of the lease two looks in a row tell the bodies, once; a renewal in between is taken for what it is."""
    bench = Bench()
    assert bench.renew()
    assert bench.look(24) == []
    assert bench.look(1.5) == [], "one look may come before the thread that was held up itself"
    assert bench.renew(0)
    assert bench.look(0.5) == []
    assert bench.look(26.5) == []
    assert bench.look(0.5) == ["silent"]
    assert bench.look(0.5) == []


def test_an_ended_worker_renews_no_more() -> None:
    """When the database says that the worker is not alive, this incarnation is over."""
    bench = Bench()
    bench.answer = None
    assert not bench.renew()
    assert bench.said == ["ended"]


def test_a_lost_lock_is_taken_again_and_said_at_once() -> None:
    """A watcher that saw the lock free meets a moved beat, because a change of the lock is followed by a renewal."""
    bench = Bench()
    assert bench.pulse.proof.look(), "it has the lock, and the database does not know"
    assert not bench.pulse.proof.look()
    bench.held.clear()
    assert bench.pulse.proof.look()
    assert bench.held == {7}
    bench.held.clear()
    bench.is_lockable = False
    assert bench.pulse.proof.look(), "it cannot prove its life any more, and has to say so"
    assert not bench.pulse.proof.look()
    assert bench.renew()
    assert bench.renewals == [False]


def test_a_lock_that_hangs_delays_no_renewal() -> None:
    """Where nobody answers at the lock's address, the lease is renewed all the same, and the stop does not wait for it."""
    bench = Bench()
    hanging, released, renewed = threading.Event(), threading.Event(), threading.Event()
    renew = bench.renew_worker

    def hold(worker_id: int) -> None:
        hanging.set()
        released.wait(60)
        bench.held.add(worker_id)

    bench.renew_worker = lambda *args, **options: (hanging.is_set() and renewed.set(), renew(*args, **options))[1]  # type: ignore[method-assign]
    bench.hold = hold  # type: ignore[method-assign]
    bench.pulse.start()
    assert hanging.wait(20)
    bench.clock.seconds += 3
    bench.tick = bench.clock.seconds
    assert renewed.wait(20)
    bench.pulse.stop()
    released.set()
    bench.pulse.proof._thread.join(20)
    assert not bench.held, "what it got after the stop is given back"


def test_the_thread_renews_until_it_is_stopped() -> None:
    """The first renewal comes at once, none after `stop`, and the lock is free then, unless its proof is to stay."""
    bench = Bench()
    renewed = threading.Event()
    renew = bench.renew_worker
    bench.renew_worker = lambda *args, **options: (renewed.set(), renew(*args, **options))[1]  # type: ignore[method-assign]
    assert bench.pulse.proof.hold()
    bench.pulse.start()
    assert renewed.wait(20)
    bench.pulse.stop(keep_proof=True)
    assert bench.held == {7}
    bench.pulse.stop()
    assert not bench.held
