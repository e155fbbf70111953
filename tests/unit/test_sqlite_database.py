"""The SQLite database: what is kept, what is refused and in which words, and what a broken or foreign file does."""

import contextlib
import os
import sqlite3
import stat
import threading
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from outlast.database.sqlite import Journal, SqliteDatabase
from outlast.database.sqlite.connection import has_safe_wal
from outlast.database.sqlite.refusals import translated
from outlast.database.transaction import Refusal, RefusedError
from outlast.errors import CommitUnknownError, SchemaError, UnavailableError, UsageError


@pytest.fixture(params=["wal", "delete"])
def database(tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    database = SqliteDatabase(tmp_path / "x.db", journal=request.param)
    with database.transaction() as tx:
        tx.run("CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT NOT NULL)")
    yield database
    database.close()


@pytest.fixture
def impatient(database: SqliteDatabase) -> Any:
    """The same file through an object that does not wait long."""
    impatient = SqliteDatabase(database.path, busy_timeout=timedelta(milliseconds=100))
    yield impatient
    impatient.close()


def names(database: SqliteDatabase) -> list[str]:
    with database.reading() as tx:
        return [name for (name,) in tx.run("SELECT name FROM item ORDER BY id").all()]


def test_a_block_that_ends_is_kept(database: SqliteDatabase) -> None:
    """What a transaction wrote is read by the next."""
    with database.transaction() as tx:
        assert tx.run("INSERT INTO item (name) VALUES (:name)", {"name": "a"}).count == 1
        assert tx.run_many("INSERT INTO item (name) VALUES (:name)", [{"name": "b"}, {"name": "c"}]) == 2
        assert tx.run("SELECT id FROM item WHERE name = 'b'").first() == (2,)
    assert names(database) == ["a", "b", "c"]


def test_a_block_that_raises_is_undone(database: SqliteDatabase) -> None:
    """An exception leaves nothing behind and passes unchanged."""

    def write_and_fail() -> None:
        with database.transaction() as tx:
            tx.run("INSERT INTO item (name) VALUES ('a')")
            raise KeyError

    with pytest.raises(KeyError):
        write_and_fail()
    assert names(database) == []


def test_a_refused_statement_undoes_the_block_even_if_it_is_swallowed(database: SqliteDatabase) -> None:
    """Nothing of a transaction in which a statement was refused is there, and no later statement of it runs."""

    def write_and_swallow() -> None:
        with database.transaction() as tx:
            tx.run("INSERT INTO item (id, name) VALUES (1, 'a')")
            for key in (1, 2):
                with suppress(RefusedError):
                    tx.run("INSERT INTO item (id, name) VALUES (:key, 'b')", {"key": key})

    with pytest.raises(RefusedError) as refused:
        write_and_swallow()
    assert refused.value.refusal is Refusal.DUPLICATE
    assert names(database) == []


@pytest.mark.parametrize(
    ("sql", "value", "refusal"),
    [
        ("INSERT INTO item (name) VALUES (:value)", None, Refusal.DATA),
        ("INSERT INTO item (id, name) VALUES (:value, 'a')", 1 << 64, Refusal.DATA),
        ("INSERT INTO item (name) VALUES (:value)", "\ud800", Refusal.DATA),
        ("INSERT INTO item (name) VALUES (:value)", object(), Refusal.DATA),
        ("SELECT :value FROM", 1, Refusal.OTHER),
    ],
)
def test_what_cannot_be_stored_is_refused(database: SqliteDatabase, sql: str, value: Any, refusal: Refusal) -> None:
    """A bad value or statement is an error of the library's own that says which kind it is."""
    with pytest.raises(RefusedError) as refused, database.transaction() as tx:
        tx.run(sql, {"value": value})
    assert refused.value.refusal is refusal


def test_a_missing_table_is_a_schema_error(database: SqliteDatabase) -> None:
    """Code on a database without its tables is told to migrate."""
    with pytest.raises(SchemaError, match="outlast migrate"), database.reading() as tx:
        tx.run("SELECT 1 FROM no_such_thing")


def test_a_reading_transaction_cannot_write(database: SqliteDatabase) -> None:
    """What is opened for reading refuses a change."""
    with pytest.raises(RefusedError) as refused, database.reading() as tx:
        tx.run("INSERT INTO item (name) VALUES ('a')")
    assert refused.value.refusal is Refusal.READ_ONLY


def test_reading_sees_one_moment(database: SqliteDatabase) -> None:
    """A reading transaction does not see half of another one's writes."""
    written = threading.Event()

    def write() -> None:
        with database.transaction() as tx:
            tx.run("INSERT INTO item (name) VALUES ('a')")
            written.set()

    with database.reading() as tx:
        assert tx.run("SELECT count(*) FROM item").first() == (0,)
        writer = threading.Thread(target=write)
        writer.start()
        assert written.wait(10)
        assert tx.run("SELECT count(*) FROM item").first() == (0,)
    writer.join()
    assert names(database) == ["a"]


def test_threads_take_turns(database: SqliteDatabase) -> None:
    """Many threads write through one database object and lose nothing."""

    def write() -> None:
        for _ in range(10):
            with database.transaction() as tx:
                [(count,)] = tx.run("SELECT count(*) FROM item").all()
                tx.run("INSERT INTO item (id, name) VALUES (:id, 'a')", {"id": count + 1})

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(names(database)) == 40


def test_a_thread_that_would_wait_for_itself_is_told(database: SqliteDatabase) -> None:
    """A transaction inside another of the same thread is an error and not a deadlock."""
    with database.transaction(), pytest.raises(UsageError, match="already"), database.transaction():
        pass
    with database.reading(), pytest.raises(UsageError, match="reading"), database.transaction():
        pass
    assert names(database) == []


def test_a_thread_that_keeps_the_file_is_waited_for_with_a_bound(impatient: SqliteDatabase) -> None:
    """A writer that does not end makes others busy, not hang."""
    entered, leave = threading.Event(), threading.Event()

    def keep() -> None:
        with impatient.transaction():
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=keep)
    thread.start()
    assert entered.wait(10)
    with pytest.raises(RefusedError) as refused, impatient.transaction():
        pass
    leave.set()
    thread.join()
    assert refused.value.refusal is Refusal.BUSY


