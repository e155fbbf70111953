"""Disk: modes and places of an SQLite database's files, asked by name. Nothing is opened: closing a descriptor of the
database would drop every lock that this process has on it."""

import os
from itertools import islice
from pathlib import Path

from outlast.limits import PAGE
from outlast.native.doctor.files import DatabaseFiles, Entry, file_system_of

_MOUNTS = Path("/proc/self/mountinfo")


def read_files(database: Path, *, is_wal: bool | None) -> DatabaseFiles:
    """Return what lies on the disk. `is_wal` is None where the database could not be asked."""
    log, journal, lock_files = (database.with_name(f"{database.name}{suffix}") for suffix in ("-wal", "-journal", "-workers"))
    names = [database, log, database.with_name(f"{database.name}-shm"), journal, lock_files, *_listed(lock_files)]
    folder = _entry(database.parent)
    return DatabaseFiles(
        folder=folder or Entry(str(database.parent), 0, is_usable=False),
        entries=[entry for entry in map(_entry, names) if entry is not None],
        file_system=_file_system(database.parent),
        deletes_journal=is_wal is False and _size(database) > 0 and not journal.exists(),
    )


def log_bytes(database: Path) -> int:
    """Return the size of the write-ahead log."""
    return _size(database.with_name(f"{database.name}-wal"))


def _listed(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return [Path(entry.path) for entry in islice(entries, PAGE)]
    except OSError:  # not there, or not readable, which its own entry shows
        return []


def _entry(path: Path) -> Entry | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    wanted = os.R_OK | os.W_OK | (os.X_OK if path.is_dir() else 0)
    return Entry(str(path), found.st_mode, os.access(path, wanted))


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _file_system(folder: Path) -> str | None:
    """Linux only: elsewhere there is no table of mounts to read."""
    try:
        mounts = _MOUNTS.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return file_system_of(os.path.realpath(folder), mounts)
