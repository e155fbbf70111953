"""What is said of a database that takes no writes: once, whoever meets it, and not of a call's own affairs."""

import logging

import pytest

from outlast.database.transaction import Refusal, RefusedError
from outlast.events import Events
from outlast.native.calls import Calls
from outlast.native.write_refusals import WriteRefusals


class HandClock:
    """A clock that a test moves."""

    def __init__(self):
        self.seconds = 100.0

    def monotonic(self):
        return self.seconds

    def now(self):
        raise AssertionError("instants are none of its business")


@pytest.fixture
def clock():
    return HandClock()


@pytest.fixture
def refusals(clock, caplog):
    caplog.set_level(logging.WARNING, logger="outlast")
    return WriteRefusals(clock)


def refuse(refusals, clock, refusal, *, seconds=0.0):
    began = clock.monotonic()
    clock.seconds += seconds
    refusals.note_refused("commit", RefusedError(refusal, "no room"), began)


@pytest.mark.parametrize(("refusal", "seconds"), [(Refusal.FULL, 0), (Refusal.READ_ONLY, 0), (Refusal.BUSY, 10)])
def test_a_refusal_of_all_writes_is_said_once(refusals, clock, caplog, refusal, seconds):
    """However many calls meet it, one line says so, and one that it is over."""
    for _ in range(20):
        refuse(refusals, clock, refusal, seconds=seconds)
    assert refusals.is_refusing
    clock.seconds += 10
    refusals.note_taken("renew")
    refusals.note_taken("renew")
    assert not refusals.is_refusing
    assert [record.getMessage() for record in caplog.records] == ["the database takes no writes (commit): no room", "the database takes writes again (renew)"]


def test_a_small_write_that_finds_room_is_not_the_end(refusals, clock, caplog):
    """On a full disk one write is taken and the next refused: nothing is said until none was refused for a while."""
    for _ in range(20):
        refuse(refusals, clock, Refusal.FULL)
        clock.seconds += 5
        refusals.note_taken("renew")
    assert refusals.is_refusing
    assert len(caplog.records) == 1


@pytest.mark.parametrize(("refusal", "seconds"), [(Refusal.BUSY, 0.1), (Refusal.DATA, 10), (Refusal.DUPLICATE, 10), (Refusal.OTHER, 10)])
def test_one_call_s_own_affair_is_not_said(refusals, clock, caplog, refusal, seconds):
    """A short wait for somebody's row, or a value that cannot be stored, says nothing of the others."""
    refuse(refusals, clock, refusal, seconds=seconds)
    assert not refusals.is_refusing
    assert not caplog.records


def test_who_cannot_write_is_no_judge_of_silence(clock):
    """While the database takes no writes nobody counts as answered, however well it reads; afterwards the count begins anew."""

    class Full:
        def transaction(self):
            raise RefusedError(Refusal.FULL, "no room")

    calls = Calls(Full(), Events(), clock)
    clock.seconds += 60
    assert calls.whole_for == 60
    with pytest.raises(RefusedError):
        calls.write_blocking("commit", lambda tx: None)
    clock.seconds += 60
    assert calls.whole_for == 0
    calls.refusals.note_taken("renew")
    assert calls.whole_for == 0
    clock.seconds += 5
    assert calls.whole_for == 5
    calls.close()