def test_another_writer_makes_the_file_busy(impatient: SqliteDatabase) -> None:
    """A lock of somebody else's is waited for so long and then named."""
    other = sqlite3.connect(impatient.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        with pytest.raises(RefusedError) as refused, impatient.transaction():
            pass
    finally:
        other.close()
    assert refused.value.refusal is Refusal.BUSY
    with impatient.transaction() as tx:
        tx.run("INSERT INTO item (name) VALUES ('a')")
    assert names(impatient) == ["a"]


def test_a_foreign_reader_that_stays_makes_the_commit_busy(tmp_path: Path) -> None:
    """Under the rollback journal a commit that a foreign reader stops is undone and can be tried again."""
    database = SqliteDatabase(tmp_path / "x.db", journal="delete", busy_timeout=timedelta(milliseconds=100))
    with database.transaction() as tx:
        tx.run("CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT)")
    other = sqlite3.connect(database.path, isolation_level=None)
    other.execute("BEGIN")
    other.execute("SELECT * FROM item").fetchall()
    with pytest.raises(RefusedError) as refused, database.transaction() as tx:
        tx.run("INSERT INTO item (name) VALUES ('lost')")
    assert refused.value.refusal is Refusal.BUSY
    other.close()
    with database.transaction() as tx:
        tx.run("INSERT INTO item (name) VALUES ('kept')")
    assert names(database) == ["kept"]
    database.close()


def test_a_new_file_is_its_owner_s_alone(tmp_path: Path) -> None:
    """What users pass to tasks can be read by nobody else."""
    database = SqliteDatabase(tmp_path / "x.db", journal="wal")
    with database.transaction() as tx:
        tx.run("CREATE TABLE item (id INTEGER)")
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    database.close()
    assert "x.db-wal" in modes
    assert set(modes.values()) == {0o600}


def test_commits_are_durable(database: SqliteDatabase) -> None:
    """Every writing connection waits for the disk and checks references."""
    with database.transaction() as tx:
        assert tx.run("PRAGMA synchronous").first() == (2,)
        assert tx.run("PRAGMA foreign_keys").first() == (1,)


def test_the_journal_follows_the_version(tmp_path: Path) -> None:
    """Without a choice the rollback journal is used where write-ahead logging can lose a commit, and only there."""
    database = SqliteDatabase(tmp_path / "x.db")
    with database.transaction() as tx:
        assert tx.run("PRAGMA journal_mode").first() == ("wal" if has_safe_wal() else "truncate",)
    database.close()


@pytest.mark.parametrize(
    ("version", "is_safe"), [((3, 40, 1), False), ((3, 44, 6), True), ((3, 45, 0), False), ((3, 50, 7), True), ((3, 51, 2), False), ((3, 51, 3), True)]
)
def test_safe_versions_are_known(monkeypatch: pytest.MonkeyPatch, version: tuple[int, ...], is_safe: bool) -> None:
    """The versions with the mended write-ahead log are told from those without."""
    monkeypatch.setattr(sqlite3, "sqlite_version_info", version)
    assert has_safe_wal() is is_safe


@pytest.mark.parametrize(
    ("version", "mode"), [((3, 40, 0), "truncate"), ((3, 44, 6), "wal"), ((3, 50, 7), "wal"), ((3, 51, 2), "truncate"), ((3, 51, 3), "wal")]
)
def test_the_file_gets_the_journal_that_is_safe_for_the_version(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: tuple[int, ...], mode: str) -> None:
    """What the version decides is what the file has, as another connection sees it, and a commit leaves that journal's file."""
    monkeypatch.setattr(sqlite3, "sqlite_version_info", version)
    database = SqliteDatabase(tmp_path / "x.db")
    with database.transaction() as tx:
        tx.run("CREATE TABLE item (id INTEGER)")
    with contextlib.closing(sqlite3.connect(tmp_path / "x.db")) as connection:
        (kept,) = connection.execute("PRAGMA journal_mode").fetchone()
    assert (kept == "wal") is (mode == "wal")  # of the rollback journals only write-ahead logging is written into the file
    assert (tmp_path / "x.db-wal").exists() is (mode == "wal")
    assert (tmp_path / "x.db-journal").exists() is (mode == "truncate")
    database.close()


def test_a_file_with_another_journal_is_changed_when_nobody_has_it(tmp_path: Path) -> None:
    """The journal that was chosen is used, whatever the file had before."""
    for journal, mode in (("wal", "wal"), ("delete", "truncate"), ("wal", "wal")):
        database = SqliteDatabase(tmp_path / "x.db", journal=journal)  # type: ignore[arg-type]  # a plain str from the list
        with database.transaction() as tx:
            tx.run("CREATE TABLE IF NOT EXISTS item (id INTEGER)")
            assert tx.run("PRAGMA journal_mode").first() == (mode,)
        database.close()


def test_a_file_in_use_keeps_its_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who did not choose goes along with whoever has the file open, and at once."""
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 40, 1))
    first = SqliteDatabase(tmp_path / "x.db", journal="wal")
    with first.transaction() as tx:
        tx.run("CREATE TABLE item (id INTEGER)")
    second = SqliteDatabase(tmp_path / "x.db")
    with second.transaction() as tx:
        assert tx.run("PRAGMA journal_mode").first() == ("wal",)
    first.close()
    second.close()


@pytest.mark.parametrize("name", [":memory:", "", "file:x?mode=memory"])
def test_a_memory_database_is_refused_with_the_reason(name: str) -> None:
    """What ends with its process cannot hold runs."""
    with pytest.raises(UsageError, match="outlast the process"):
        SqliteDatabase(name)


def test_a_wrong_journal_is_refused() -> None:
    """A setting that does not exist is refused when the object is made."""
    with pytest.raises(UsageError, match="'auto'"):
        SqliteDatabase("x.db", journal="memory")  # type: ignore[arg-type]  # the point of the test


def test_opening_does_nothing(tmp_path: Path) -> None:
    """An object that is made and closed leaves no file."""
    SqliteDatabase(tmp_path / "x.db").close()
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    """Folders are not made for the user."""
    with pytest.raises(UsageError, match="nowhere"), SqliteDatabase(tmp_path / "nowhere" / "x.db").transaction():
        pass


def test_a_folder_is_no_database(tmp_path: Path) -> None:
    """A folder in the place of the file is named."""
    with pytest.raises(UsageError, match="is a folder"), SqliteDatabase(tmp_path).transaction():
        pass


def test_a_file_of_another_kind_is_left_alone(tmp_path: Path) -> None:
    """A file that is no database is named and not written."""
    file = tmp_path / "letter.txt"
    file.write_text("Dear reader, this is not a database. " * 100)
    before = file.read_bytes()
    with pytest.raises(UsageError, match=r"letter\.txt is not an SQLite database"), SqliteDatabase(file).transaction():
        pass
    assert file.read_bytes() == before


def test_a_full_disk_is_named_and_survived(database: SqliteDatabase) -> None:
    """A write that finds no room is refused as such, and the next one that fits is kept."""
    with database.transaction() as tx:
        [(pages,)] = tx.run("PRAGMA page_count").all()
        tx.run(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(RefusedError) as refused, database.transaction() as tx:
        tx.run("INSERT INTO item (name) VALUES (:name)", {"name": "x" * 100_000})
    assert refused.value.refusal is Refusal.FULL
    with database.transaction() as tx:
        tx.run("INSERT INTO item (name) VALUES ('small')")
    assert names(database) == ["small"]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (sqlite3.SQLITE_READONLY, Refusal.READ_ONLY),
        (sqlite3.SQLITE_FULL, Refusal.FULL),
        (sqlite3.SQLITE_NOMEM, Refusal.FULL),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, Refusal.BUSY),
        (sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, Refusal.DUPLICATE),
        (sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY, Refusal.DATA),
        (sqlite3.SQLITE_CORRUPT, Refusal.OTHER),
    ],
)
def test_result_codes_have_one_meaning(code: int, expected: Refusal) -> None:
    """Each result code that can come is told apart, extended ones too, and the file is named."""
    error = sqlite3.OperationalError("text of SQLite")
    error.sqlite_errorcode = code
    refused = translated(error, "/somewhere/x.db")
    assert isinstance(refused, RefusedError)
    assert refused.refusal is expected
    assert "/somewhere/x.db" in str(refused)


@pytest.mark.parametrize("code", [sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_CANTOPEN_FULLPATH])
def test_an_unreachable_file_is_unavailable(code: int) -> None:
    """What may work later is told from what the database refused."""
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = code
    assert isinstance(translated(error, "x.db"), UnavailableError)


def test_an_error_in_the_middle_of_a_commit_leaves_it_open(database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that the disk failed is unknown, and the next transaction opens the file anew."""

    class Failing(sqlite3.Connection):
        def execute(self, sql: str, *rest: Any) -> sqlite3.Cursor:
            if sql == "COMMIT":
                error = sqlite3.OperationalError("disk I/O error")
                error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
                raise error
            return super().execute(sql, *rest)

    with monkeypatch.context() as patch:
        failing = sqlite3.connect(database.path, isolation_level=None, factory=Failing, check_same_thread=False)
        patch.setattr(database, "_writer", failing)
        with pytest.raises(CommitUnknownError), database.transaction() as tx:
            tx.run("INSERT INTO item (name) VALUES ('a')")
        assert database._writer is None
        patch.undo()
    database._writer = None
    with database.transaction() as tx:
        tx.run("INSERT INTO item (name) VALUES ('b')")
    assert names(database) == ["b"]


@pytest.mark.parametrize("journal", ["wal", "delete"])
@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_file_that_was_moved_takes_nothing_more(tmp_path: Path, journal: Journal, is_replaced: bool) -> None:
    """What is written into a file without a name is lost: it is refused, also by readers, until the file is back."""
    file, elsewhere = tmp_path / "thing.db", tmp_path / "elsewhere.db"
    database = SqliteDatabase(file, journal=journal)
    with database.transaction() as tx:
        tx.run("CREATE TABLE thing (id INTEGER PRIMARY KEY)")
    with database.reading() as tx:
        tx.run("SELECT id FROM thing")
    file.rename(elsewhere)
    if is_replaced:
        file.touch()
    with pytest.raises(UnavailableError, match="moved, deleted or replaced"), database.transaction() as tx:
        tx.run("INSERT INTO thing VALUES (1)")
    with pytest.raises(UnavailableError, match="moved, deleted or replaced"), database.reading() as tx:
        tx.run("SELECT id FROM thing")
    elsewhere.rename(file)
    with database.transaction() as tx:
        tx.run("INSERT INTO thing VALUES (2)")
    with database.reading() as tx:
        assert tx.run("SELECT id FROM thing").all() == [(2,)]
    database.close()


def test_a_closed_database_stays_closed(database: SqliteDatabase) -> None:
    """Closing twice is harmless, and nothing is opened again."""
    database.close()
    database.close()
    with pytest.raises(UsageError, match="closed"), database.transaction():
        pass
    with pytest.raises(UsageError, match="closed"), database.reading():
        pass


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_is_refused(database: SqliteDatabase) -> None:
    """SQLite's locks do not go over a fork, so that a child has to connect for itself."""
    child = os.fork()
    if child == 0:
        try:
            with database.reading():
                pass
        except UsageError:
            os._exit(7)
        os._exit(8)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7
    assert names(database) == []
