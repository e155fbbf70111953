"""Misfortune: what an error of the application's driver means for the transaction in which it came.

Told by SQLSTATE where there is one, and by the name of the class where there is none; no driver is imported.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Any

from outlast.database.transaction import Refusal, RefusedError
from outlast.errors import CommitUnknownError, UnavailableError

_AGAIN = {"40001", "40P01"}  # serialization_failure, deadlock_detected
_UNIQUE = "23505"
_LOST_CLASSES = ("08", "57P")
_SQLITE_BUSY, _SQLITE_LOCKED, _SQLITE_IOERR, _SQLITE_CONSTRAINT_UNIQUE, _SQLITE_CONSTRAINT_PRIMARYKEY = 5, 6, 10, 2067, 1555


class Misfortune(Enum):
    """What became of a transaction."""

    AGAIN = auto()
    """It was undone for another one's sake: the whole function may run again."""
    UNKNOWN = auto()
    """The connection was lost: if it was committing, nobody knows."""
    DUPLICATE = auto()
    """A unique key was there already."""
    OTHER = auto()
    """It was undone, for a reason of its own."""


_REFUSALS = {Refusal.BUSY: Misfortune.AGAIN, Refusal.DUPLICATE: Misfortune.DUPLICATE}


def is_certain(error: BaseException) -> bool:
    """Tell whether an error that came at a commit is the database's own word that nothing is there."""
    inner: Any = getattr(error, "orig", None) or error
    state = getattr(inner, "sqlstate", None) or getattr(inner, "pgcode", None)
    code = getattr(inner, "sqlite_errorcode", None)
    if isinstance(error, RefusedError):
        return True
    return (state is not None and not state.startswith(_LOST_CLASSES)) or (code is not None and code & 0xFF != _SQLITE_IOERR)


def misfortune_of(error: BaseException) -> Misfortune:
    """Tell what an error means."""
    if isinstance(error, CommitUnknownError):
        return Misfortune.UNKNOWN
    if isinstance(error, RefusedError):
        return _REFUSALS.get(error.refusal, Misfortune.OTHER)
    if isinstance(error, UnavailableError):
        return Misfortune.AGAIN
    inner: Any = getattr(error, "orig", None) or error  # SQLAlchemy wraps the driver's own
    state = getattr(inner, "sqlstate", None) or getattr(inner, "pgcode", None)
    code = getattr(inner, "sqlite_errorcode", None)
    if state in _AGAIN or (code is not None and code & 0xFF in (_SQLITE_BUSY, _SQLITE_LOCKED)):
        return Misfortune.AGAIN
    if state == _UNIQUE or code in (_SQLITE_CONSTRAINT_UNIQUE, _SQLITE_CONSTRAINT_PRIMARYKEY):
        return Misfortune.DUPLICATE
    if state is not None:
        return Misfortune.UNKNOWN if state.startswith(_LOST_CLASSES) else Misfortune.OTHER
    is_lost = getattr(error, "connection_invalidated", False) or type(inner).__name__ in ("OperationalError", "InterfaceError", "ConnectionDoesNotExistError")
    return Misfortune.UNKNOWN if is_lost and code is None else Misfortune.OTHER
