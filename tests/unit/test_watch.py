"""The watcher by itself: what counts as a death, what as silence, and who may judge."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from outlast.errors import UnavailableError
from outlast.events import Events
from outlast.limits import RECOVERY_PAGE
from outlast.native.store import Hold, Orphan, Recovery, WorkerRow
from outlast.native.watch import Watch

NOW = datetime(2026, 3, 1, tzinfo=UTC)
OWN = 1


@dataclass
class HandClock:
    seconds: float = 1_000.0

    def now(self) -> datetime:
        return NOW

    def monotonic(self) -> float:
        return self.seconds


def worker(number: int, **changes: Any) -> WorkerRow:
    row = WorkerRow(number, f"w{number}", "p", 5, True, False, False, timedelta(seconds=30), NOW, NOW, None, None, 1, "{}")
    return replace(row, **changes)


class Bench:
    """A watch over workers that a test describes, and the ends that it writes."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.whole_for = 1_000.0
        self.rows = [worker(OWN), worker(2)]
        self.free: set[int] = set()
        self.can_prove = True
        self.ended: list[tuple[int, str, int | None, bool]] = []
        self.still_holds = True
        self.orphans: list[Orphan] = []
        self.is_watcher = True
        self.recovered: list[Recovery] = []
        self.watch = Watch(self, self, self, self.clock, Events(), lambda: None)  # type: ignore[arg-type]  # it plays the calls, the store and the locks

    # --- calls
    async def write(self, name: str, function: Callable[[Any], Any]) -> Any:
        return function(None)

    read = write

    def other(self, function: Callable[[], Any]) -> Awaitable[Any]:
        return asyncio.to_thread(function)

    # --- locks
    def is_proof_possible(self, row: WorkerRow) -> bool:
        return self.can_prove

    def find_free(self, tx: Any, rows: list[WorkerRow]) -> set[int]:
        return self.free & {row.id for row in rows}

    # --- store
    def list_workers(self, tx: Any, *, only_alive: bool, counts_runs: bool, now: Any) -> list[WorkerRow]:
        return self.rows

    def end_worker(self, tx: Any, number: int, end: str, *, beat: int | None, is_silent: bool, now: Any) -> bool:
        self.ended.append((number, end, beat, is_silent))
        return self.still_holds

    def try_watch(self, tx: Any) -> bool:
        return self.is_watcher

    def list_orphans(self, tx: Any, limit: int, now: Any) -> list[Orphan]:
        page, self.orphans = self.orphans[:limit], self.orphans[limit:]
        return page

    def recover_runs(self, tx: Any, recoveries: list[Recovery], now: Any) -> set[int]:
        self.recovered += recoveries
        return {len(recoveries)}

    def look(self, after: float = 1.5, **changes: Any) -> set[int]:
        """Look once, so many seconds later, at the other worker with these changes."""
        self.clock.seconds += after
        self.rows[1] = replace(self.rows[1], **changes)
        return asyncio.run(self.watch.look(OWN))


def test_a_lock_that_is_free_twice_with_the_same_beat_is_a_death() -> None:
    """Not at the first look, and not before the looks are far enough apart; the end is only accepted for that very beat."""
    bench = Bench()
    bench.free = {2}
    bench.look()
    assert bench.watch.next_look_in == timedelta(seconds=1.5)
    bench.look(1.4)
    assert bench.ended == []
    bench.look(0.1)
    assert bench.ended == [(2, "dead", 5, False)]
    assert bench.watch.next_look_in is None


@pytest.mark.parametrize(
    "change",
    [{"beat": 6}, {"is_provable": False}],
    ids=["its beat has moved", "it says that it holds no lock"],
)
def test_whoever_shows_life_between_two_looks_is_not_dead(change: dict[str, Any]) -> None:
    """A worker whose connection was cut is back with a new beat, or says that its lock means nothing."""
    bench = Bench()
    bench.free = {2}
    bench.look()
    bench.look(**change)
    assert bench.ended == []


def test_a_lock_that_is_held_again_begins_the_looks_anew() -> None:
    """Two looks with a held lock between them are no two looks."""
    bench = Bench()
    bench.free = {2}
    bench.look()
    bench.free = set()
    bench.look()
    bench.free = {2}
    bench.look()
    assert bench.ended == []


