"""The doctor on real SQLite files: each check is seen failing for a cause of its own, and nothing is changed."""

import asyncio
import os
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from outlast import ids
from outlast.finding import Check, Level
from outlast.native.doctor import clocks, examine, growth, settings, snapshots
from outlast.native.sqlite import disk, sqlite_backend
from outlast.native.sqlite.examiner import SqliteExaminer
from outlast.native.store import LaneName, NewRun, NewWorker

FAULTY, SOUND = (3, 40, 1), (3, 51, 3)
OK, WARNING, PROBLEM, NOT_APPLICABLE = Level.OK, Level.WARNING, Level.PROBLEM, Level.NOT_APPLICABLE
LANE = LaneName("default", "greet", 1)


class File:
    """One database on a disk, and what the doctor says of it."""

    def __init__(self, path):
        self.path = path
        self.tasks = ()

    def make(self, journal="auto"):
        """Make the tables, and one lane."""
        with self.opened(journal) as (backend, tx):
            self.lane = backend.store.ensure_lanes(tx, [LANE])[LANE]

    def opened(self, journal="auto"):
        """A writing transaction of outlast's own, on tables that are there."""
        return Opened(self.path, journal)

    def record_worker(self, process="another", lease=timedelta(seconds=30), now=None):
        with self.opened() as (backend, tx):
            backend.store.record_worker(tx, NewWorker(ids.worker_id(), "a worker", process, lease, (self.lane,), "[]"), now)

    def record_runs(self, count, **changes):
        run = NewRun("", self.lane, LANE.kind, LANE.version, 0, None, None, 1, "null", "digest", None, "[]", "{}")
        with self.opened() as (backend, tx):
            backend.store.record_runs(tx, [replace(run, id=ids.run_id(), **changes) for _ in range(count)])

    def execute(self, sql):
        """Do something by SQLite itself, the way outlast commits."""
        with closing(sqlite3.connect(self.path)) as connection:
            if connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
                connection.execute("PRAGMA journal_mode = TRUNCATE")
            connection.execute(sql)
            connection.commit()

    def findings(self, check=None):
        found = asyncio.run(examine(SqliteExaminer(self.path), self.tasks))
        return found if check is None else [finding for finding in found if finding.check is check]

    def levels(self, check):
        return [finding.level for finding in self.findings(check)]


class Opened:
    def __init__(self, path, journal):
        self._backend = sqlite_backend(path, journal=journal)

    def __enter__(self):
        self._backend.schema.ensure("create")
        self._transaction = self._backend.database.transaction()
        return self._backend, self._transaction.__enter__()

    def __exit__(self, *exception):
        self._transaction.__exit__(*exception)
        self._backend.database.close()


@pytest.fixture
def empty(tmp_path, monkeypatch):
    """A place for a database, on what looks like a local disk whatever the tests run on."""
    mounts = tmp_path / "mounts"
    mounts.write_text("21 1 8:1 / / rw - ext4 /dev/sda1 rw\n")
    monkeypatch.setattr(disk, "_MOUNTS", mounts)
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    return File(folder / "outlast.db")


@pytest.fixture
def file(empty):
    """A database with the rollback journal, as on a faulty SQLite."""
    empty.make("delete")
    return empty


def test_a_sound_file_has_no_finding(file):
    """Every check has its line, and none of them is wrong."""
    file.record_worker()
    file.record_runs(3)
    found = file.findings()
    assert {finding.check for finding in found} == set(Check)
    assert [finding for finding in found if finding.level in (WARNING, PROBLEM)] == []
    not_applicable = {finding.check for finding in found if finding.level is NOT_APPLICABLE}
    assert not_applicable == {Check.POOLER, Check.LISTENER, Check.CONNECTIONS, Check.SNAPSHOTS, Check.GROWTH}


def test_nothing_is_changed(file):
    """Neither the file nor what lies beside it."""
    file.record_runs(3)
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in file.path.parent.iterdir()}
    file.findings()
    assert {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in file.path.parent.iterdir()} == before


