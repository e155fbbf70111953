"""An open transaction on an SQLite connection. It runs statements and fetches what they return; it never begins or ends itself."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from outlast.errors import OutlastError

from .refusals import VALUE_ERRORS, translated


class SqliteRows:
    """Rows that were fetched completely: an open cursor would stop every commit under the rollback journal."""

    __slots__ = ("_count", "_rows")

    def __init__(self, rows: list[tuple[Any, ...]], count: int) -> None:
        self._rows = rows
        self._count = count

    def all(self) -> list[tuple[Any, ...]]:
        return self._rows

    def first(self) -> tuple[Any, ...] | None:
        return self._rows[0] if self._rows else None

    @property
    def count(self) -> int:
        return self._count


class SqliteTransaction:
    """Statements of one transaction. After one that was refused every other is refused too, and nothing is kept.

    SQLite itself undoes only the statement, or after some errors the whole transaction without a word, so that later
    statements would commit one by one.
    """

    def __init__(self, connection: sqlite3.Connection, file: str) -> None:
        self.connection = connection
        self._file = file
        self.refused: OutlastError | None = None
        self.cause: sqlite3.Error | None = None

    def run(self, sql: str, parameters: Mapping[str, Any] | None = None, /) -> SqliteRows:
        self._ensure_whole()
        try:
            cursor = self.connection.execute(sql, parameters or {})
            if cursor.description is None:
                return SqliteRows([], max(cursor.rowcount, 0))
            rows = cursor.fetchall()
            return SqliteRows(rows, len(rows))
        except (sqlite3.Error, *VALUE_ERRORS) as error:
            raise self._refuse(error) from error

    def run_many(self, sql: str, parameters: Sequence[Mapping[str, Any]], /) -> int:
        self._ensure_whole()
        try:
            return max(self.connection.executemany(sql, parameters).rowcount, 0)
        except (sqlite3.Error, *VALUE_ERRORS) as error:
            raise self._refuse(error) from error

    def run_script(self, script: str) -> None:
        """Run several statements, as a migration has them; `executescript` would commit what is open first."""
        statement = ""
        for piece in script.splitlines(keepends=True):
            statement += piece
            if sqlite3.complete_statement(statement):
                self.run(statement)
                statement = ""

    def _ensure_whole(self) -> None:
        if self.refused is not None:
            raise self.refused

    def _refuse(self, error: Exception) -> OutlastError:
        self.refused = translated(error, self._file)
        self.cause = error if isinstance(error, sqlite3.Error) else None
        return self.refused
