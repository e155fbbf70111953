"""SQLAlchemy 2: `Engine`, `sessionmaker`, `AsyncEngine`, `async_sessionmaker`, each by its own `begin()`."""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from typing import Any

from outlast.database.transaction import Dialect
from outlast.errors import UsageError

from .borrowing import has_base

BEGIN = "BEGIN IMMEDIATE"
"""SQLite's driver begins by itself at the first change; so late, what was read before may be out of date by then."""
_PLACEHOLDER = re.compile(r"%\((\w+)\)s")


def recognise(source: object) -> SqlAlchemyBorrowing | AsyncSqlAlchemyBorrowing | None:
    if "sqlalchemy" not in sys.modules:
        return None
    if has_base(source, "AsyncEngine") or has_base(source, "async_sessionmaker"):
        return AsyncSqlAlchemyBorrowing(source)
    if has_base(source, "Engine") or has_base(source, "sessionmaker"):
        return SqlAlchemyBorrowing(source)
    return None


class SqlAlchemyBorrowing:
    """Transactions of an `Engine` or a `sessionmaker`."""

    is_async = False

    def __init__(self, source: Any) -> None:
        self._source = source

    @contextmanager
    def open(self) -> Iterator[SqlAlchemyBorrowed]:
        with self._source.begin() as begun:
            connection = begun.connection() if has_base(begun, "Session") else begun
            dialect = dialect_of(connection)
            if dialect is Dialect.SQLITE and not connection.connection.driver_connection.in_transaction:
                connection.exec_driver_sql(BEGIN)
            yield SqlAlchemyBorrowed(begun, connection, dialect)


class SqlAlchemyBorrowed:
    """An open `Session` or `Connection`."""

    def __init__(self, begun: Any, connection: Any, dialect: Dialect) -> None:
        self.connection = begun
        self.dialect = dialect
        self._connection = connection

    def run(self, sql: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        if has_base(self.connection, "Session"):
            self.connection.flush()  # what the session has not sent yet comes before our own statements
        return rows_of(self._connection.execute(text(sql), dict(parameters)))


class AsyncSqlAlchemyBorrowing:
    """Transactions of an `AsyncEngine` or an `async_sessionmaker`."""

    is_async = True

    def __init__(self, source: Any) -> None:
        self._source = source

    @asynccontextmanager
    async def open(self) -> AsyncIterator[AsyncSqlAlchemyBorrowed]:
        async with self._source.begin() as begun:
            connection = await begun.connection() if has_base(begun, "AsyncSession") else begun
            dialect = dialect_of(connection)
            if dialect is Dialect.SQLITE and not (await connection.get_raw_connection()).driver_connection.in_transaction:
                await connection.exec_driver_sql(BEGIN)
            yield AsyncSqlAlchemyBorrowed(begun, connection, dialect)


class AsyncSqlAlchemyBorrowed:
    """An open `AsyncSession` or `AsyncConnection`."""

    def __init__(self, begun: Any, connection: Any, dialect: Dialect) -> None:
        self.connection = begun
        self.dialect = dialect
        self._connection = connection

    async def run(self, sql: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        if has_base(self.connection, "AsyncSession"):
            await self.connection.flush()
        return rows_of(await self._connection.execute(text(sql), dict(parameters)))


def dialect_of(connection: Any) -> Dialect:
    name = connection.dialect.name
    try:
        return Dialect(name)
    except ValueError:
        raise UsageError(f"transactions on {name} cannot be remembered: PostgreSQL and SQLite can") from None


@cache
def text(sql: str) -> Any:
    """Return a statement of ours as SQLAlchemy's: its placeholders are colons, and a literal percent sign is one."""
    from sqlalchemy import text as sqlalchemy_text

    return sqlalchemy_text(_PLACEHOLDER.sub(r":\1", sql.replace("::", r"\:\:")).replace("%%", "%"))


def rows_of(result: Any) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in result] if result.returns_rows else []
