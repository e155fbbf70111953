"""How a connection to an SQLite file is opened: the file's mode, the pragmas, and the journal. Nothing else opens the file.

`open()` and `close()` of the database file by other means would drop every POSIX lock that this process has on it.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from datetime import timedelta
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from outlast.errors import UnavailableError, UsageError

from .refusals import is_busy, translated

Journal = Literal["auto", "wal", "delete"]

_OLDEST_SQLITE = (3, 38, 0)
_STATEMENTS_CACHED = 256
_CREATION = threading.Lock()


def ensure_supported() -> None:
    """Raise `UsageError` when Python's SQLite is too old or cannot be used from several threads."""
    if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
        raise UsageError(f"Python is linked to SQLite {sqlite3.sqlite_version}, and 3.38 is the oldest that works: use a newer Python")
    if sqlite3.threadsafety == 0:
        raise UsageError("Python's SQLite was built for a single thread: use another Python")


def has_safe_wal() -> bool:
    """Tell whether this SQLite is free of the WAL-reset bug, by which several processes on one file can lose a commit."""
    version = sqlite3.sqlite_version_info
    return version >= (3, 51, 3) or version in {(3, 44, 6), (3, 50, 7)}


def open_connection(path: Path, busy_timeout: timedelta, *, is_reader: bool) -> sqlite3.Connection:
    """Return a connection that commits durably, from any thread; a missing file is made, a missing folder is refused."""
    with _CREATION:
        _ensure_file(path)
        try:
            connection = sqlite3.connect(
                f"file:{quote(str(path))}?mode=rw", uri=True, isolation_level=None, check_same_thread=False, cached_statements=_STATEMENTS_CACHED
            )
        except sqlite3.Error as error:
            raise translated(error, str(path)) from error
    try:
        for pragma in (f"busy_timeout = {round(busy_timeout.total_seconds() * 1000)}", "foreign_keys = ON", "synchronous = FULL", "cache_spill = OFF"):
            connection.execute(f"PRAGMA {pragma}")
        if is_reader:
            connection.execute("PRAGMA query_only = ON")
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
    except sqlite3.Error as error:
        connection.close()
        raise translated(error, str(path)) from error
    return connection


def file_identity(path: Path) -> tuple[int, int] | None:
    """Return what tells this file from any other, or None when there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _ensure_file(path: Path) -> None:
    """Make the file, readable by its owner only: it holds what users pass to tasks. SQLite gives its journal the same mode."""
    if not path.parent.is_dir():
        raise UsageError(f"{path.parent} is not a folder: make it before {path.name} can be made in it")
    if path.is_dir():
        raise UsageError(f"{path} is a folder: name a file in it")
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return
    except OSError as error:
        raise UnavailableError(f"{path} cannot be made: {error.strerror}") from error


def set_journal(connection: sqlite3.Connection, journal: Journal) -> bool:
    """Choose the journal and return whether it is the rollback journal.

    `auto` is write-ahead logging where that is safe. The rollback journal is emptied and not deleted: with
    `synchronous = FULL` only the emptying is made durable, and a journal that comes back after a power cut would undo
    the last commit.
    """
    wanted = "wal" if journal == "wal" or (journal == "auto" and has_safe_wal()) else "truncate"
    if wanted == "truncate" and _mode(connection, "") == "wal":
        return _leave_wal(connection, journal)
    return _mode(connection, f" = {wanted}") != "wal"


def _leave_wal(connection: sqlite3.Connection, journal: Journal) -> bool:
    """Change to the rollback journal unless others have the file open: who opened it with write-ahead logging was told to."""
    timeout = connection.execute("PRAGMA busy_timeout").fetchone()[0]
    if journal == "auto":
        connection.execute("PRAGMA busy_timeout = 0")
    try:
        return _mode(connection, " = truncate") != "wal"
    except sqlite3.OperationalError as error:
        if journal != "auto" or not is_busy(error):
            raise
        return False
    finally:
        connection.execute(f"PRAGMA busy_timeout = {timeout}")


def _mode(connection: sqlite3.Connection, change: str) -> str:
    return str(connection.execute(f"PRAGMA journal_mode{change}").fetchone()[0])
