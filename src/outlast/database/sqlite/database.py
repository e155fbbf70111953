"""SqliteDatabase: one file, one writing connection of this process and one that reads. It knows no tables.

Every writing transaction is immediate, so that what is read in it stays true until its commit, across processes too.
Under the rollback journal a reader stops every commit: reading transactions have to be short, and inside the process
commits and readers take turns instead of meeting in SQLite's back-off.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypeVar

from outlast.clock import Clock, SystemClock
from outlast.errors import CommitUnknownError, UnavailableError, UsageError
from outlast.ids import jitter
from outlast.limits import SQLITE_BUSY_TIMEOUT

from .connection import Journal, ensure_supported, file_identity, open_connection, set_journal
from .refusals import is_busy, is_connection_spoilt, primary_code, translated
from .transaction import SqliteTransaction
from .turn import Turn

T = TypeVar("T")
_BUSY_PAUSE = timedelta(milliseconds=20)


class SqliteDatabase:
    """A `Database` on an SQLite file. Calls block, may come from any thread, and wait for at most `busy_timeout`."""

    def __init__(
        self, path: str | os.PathLike[str], *, journal: Journal = "auto", busy_timeout: timedelta = SQLITE_BUSY_TIMEOUT, clock: Clock | None = None
    ) -> None:
        ensure_supported()
        name = os.fspath(path)
        if name in ("", ":memory:") or name.startswith("file:"):
            raise UsageError(f"{name!r} is no file of its own: a run has to outlast the process, so name a file, such as outlast.db")
        if journal not in ("auto", "wal", "delete"):
            raise UsageError(f"journal is {journal!r}: write 'auto', 'wal' or 'delete'")
        self.path = Path(os.path.realpath(name))
        """The file, with links followed: two spellings of it are one database."""
        self._journal: Journal = journal
        self._busy_timeout = busy_timeout
        self._clock = clock or SystemClock()
        self._writing = Turn("writing", busy_timeout)
        self._reading = Turn("reading", busy_timeout)
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._is_rollback_journal = True
        self._is_closed = False
        self._process: int | None = None
        self._file: tuple[int, int] | None = None

    @property
    def url(self) -> str:
        return f"sqlite:///{self.path}"

    @contextmanager
    def begin(self) -> Iterator[sqlite3.Connection]:
        with self.transaction() as transaction:
            connection = transaction.connection
            factories = connection.row_factory, connection.text_factory
            try:
                yield connection
            finally:
                connection.row_factory, connection.text_factory = factories  # it is the engine's own

    def on_loop(self, *, is_reading: bool = False) -> None:
        """None: SQLite blocks, and is called on threads."""

    def now(self) -> datetime:
        return self._clock.now()

    @contextmanager
    def transaction(self) -> Iterator[SqliteTransaction]:
        self._ensure_usable()
        if self._reading.is_mine:
            raise UsageError("a reading transaction is open in this thread: end it before one that writes begins, whose commit would wait for it")
        with self._writing:
            self._ensure_same_file()
            connection = self._open_writer()
            self._begin(connection, "BEGIN IMMEDIATE")
            transaction = SqliteTransaction(connection, str(self.path))
            try:
                yield transaction
                if transaction.refused is not None:
                    raise transaction.refused
                self._commit(connection)
            except BaseException as error:
                self._undo(connection, transaction.cause or error.__cause__)
                raise

    @contextmanager
    def reading(self) -> Iterator[SqliteTransaction]:
        self._ensure_usable()
        with self._reading:
            self._ensure_same_file()
            connection = self._open_reader()
            self._begin(connection, "BEGIN")
            transaction = SqliteTransaction(connection, str(self.path))
            try:
                yield transaction
            finally:
                self._undo(connection, transaction.cause)

    def interrupt(self) -> None:
        for connection in (self._reader, self._writer):
            if connection is not None:
                with suppress(sqlite3.ProgrammingError):  # closed meanwhile
                    connection.interrupt()

    def interrupt_hung(self, limit: timedelta) -> None:
        """A file answers or fails: whatever waits here waits for a lock, with the busy time-out."""

    def close(self) -> None:
        self._is_closed = True
        if self._process not in (None, os.getpid()):
            return
        with self._writing, self._reading:
            for connection in (self._reader, self._writer):
                if connection is not None:
                    connection.close()
            self._reader = self._writer = None

    def _ensure_usable(self) -> None:
        if self._is_closed:
            raise UsageError(f"{self.path} was closed: connect again")
        process = os.getpid()
        if self._process is None:
            self._process = process
        elif self._process != process:
            raise UsageError(f"{self.path} was opened before this process was forked: SQLite's locks do not go over a fork. Connect after it")

    def _ensure_same_file(self) -> None:
        """Refuse to go on in a file that nobody would ever find again.

        Under write-ahead logging SQLite itself would not notice. Nothing is opened anew: what was left beside the old file
        would be taken for the new one's. A file that is put back is used again.
        """
        if self._file is not None and file_identity(self.path) != self._file:
            raise UnavailableError(
                f"{self.path} was moved, deleted or replaced while it was open: stop every process that uses it, put the right file there and start again"
            )

    def _open_writer(self) -> sqlite3.Connection:
        if self._writer is None:
            connection = open_connection(self.path, self._busy_timeout, is_reader=False)
            try:
                self._is_rollback_journal = self._patiently(lambda: set_journal(connection, self._journal))
            except BaseException:
                connection.close()
                raise
            self._writer = connection
            self._file = file_identity(self.path)
        return self._writer

    def _open_reader(self) -> sqlite3.Connection:
        if self._reader is None:
            self._reader = open_connection(self.path, self._busy_timeout, is_reader=True)
            self._file = file_identity(self.path)
        return self._reader

    def _begin(self, connection: sqlite3.Connection, statement: str) -> None:
        try:
            self._patiently(lambda: connection.execute(statement))
        except BaseException as error:
            self._undo(connection, error.__cause__)
            raise

    def _commit(self, connection: sqlite3.Connection) -> None:
        """Commit, or raise and leave nothing behind; only an I/O error in the middle of it leaves the outcome open."""
        with self._reading if self._is_rollback_journal else nullcontext():
            try:
                self._patiently(lambda: connection.execute("COMMIT"))
            except Exception as error:
                if primary_code(error.__cause__ or error) == sqlite3.SQLITE_IOERR:
                    raise CommitUnknownError(f"{self.path} could not be written while a transaction was committed: {error}") from error.__cause__
                raise

    def _undo(self, connection: sqlite3.Connection, cause: BaseException | None) -> None:
        """End what is open; a connection that failed with its file is given up, and the next transaction opens another."""
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if cause is None or not is_connection_spoilt(cause):
                return
        except sqlite3.Error:
            pass  # the connection is given up below, and closing it ends its transaction
        if connection is self._writer:
            self._writer = None
        elif connection is self._reader:
            self._reader = None
        with suppress(sqlite3.Error):
            connection.close()

    def _patiently(self, call: Callable[[], T]) -> T:
        """Call until the file is not busy, at most for the busy time-out: some locks SQLite does not wait for by itself."""
        clock = SystemClock()
        give_up_at = clock.monotonic() + self._busy_timeout.total_seconds()
        while True:
            try:
                return call()
            except sqlite3.Error as error:
                if not is_busy(error) or clock.monotonic() >= give_up_at:
                    raise translated(error, str(self.path)) from error
            threading.Event().wait(_BUSY_PAUSE.total_seconds() * jitter())
