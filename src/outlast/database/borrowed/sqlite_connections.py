"""sqlite3 and psycopg by a function that opens a connection, and the engine's own database.

Which of the two drivers it is shows in the connection. SQLite's transaction is an immediate one, so that what was read in it
stays true until its commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from outlast.database.transaction import Dialect
from outlast.errors import UsageError

from .borrowing import Borrowed, has_base, module_of
from .psycopg_connections import PsycopgBorrowed, ensure_idle, on_connection, opened


def recognise(source: object) -> Connections | OwnTransactions | None:
    if has_base(source, "OwnDatabase"):
        return OwnTransactions(source)
    if callable(source):
        return Connections(source)
    return None


class Connections:
    """Transactions on connections that a function opens, each closed at its end."""

    is_async = False

    def __init__(self, connect: Any) -> None:
        self._connect = connect

    @contextmanager
    def open(self) -> Iterator[Borrowed]:
        with opened(self._connect) as connection:
            if has_base(connection, "Connection") and module_of(connection) == "psycopg":
                with on_connection(ensure_idle(connection)):
                    yield PsycopgBorrowed(connection)
            elif has_base(connection, "Connection") and module_of(connection) == "sqlite3":
                with _immediately(connection):
                    yield SqliteBorrowed(connection)
            else:
                raise UsageError(f"the function given to ctx.transaction opened {type(connection).__qualname__}: return a psycopg or sqlite3 connection")


class OwnTransactions:
    """Transactions of the engine's own database."""

    is_async = False

    def __init__(self, source: Any) -> None:
        self._source = source

    @contextmanager
    def open(self) -> Iterator[Borrowed]:
        with self._source.begin() as connection:
            yield PsycopgBorrowed(connection) if module_of(connection) == "psycopg" else SqliteBorrowed(connection)


class SqliteBorrowed:
    """A connection with an open transaction."""

    dialect = Dialect.SQLITE

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def run(self, sql: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        cursor = self.connection.cursor()
        cursor.row_factory = None
        cursor.execute(sql, parameters)
        return [tuple(row) for row in cursor.fetchall()] if cursor.description is not None else []


@contextmanager
def _immediately(connection: Any) -> Iterator[None]:
    if connection.in_transaction:
        raise UsageError("the function given to ctx.transaction opened a connection with a transaction in progress, or autocommit off: return a fresh one")
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