def test_a_worker_that_cannot_be_proven_dead_is_judged_by_silence_alone() -> None:
    """Where a free lock means nothing, and where none is held, only the lease counts."""
    bench = Bench()
    bench.free, bench.can_prove = {2}, False
    for _ in range(5):
        bench.look()
    assert bench.ended == []
    bench.look(is_lease_over=True)
    assert bench.ended == [(2, "silent", None, True)]


def test_only_an_observer_that_was_answered_for_long_judges_silence() -> None:
    """After an outage everybody has a third of the lease for renewing."""
    bench = Bench()
    bench.whole_for = 9.9
    bench.look(is_lease_over=True)
    assert bench.ended == []
    bench.whole_for = 10.0
    bench.look()
    assert bench.ended == [(2, "silent", None, True)]


def test_an_observer_that_was_late_itself_judges_nobody() -> None:
    """When a whole machine stood still all leases are over at once, the observer's too, and nobody is taken from."""
    bench = Bench()
    bench.rows[0] = worker(OWN, is_lease_over=True)
    bench.look(is_lease_over=True)
    bench.rows[0] = worker(OWN)
    bench.look(9.9)
    assert bench.ended == []
    bench.look(0.1)
    assert bench.ended == [(2, "silent", None, True)]


def test_it_never_judges_itself() -> None:
    """A process whose own lock or lease looks bad leaves the judgement to others."""
    bench = Bench()
    bench.rows, bench.free = [worker(OWN, is_lease_over=True)] * 2, {OWN}
    for _ in range(5):
        bench.look()
    assert bench.ended == []


def test_one_worker_that_cannot_be_judged_holds_up_no_other() -> None:
    """A judgement that fails is missed, and the next worker is looked at all the same."""
    bench = Bench()
    bench.rows = [worker(OWN), worker(2), worker(3, is_lease_over=True)]
    bench.free = {2}

    def is_proof_possible(row: WorkerRow) -> bool:
        raise UnavailableError

    bench.is_proof_possible = is_proof_possible  # type: ignore[method-assign]
    bench.look()
    assert bench.ended == [(3, "silent", None, True)]


def test_a_look_asks_once_however_many_workers_there_are() -> None:
    """An idle worker of a large fleet costs no more queries than one of a small one."""
    bench = Bench()
    bench.rows = [worker(number) for number in range(OWN, 50)]
    asked: list[str] = []

    async def read(name: str, function: Callable[[Any], Any]) -> Any:
        asked.append(name)
        return function(None)

    def other(function: Callable[[], Any]) -> Awaitable[Any]:
        asked.append("a look at one lock")
        return asyncio.to_thread(function)

    bench.read, bench.other = read, other  # type: ignore[method-assign]
    bench.look()
    assert asked == ["list_workers"]


def test_what_others_left_is_looked_for_again_and_again() -> None:
    """A watcher that ended a worker may die before it recovers its runs: every sixth look asks for them, whoever ended what."""
    bench = Bench()
    bench.look()
    recovered = []
    for _ in range(18):
        bench.orphans = [orphan(1)]
        bench.look()
        recovered.append(len(bench.recovered))
    assert recovered == [0] * 5 + [1] * 6 + [2] * 6 + [3]


def test_a_death_is_followed_by_the_recovery_at_once() -> None:
    """In pages, until none is left."""
    bench = Bench()
    bench.look()
    bench.orphans = [orphan(number) for number in range(RECOVERY_PAGE + 1)]
    assert bench.look(is_lease_over=True) == {RECOVERY_PAGE, 1}
    assert len(bench.recovered) == RECOVERY_PAGE + 1


def test_only_one_watcher_recovers() -> None:
    """Who does not get the watch lets go of nothing."""
    bench = Bench()
    bench.is_watcher, bench.orphans = False, [orphan(1)]
    assert asyncio.run(bench.watch.recover()) == set()
    assert not bench.recovered


def test_where_nothing_was_left_nobody_becomes_the_watcher() -> None:
    """The look that finds no orphans, which is nearly every one, asks the database nothing else."""
    bench = Bench()
    asked: list[bool] = []
    bench.try_watch = lambda tx: asked.append(True) or True  # type: ignore[method-assign, func-returns-value]
    assert asyncio.run(bench.watch.recover()) == set()
    bench.orphans = [orphan(1)]
    asyncio.run(bench.watch.recover())
    assert asked == [True]


def orphan(number: int) -> Orphan:
    return Orphan(Hold(str(number), 1), 0, 0, 0, 0, 1, has_ended_worker=True)