def test_a_missing_file_is_not_made(empty):
    """What needs no database is looked at all the same."""
    found = empty.findings()
    assert [finding.check for finding in found if finding.level is PROBLEM] == [Check.DATABASE]
    assert {finding.check for finding in found if finding.level is OK} == {Check.VERSIONS, Check.FILES}
    assert list(empty.path.parent.iterdir()) == []


def test_a_file_without_the_tables_is_a_problem(empty):
    """It is told once, with the command."""
    empty.execute("CREATE TABLE shop (id)")
    found = empty.findings()
    assert [finding.check for finding in found if finding.level is PROBLEM] == [Check.SCHEMA]
    assert "outlast migrate" in next(finding.remedy for finding in found if finding.level is PROBLEM)


def test_what_is_no_database_is_a_problem(empty):
    """Any other file."""
    empty.path.write_bytes(b"this is no database " * 100)
    (found,) = empty.findings(Check.DATABASE)
    assert (found.level, "not an SQLite database" in found.message) == (PROBLEM, True)


@pytest.mark.parametrize(("change", "word"), [("version = 0", "outlast migrate"), ("oldest_code = 99, version = 99", "newer outlast")])
def test_a_schema_that_does_not_fit_is_a_problem(file, change, word):
    """Older than this code, or only for newer code."""
    file.execute(f"UPDATE outlast_meta SET {change}")
    (found,) = file.findings(Check.SCHEMA)
    assert (found.level, word in found.remedy) == (PROBLEM, True)


@pytest.mark.parametrize(
    ("version", "processes", "level"),
    [(FAULTY, ["one"], WARNING), (FAULTY, ["one", "one"], WARNING), (FAULTY, ["one", "two"], PROBLEM), (SOUND, ["one", "two"], OK)],
)
def test_write_ahead_logging_is_judged_by_the_version_and_by_who_lives(empty, monkeypatch, version, processes, level):
    """Several processes on a faulty SQLite can lose a commit."""
    empty.make("wal")
    for process in processes:
        empty.record_worker(process)
    empty.execute("PRAGMA journal_mode = WAL")  # what opens it with "auto" on a faulty version has changed it back
    monkeypatch.setattr(sqlite3, "sqlite_version_info", version)
    assert empty.levels(Check.VERSIONS) == [OK, level]


def test_a_commit_that_does_not_wait_for_the_disk_is_a_problem(file, monkeypatch):
    """What the pragma answers is what is judged."""
    monkeypatch.setattr(settings, "_SYNCHRONOUS_FULL", 3)
    assert file.levels(Check.SETTINGS) == [PROBLEM]


def test_a_clock_that_was_set_back_is_a_warning(file):
    """A living worker has renewed its lease at a time that has not come yet."""
    file.record_worker(now=datetime.now(UTC) + 3 * clocks.CLOCK_OFFSET_MAX)
    assert file.levels(Check.CLOCK) == [WARNING]


@pytest.mark.parametrize(
    ("name", "mode", "level"),
    [
        ("outlast.db", 0o666, PROBLEM),
        ("outlast.db", 0o644, WARNING),
        ("outlast.db-journal", 0o622, PROBLEM),
        ("outlast.db-workers", 0o777, PROBLEM),
        (".", 0o777, PROBLEM),
    ],
)
def test_modes_that_let_others_in_are_named(file, name, mode, level):
    """The file, its journal, the folder of lock files, and the folder that all lies in."""
    (file.path.parent / "outlast.db-workers").mkdir(mode=0o700)
    os.chmod(file.path.parent / name, mode)
    (found,) = file.findings(Check.FILES)
    assert (found.level, str(file.path.parent / name) in found.message) == (level, True)


def test_a_lock_file_that_everybody_may_write_is_a_problem(file):
    """Who can lock it can make a dead worker look alive."""
    folder = file.path.parent / "outlast.db-workers"
    folder.mkdir(mode=0o700)
    (folder / "1-a").touch()
    os.chmod(folder / "1-a", 0o666)
    assert file.levels(Check.FILES) == [PROBLEM]


