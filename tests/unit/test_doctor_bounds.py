"""The doctor never raises and never hangs: whatever an examination does, it becomes a finding in time."""

import asyncio
import threading
from datetime import timedelta

import pytest

from outlast.database.transaction import Refusal, RefusedError
from outlast.errors import SchemaError, UnavailableError, UsageError
from outlast.finding import Check, Level, ok
from outlast.native.doctor import Examination, Needs, examine

LONG = timedelta(seconds=60)
SOON = timedelta(milliseconds=50)


class Patient:
    """An examiner that does what a test says."""

    url = "test://patient"

    def __init__(self, *examinations, reach=lambda: True):
        self.reach = reach
        self._examinations = examinations
        self.interrupted = threading.Event()
        self.closed = threading.Event()

    def examinations(self, tasks):
        return self._examinations

    def interrupt(self):
        self.interrupted.set()

    def close(self):
        self.closed.set()


def raising(error):
    def act():
        raise error

    return act


def well(check, needs=Needs.NOTHING):
    return Examination(check, needs, lambda: [ok(check, "well")])


def asked(patient, **options):
    return [(finding.check, finding.level) for finding in asyncio.run(examine(patient, **options))]


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (SchemaError("old"), "migrate"),
        (UnavailableError("down"), "address"),
        (RefusedError(Refusal.OTHER, "permission denied"), "privileges"),
        (UsageError("bad"), "message"),
    ],
)
def test_what_an_examination_raises_is_a_finding(error, remedy):
    """With the message, and with a remedy that fits it; the others are asked all the same."""
    patient = Patient(Examination(Check.PLAN, Needs.DATABASE, raising(error)), well(Check.FILES))
    findings = asyncio.run(examine(patient))
    assert [(finding.check, finding.level) for finding in findings] == [(Check.DATABASE, Level.OK), (Check.PLAN, Level.PROBLEM), (Check.FILES, Level.OK)]
    assert str(error) in findings[1].message
    assert remedy in findings[1].remedy
    assert patient.closed.is_set()


def test_a_fault_of_the_doctor_itself_is_a_finding():
    """Even a mistake in a check ends in a report."""
    patient = Patient(Examination(Check.PLAN, Needs.NOTHING, raising(KeyError("Node Type"))))
    assert asked(patient) == [(Check.DATABASE, Level.OK), (Check.DATABASE, Level.PROBLEM)]
    assert patient.closed.is_set()


def test_without_a_database_only_what_needs_none_is_looked_at():
    """One fault shows once, and not twelve times."""
    patient = Patient(
        well(Check.VERSIONS), well(Check.SCHEMA, Needs.DATABASE), well(Check.LANES, Needs.SCHEMA), reach=raising(UnavailableError("nobody is there"))
    )
    expected = [(Check.DATABASE, Level.PROBLEM), (Check.VERSIONS, Level.OK), (Check.SCHEMA, Level.NOT_APPLICABLE), (Check.LANES, Level.NOT_APPLICABLE)]
    assert asked(patient) == expected


def test_without_the_tables_only_what_needs_them_is_left_out():
    """The server can be looked at before the first migration."""
    patient = Patient(well(Check.SETTINGS, Needs.DATABASE), well(Check.LANES, Needs.SCHEMA), reach=lambda: False)
    assert asked(patient) == [(Check.DATABASE, Level.OK), (Check.SETTINGS, Level.OK), (Check.LANES, Level.NOT_APPLICABLE)]


def test_once_the_database_is_lost_it_is_not_waited_for_again():
    """What comes after the first answer that failed to come is left out."""
    patient = Patient(Examination(Check.SETTINGS, Needs.DATABASE, raising(UnavailableError("gone"))), well(Check.PLAN, Needs.SCHEMA), well(Check.FILES))
    expected = [(Check.DATABASE, Level.OK), (Check.SETTINGS, Level.PROBLEM), (Check.PLAN, Level.NOT_APPLICABLE), (Check.FILES, Level.OK)]
    assert asked(patient) == expected


def test_a_check_that_takes_too_long_is_interrupted():
    """The call that it waits in is ended from outside, and the report goes on."""

    def wait():
        assert patient.interrupted.wait(LONG.total_seconds())
        raise UnavailableError("the connection broke")

    patient = Patient(Examination(Check.LISTENER, Needs.NOTHING, wait), well(Check.FILES))
    assert asked(patient, check_timeout=SOON) == [(Check.DATABASE, Level.OK), (Check.LISTENER, Level.PROBLEM), (Check.FILES, Level.OK)]


def test_what_cannot_be_interrupted_is_left_behind():
    """The report comes in time all the same, with what was found so far, and says that it is not whole."""
    released = threading.Event()
    patient = Patient(well(Check.FILES), Examination(Check.LISTENER, Needs.NOTHING, lambda: [ok(Check.LISTENER, str(released.wait(LONG.total_seconds())))]))
    try:
        assert asked(patient, timeout=SOON * 10) == [(Check.DATABASE, Level.OK), (Check.FILES, Level.OK), (Check.DATABASE, Level.PROBLEM)]
    finally:
        released.set()
    assert patient.closed.wait(LONG.total_seconds())


def test_the_tasks_that_are_asked_about_reach_the_examiner():
    """What `--app` knows is what the checks are asked with."""
    seen = []
    patient = Patient()
    patient.examinations = lambda tasks: seen.append(tasks) or ()
    asyncio.run(examine(patient, {("greet", 2)}))
    assert seen == [{("greet", 2)}]
