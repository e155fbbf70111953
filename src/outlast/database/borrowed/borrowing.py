"""Borrowing: how a transaction of the application's is opened, and how our own statements are run on it.

`borrowing_of` tells by what it is given which of the adapters is meant. An adapter for another driver needs a class with
`is_async` and `open`, and a line there.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, ClassVar, Literal, Protocol

from outlast.database.transaction import Dialect
from outlast.errors import UsageError


class Borrowed(Protocol):
    """An open transaction of a driver that blocks."""

    @property
    def connection(self) -> Any:
        """What the application's function gets."""
        ...

    @property
    def dialect(self) -> Dialect: ...

    def run(self, sql: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Run a statement of ours, written for the dialect's own driver (`%(name)s` on PostgreSQL, `:name` on SQLite)."""
        ...


class AsyncBorrowed(Protocol):
    """An open transaction of a driver that is awaited."""

    @property
    def connection(self) -> Any: ...

    @property
    def dialect(self) -> Dialect: ...

    async def run(self, sql: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]: ...


class Borrowing(Protocol):
    """Opens transactions; each commits at the end of its block, and is undone when it ends with an exception."""

    is_async: ClassVar[Literal[False]]

    def open(self) -> AbstractContextManager[Borrowed]: ...


class AsyncBorrowing(Protocol):
    """The same, awaited."""

    is_async: ClassVar[Literal[True]]

    def open(self) -> AbstractAsyncContextManager[AsyncBorrowed]: ...


def borrowing_of(source: object) -> Borrowing | AsyncBorrowing:
    """Return how to open transactions on `source`; UsageError for what cannot be one, with what to hand over instead."""
    from . import psycopg_connections, sqlalchemy_begins, sqlite_connections

    for adapter in (sqlalchemy_begins, psycopg_connections, sqlite_connections):
        found: Borrowing | AsyncBorrowing | None = adapter.recognise(source)
        if found is not None:
            return found
    raise UsageError(
        f"ctx.transaction begins a transaction by itself and got {type(source).__qualname__}: pass ctx.database, an SQLAlchemy engine or sessionmaker, "
        "a psycopg pool, or a function that opens a psycopg or sqlite3 connection"
    )


def module_of(value: object) -> str:
    """Return the top-level package of a value's class, without importing anything."""
    return type(value).__module__.partition(".")[0]


def has_base(value: object, name: str) -> bool:
    """Tell whether a class of this name is among those of `value`: an application may have derived its own."""
    return any(base.__name__ == name for base in type(value).__mro__)
