"""Clocks: what a body sees as time, and which instants are refused."""

from datetime import UTC, datetime, timedelta, timezone, tzinfo

import pytest

from outlast.clock import StoreClock, SystemClock, ensure_aware

START = datetime(2024, 5, 1, 12, tzinfo=UTC)


class HandClock:
    """A machine's clock that the test moves."""

    def __init__(self) -> None:
        self.instant = START
        self.seconds = 100.0

    def now(self) -> datetime:
        return self.instant

    def monotonic(self) -> float:
        return self.seconds


def test_system_clock_is_aware_and_does_not_go_back():
    """Instants are in UTC; what measures durations only grows."""
    clock = SystemClock()
    assert clock.now().utcoffset() == timedelta(0)
    readings = [clock.monotonic() for _ in range(1_000)]
    assert readings == sorted(readings)


def test_store_clock_follows_the_database_and_not_the_wall():
    """Once the database has said its time, a jump of the machine's wall clock changes nothing."""
    machine = HandClock()
    clock = StoreClock(machine)
    assert clock.now() == START
    clock.correct(START + timedelta(hours=3))
    machine.instant -= timedelta(days=400)
    machine.seconds += 5
    assert clock.now() == START + timedelta(hours=3, seconds=5)
    assert clock.monotonic() == 105.0


def test_store_clock_before_the_first_answer_is_the_machines():
    """Until then there is nothing better."""
    machine = HandClock()
    clock = StoreClock(machine)
    machine.seconds += 2
    assert clock.now() == START + timedelta(seconds=2)


class SilentZone(tzinfo):
    """A time zone that does not say what it is."""

    def utcoffset(self, instant):
        return None


@pytest.mark.parametrize("instant", [datetime(2024, 5, 1), datetime(2024, 5, 1, tzinfo=SilentZone())])
def test_naive_instant_is_refused_with_its_name(instant):
    """It would mean another moment on each machine, also where a zone is named that does not answer."""
    with pytest.raises(ValueError, match=r"available_at has no time zone: write datetime\(\.\.\., tzinfo=UTC\)"):
        ensure_aware(instant, "available_at")


def test_aware_instant_is_the_same_moment_in_utc():
    """Whatever zone it came in."""
    there = datetime(2024, 5, 1, 14, tzinfo=timezone(timedelta(hours=2)))
    assert ensure_aware(there, "x") == START
    assert ensure_aware(there, "x").utcoffset() == timedelta(0)
