"""What the doctor makes of the facts about a server and the way to it: each check is shown well, and failing. Nothing is read here."""

from datetime import timedelta

import pytest

from outlast.finding import Check, Level
from outlast.limits import CLOCK_OFFSET_MAX, CLOCK_OFFSET_WARNED
from outlast.native.doctor import addresses, clocks, schema_fit, settings, versions
from outlast.native.doctor.addresses import Address, RoundTrip
from outlast.native.doctor.schema_fit import SchemaFit
from outlast.native.doctor.settings import PostgresSettings
from outlast.native.doctor.versions import SqliteJournal

from .doctor_levels import levels, text

OK, WARNING, PROBLEM = Level.OK, Level.WARNING, Level.PROBLEM


def test_the_words_are_frozen():
    """Programs read them in `outlast doctor --json`."""
    assert {level.value for level in Level} == {"ok", "warning", "problem", "not_applicable"}
    words = "database versions settings schema pooler listener clock files connections plan snapshots lanes growth"
    assert [check.value for check in Check] == words.split()


# --- 1: versions -----------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("psycopg", "level"), [("3.3.2", OK), ("3.3.0.dev1", OK), ("4.0", OK), ("3.2.9", PROBLEM), ("unknown", PROBLEM)])
def test_an_older_psycopg_is_a_problem(psycopg, level):
    """Before 3.3 the driver lacks what outlast uses."""
    assert levels(versions.judge_libraries("1.0", "3.12.1", psycopg=psycopg, libpq="17.2")) == [level]


@pytest.mark.parametrize(("major", "level"), [(15, OK), (18, OK), (14, PROBLEM), (9, PROBLEM)])
def test_an_older_server_is_a_problem(major, level):
    """15 is the oldest PostgreSQL that works."""
    assert levels(versions.judge_server(f"{major}.2", major)) == [level]


@pytest.mark.parametrize(
    ("is_wal", "is_safe", "processes", "level"),
    [(False, False, 5, OK), (True, True, 5, OK), (True, False, 0, WARNING), (True, False, 1, WARNING), (True, False, 2, PROBLEM)],
)
def test_write_ahead_logging_on_a_faulty_sqlite_is_a_problem_for_several_processes(is_wal, is_safe, processes, level):
    """The fault needs several processes; one alone is warned."""
    found = versions.judge_journal(SqliteJournal("3.40.1", is_safe, is_wal, processes))
    assert levels(found) == [level]


def test_sqlite_is_told():
    """The versions are in the report for whoever reads it elsewhere."""
    assert "SQLite 3.51.3" in text(versions.judge_sqlite("1.0", "3.12.1", "3.51.3"))


# --- 2: settings -----------------------------------------------------------------------------------------------------------------
GOOD = {"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on", "isolation": "read committed", "idle_session_seconds": 0.0, "is_standby": False}


@pytest.mark.parametrize(
    ("change", "level", "word"),
    [
        ({}, OK, "fsync on"),
        ({"synchronous_commit": "remote_apply"}, OK, "remote_apply"),
        ({"fsync": "off"}, PROBLEM, "fsync"),
        ({"full_page_writes": "off"}, WARNING, "full_page_writes"),
        ({"synchronous_commit": "off"}, WARNING, "synchronous_commit"),
        ({"synchronous_commit": "local"}, WARNING, "synchronous_commit"),
        ({"isolation": "serializable"}, WARNING, "serializable"),
        ({"idle_session_seconds": 600.0}, WARNING, "600 s"),
        ({"is_standby": True}, PROBLEM, "standby"),
    ],
)
def test_settings_that_lose_work_are_named(change, level, word):
    """Each setting that weakens a promise, or cuts what has to last, is a finding of its own."""
    found = settings.judge_postgres(PostgresSettings(**(GOOD | change)))
    assert levels(found) == [level]
    assert word in text(found)


def test_several_faults_are_several_findings():
    """One does not hide another."""
    assert levels(settings.judge_postgres(PostgresSettings(**(GOOD | {"fsync": "off", "isolation": "serializable"})))) == [PROBLEM, WARNING]


@pytest.mark.parametrize(("synchronous", "level"), [(2, OK), (3, OK), (1, PROBLEM), (0, PROBLEM)])
def test_sqlite_that_does_not_wait_for_the_disk_is_a_problem(synchronous, level):
    """Less than FULL can lose what was acknowledged."""
    assert levels(settings.judge_sqlite(synchronous)) == [level]


