"""psycopg 3: pools, sync and async, and functions that open a connection."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, closing, contextmanager
from typing import Any

from outlast.database.transaction import Dialect
from outlast.errors import UsageError

from .borrowing import has_base, module_of


def recognise(source: object) -> PsycopgBorrowing | AsyncPsycopgBorrowing | None:
    if has_base(source, "AsyncConnectionPool"):
        return AsyncPsycopgBorrowing(source)
    if has_base(source, "ConnectionPool") and module_of(source) == "psycopg_pool":
        return PsycopgBorrowing(source.connection)  # type: ignore[attr-defined]  # a pool has it
    if has_base(source, "OwnDatabase"):
        return None
    if callable(source) and inspect.iscoroutinefunction(source):
        return AsyncPsycopgBorrowing(source)
    return None


class PsycopgBorrowing:
    """Transactions on connections of a pool."""

    is_async = False

    def __init__(self, connect: Any) -> None:
        self._connect = connect

    @contextmanager
    def open(self) -> Iterator[PsycopgBorrowed]:
        with self._connect() as connection, ensure_idle(connection).transaction():
            yield PsycopgBorrowed(connection)


class PsycopgBorrowed:
    """A connection with an open transaction."""

    dialect = Dialect.POSTGRESQL

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def run(self, sql: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        with self.connection.cursor(row_factory=_as_tuples) as cursor:
            cursor.execute(sql, parameters)
            return cursor.fetchall() if cursor.description is not None else []


class AsyncPsycopgBorrowing:
    """Transactions on connections of a pool, or of a coroutine function that opens one."""

    is_async = True

    def __init__(self, source: Any) -> None:
        self._source = source

    @asynccontextmanager
    async def open(self) -> AsyncIterator[AsyncPsycopgBorrowed]:
        if hasattr(self._source, "connection"):
            async with self._source.connection() as connection, ensure_idle(connection).transaction():
                yield AsyncPsycopgBorrowed(connection)
        else:
            connection = await self._source()
            try:
                async with ensure_idle(connection).transaction():
                    yield AsyncPsycopgBorrowed(connection)
            finally:
                await connection.close()


class AsyncPsycopgBorrowed:
    """A connection with an open transaction, awaited."""

    dialect = Dialect.POSTGRESQL

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    async def run(self, sql: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        async with self.connection.cursor(row_factory=_as_tuples) as cursor:
            await cursor.execute(sql, parameters)
            return await cursor.fetchall() if cursor.description is not None else []


def _as_tuples(cursor: Any) -> Any:
    """Make rows tuples, whatever the application has set for its own: psycopg's `tuple_row`, without importing it."""
    return tuple


@contextmanager
def opened(connect: Any) -> Iterator[Any]:
    """Open a connection, and close it at the end of the block."""
    with closing(connect()) as connection:
        yield connection


def ensure_idle(connection: Any) -> Any:
    """Refuse a connection on which a transaction is open: ours would be a savepoint in it, and would be undone with it."""
    if connection.info.transaction_status != 0:
        raise UsageError(
            "ctx.transaction was given a psycopg connection with a transaction in progress: commit what opened it, or connect with autocommit=True"
        )
    return connection


def on_connection(connection: Any) -> AbstractContextManager[Any]:
    """Begin a transaction on a connection that is open."""
    transaction: AbstractContextManager[Any] = connection.transaction()
    return transaction
