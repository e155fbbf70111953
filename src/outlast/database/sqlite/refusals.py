"""What an error of `sqlite3` means to a caller: the one table of result codes. It decides nothing else."""

import sqlite3

from outlast.database.transaction import Refusal, RefusedError
from outlast.errors import OutlastError, SchemaError, UnavailableError, UsageError

_REFUSALS = {
    sqlite3.SQLITE_BUSY: Refusal.BUSY,
    sqlite3.SQLITE_LOCKED: Refusal.BUSY,
    sqlite3.SQLITE_CONSTRAINT: Refusal.DATA,
    sqlite3.SQLITE_TOOBIG: Refusal.DATA,
    sqlite3.SQLITE_MISMATCH: Refusal.DATA,
    sqlite3.SQLITE_RANGE: Refusal.DATA,
    sqlite3.SQLITE_FULL: Refusal.FULL,
    sqlite3.SQLITE_NOMEM: Refusal.FULL,
    sqlite3.SQLITE_READONLY: Refusal.READ_ONLY,
}
_DUPLICATES = frozenset({sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, sqlite3.SQLITE_CONSTRAINT_ROWID})
_UNREACHABLE = frozenset({sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_PROTOCOL})
_NOT_OURS = frozenset({sqlite3.SQLITE_NOTADB})
VALUE_ERRORS = (OverflowError, UnicodeEncodeError)
"""What `sqlite3` lets through when a value cannot be bound."""


def primary_code(error: BaseException) -> int | None:
    """Return the result code without its extension, or None where `sqlite3` itself refused the call."""
    code = getattr(error, "sqlite_errorcode", None)
    return None if code is None else int(code) & 0xFF


def is_busy(error: BaseException) -> bool:
    return primary_code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def is_connection_spoilt(error: BaseException) -> bool:
    """Tell whether the connection should be opened anew: what failed was the file and not the statement."""
    return primary_code(error) in _UNREACHABLE | _NOT_OURS | {sqlite3.SQLITE_CORRUPT}


def translated(error: BaseException, file: str) -> OutlastError:
    """Return `error` as one of the library's own; `file` is named in it."""
    code = primary_code(error)
    if code is None:
        return RefusedError(Refusal.DATA, f"a value cannot be stored in {file}: {error}")
    if getattr(error, "sqlite_errorcode", 0) in _DUPLICATES:
        return RefusedError(Refusal.DUPLICATE, f"{error} in {file}")
    if code in _UNREACHABLE:
        return UnavailableError(f"{file} cannot be read or written: {error}")
    if code in _NOT_OURS:
        return UsageError(f"{file} is not an SQLite database: name another file")
    if code == sqlite3.SQLITE_ERROR and str(error).startswith(("no such table", "no such column")):
        return SchemaError(f"{file}: {error}. Run `outlast migrate`")
    if is_busy(error):
        return RefusedError(Refusal.BUSY, f"{file} is locked by another process, which may be frozen in a write: {error}")
    return RefusedError(_REFUSALS.get(code, Refusal.OTHER), f"{file}: {error}")