def test_a_network_file_system_is_a_problem(file):
    """SQLite's locks do not work there."""
    disk._MOUNTS.write_text(f"21 1 8:1 / / rw - ext4 /dev/sda1 rw\n22 21 0:30 / {file.path.parent} rw - nfs4 server:/x rw\n")
    (found,) = file.findings(Check.FILES)
    assert (found.level, "nfs4" in found.message) == (PROBLEM, True)


def test_a_program_that_deletes_the_journal_is_a_warning(file):
    """SQLite's own default, which loses the last commit in a power cut between two writes of a folder."""
    assert file.levels(Check.FILES) == [OK]
    with closing(sqlite3.connect(file.path)) as connection:
        connection.execute("CREATE TABLE shop (id)")
    assert file.levels(Check.FILES) == [WARNING]


@pytest.mark.parametrize("index", ["outlast_run_claim"])
def test_a_claim_without_its_index_is_a_problem(file, index):
    """The statement that is planned is the very one that workers run."""
    assert file.levels(Check.PLAN) == [OK]
    file.execute(f"DROP INDEX {index}")
    found = file.findings(Check.PLAN)
    assert [finding.level for finding in found] == [PROBLEM]
    assert "probe_lanes" in found[0].message


def test_a_log_that_a_reader_holds_is_a_warning(empty, monkeypatch):
    """While a program keeps a transaction open, the write-ahead log grows with every commit."""
    empty.make("wal")
    empty.execute("PRAGMA journal_mode = WAL")
    monkeypatch.setattr(snapshots, "WAL_BYTES_WARNED", 4096)
    with closing(sqlite3.connect(empty.path)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM outlast_run").fetchall()
        empty.execute("CREATE TABLE shop (id)")
        assert empty.levels(Check.SNAPSHOTS) == [WARNING]


def test_runs_without_a_worker_are_a_problem(file):
    """Until a worker that has them lives."""
    file.record_runs(3)
    (found,) = file.findings(Check.LANES)
    assert (found.level, "greet v1" in found.message, "3 runs" in found.message) == (PROBLEM, True, True)
    file.record_worker()
    assert file.levels(Check.LANES) == [OK]


def test_a_version_that_an_application_lacks_is_a_warning(file):
    """Its runs would be stranded if it took over."""
    file.record_runs(3)
    file.record_worker()
    file.tasks = {("greet", 2)}
    (found,) = file.findings(Check.LANES)
    assert (found.level, "greet v1" in found.message) == (WARNING, True)
    file.tasks = {("greet", 2), ("greet", 1)}
    assert file.levels(Check.LANES) == [OK]


def test_many_keys_are_a_warning(file, monkeypatch):
    """They are counted, and no further than the bound."""
    for name in ("outlast.native.doctor.growth", "outlast.native.sqlite.examiner"):
        monkeypatch.setattr(f"{name}.KEYS_COUNTED_MAX", 2)
    for key in ("a", "b"):
        file.record_runs(1, idempotency_key=key)
    assert file.levels(Check.GROWTH) == [OK, NOT_APPLICABLE]
    file.record_runs(1, idempotency_key="c")
    assert file.levels(Check.GROWTH) == [WARNING, NOT_APPLICABLE]
    assert growth.KEYS_COUNTED_MAX == 2


def test_an_outbox_is_found_by_its_table(file):
    """Whether there is one is asked of the database."""
    file.execute("CREATE TABLE outlast_outbox_event (id)")
    assert file.levels(Check.GROWTH) == [OK, WARNING]


def test_a_file_that_is_locked_is_a_problem_in_time(file, monkeypatch):
    """Another program's exclusive lock is not waited for longer than a check may take."""
    monkeypatch.setattr("outlast.native.sqlite.examiner.DOCTOR_CHECK_TIMEOUT", timedelta(milliseconds=200))
    with closing(sqlite3.connect(file.path)) as other:
        other.execute("BEGIN EXCLUSIVE")
        (found,) = file.findings(Check.DATABASE)
    assert (found.level, "locked" in found.message) == (PROBLEM, True)
