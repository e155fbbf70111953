"""Refusals: what an error of the driver means to whoever opened the transaction. Nothing of an address is ever repeated."""

import psycopg

from outlast.database.transaction import Refusal, RefusedError
from outlast.errors import CommitUnknownError, LeaseLostError, OutlastError, SchemaError, UnavailableError

LEASE_LOST = "OL001"
"""What the fence raises."""

_REFUSALS = {
    "55P03": Refusal.BUSY,  # lock_not_available
    "40P01": Refusal.BUSY,  # deadlock_detected
    "40001": Refusal.BUSY,  # serialization_failure
    "57014": Refusal.BUSY,  # query_canceled, which is how a statement time-out ends
    "23505": Refusal.DUPLICATE,
    "23502": Refusal.DATA,
    "23503": Refusal.DATA,
    "23514": Refusal.DATA,
    "42804": Refusal.DATA,  # datatype_mismatch
    "53100": Refusal.FULL,
    "53200": Refusal.FULL,
    "25006": Refusal.READ_ONLY,
}
_REFUSED_CLASSES = {"22": Refusal.DATA, "54": Refusal.DATA}
_SCHEMA = {"42P01", "3F000", "42883", "42703"}  # undefined table, schema, function, column
_CONNECTION = {"57P01", "57P02", "57P03", "57P04", "57P05", "25P03", "25P04", "53300"}
"""States with which the server ends a session, or refuses to begin one."""


def is_connection_lost(error: psycopg.Error) -> bool:
    """Tell whether the session is over, as opposed to a statement refused in a session that goes on."""
    if error.sqlstate is None:
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return error.sqlstate in _CONNECTION or error.sqlstate.startswith("08")


def translate(error: psycopg.Error, *, is_commit_sent: bool) -> OutlastError:
    """Return our own error for one of the driver's.

    Once the commit was sent a lost connection tells nothing about its outcome; an error with a state is the server's
    word that the transaction is void.
    """
    if is_connection_lost(error):
        return CommitUnknownError(f"the connection broke during a commit: {_text(error)}") if is_commit_sent else UnavailableError(_text(error))
    state = error.sqlstate
    if state == LEASE_LOST:
        return LeaseLostError()
    if state in _SCHEMA:
        return SchemaError(f"the database's schema does not fit this code ({_text(error)}): run `outlast migrate`")
    return RefusedError(_refusal(error, state), _text(error))


def _refusal(error: psycopg.Error, state: str | None) -> Refusal:
    if state is None:
        return Refusal.DATA if isinstance(error, psycopg.DataError) else Refusal.OTHER
    return _REFUSALS.get(state) or _REFUSED_CLASSES.get(state[:2]) or Refusal.OTHER


def _text(error: psycopg.Error) -> str:
    """Return the first line of the message: later ones quote the statement or the row, which may hold what is secret."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