# --- 3: schema -------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("found", "level", "word"),
    [
        (SchemaFit(3, 2, 3), OK, "version 3"),
        (SchemaFit(4, 3, 3), OK, "can still use"),
        (SchemaFit(None, 0, 3), PROBLEM, "outlast migrate"),
        (SchemaFit(2, 1, 3), PROBLEM, "needs 3"),
        (SchemaFit(5, 4, 3), PROBLEM, "newer outlast"),
    ],
)
def test_a_schema_that_does_not_fit_is_a_problem(found, level, word):
    """Missing, too old, or too new for this code; newer and still usable is fine."""
    judged = schema_fit.judge(found)
    assert levels(judged) == [level]
    assert word in text(judged)


# --- 4, 5: addresses and listener ------------------------------------------------------------------------------------------------
DIRECT = Address(promised_backend=7, backend=7, schema_id="one")
POOLED = Address(promised_backend=7, backend=8, schema_id="one")


@pytest.mark.parametrize(
    ("main", "direct", "is_given", "level", "word"),
    [
        (DIRECT, DIRECT, False, OK, "no pooler"),
        (POOLED, DIRECT, True, OK, "reach the server itself"),
        (POOLED, POOLED, False, WARNING, "direct_url="),
        (POOLED, POOLED, True, WARNING, "direct_url goes"),
        (DIRECT, Address(error="refused"), True, PROBLEM, "refused"),
        (DIRECT, Address(promised_backend=7, backend=7, schema_id="other"), True, PROBLEM, "another database"),
        (DIRECT, Address(promised_backend=7, backend=7, schema_id=None), True, PROBLEM, "another database"),
        (DIRECT, Address(promised_backend=7, backend=7, is_standby=True, schema_id="one"), True, PROBLEM, "standby"),
    ],
)
def test_a_pooler_or_a_wrong_direct_address_is_seen(main, direct, is_given, level, word):
    """A pooler is seen by another process answering than the one that greeted."""
    found = addresses.judge_pooler(main, direct, is_direct_given=is_given)
    assert levels(found) == [level]
    assert word in text(found)


@pytest.mark.parametrize(("milliseconds", "level"), [(3.0, OK), (None, WARNING)])
def test_a_wake_up_that_does_not_come_back_is_a_warning(milliseconds, level):
    """Polls stand behind wake-ups, so it is slower and not wrong."""
    assert levels(addresses.judge_listener(RoundTrip(milliseconds, 4.0))) == [level]


# --- 6: clock --------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("offset", "uncertainty", "level"),
    [
        (timedelta(), timedelta(), OK),
        (CLOCK_OFFSET_WARNED, timedelta(), OK),
        (CLOCK_OFFSET_WARNED * 1.1, timedelta(), WARNING),
        (-CLOCK_OFFSET_WARNED * 1.1, timedelta(), WARNING),
        (CLOCK_OFFSET_MAX * 1.1, timedelta(), PROBLEM),
        (-CLOCK_OFFSET_MAX * 1.1, timedelta(), PROBLEM),
        (CLOCK_OFFSET_WARNED * 1.1, CLOCK_OFFSET_WARNED, OK),
    ],
)
def test_a_clock_that_is_certainly_wrong_is_named(offset, uncertainty, level):
    """A slow answer proves nothing: only what exceeds the uncertainty counts."""
    assert levels(clocks.judge_offset(offset, uncertainty)) == [level]


def test_the_direction_of_an_offset_is_told_rightly():
    """A database that is later than this machine means that this machine is behind."""
    assert "behind" in text(clocks.judge_offset(timedelta(minutes=5), timedelta()))
    assert "ahead" in text(clocks.judge_offset(timedelta(minutes=-5), timedelta()))


@pytest.mark.parametrize(("ahead", "level"), [(None, OK), (timedelta(seconds=-3), OK), (timedelta(minutes=2), WARNING)])
def test_a_lease_from_the_future_shows_that_the_clock_was_set_back(ahead, level):
    """On SQLite the machine's clock is the database's, and workers leave its time in their rows."""
    assert levels(clocks.judge_own(ahead)) == [level]
