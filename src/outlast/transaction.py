"""What `ctx.transaction` begins a transaction on: the application's own engine, sessionmaker or pool, as the type checker sees it.

Protocols only; nothing of SQLAlchemy, psycopg or sqlite3 is imported. How each is driven is in `outlast.database.borrowed`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Protocol, TypeVar

C_co = TypeVar("C_co", covariant=True)


class AsyncBeginning(Protocol[C_co]):
    """SQLAlchemy's `AsyncEngine` and `async_sessionmaker`."""

    def begin(self) -> AbstractAsyncContextManager[C_co]: ...


class AsyncConnecting(Protocol[C_co]):
    """psycopg's `AsyncConnectionPool`."""

    def connection(self) -> AbstractAsyncContextManager[C_co]: ...


class Beginning(Protocol[C_co]):
    """SQLAlchemy's `Engine` and `sessionmaker`, and `ctx.database`."""

    def begin(self) -> AbstractContextManager[C_co]: ...


class Connecting(Protocol[C_co]):
    """psycopg's `ConnectionPool`."""

    def connection(self) -> AbstractContextManager[C_co]: ...


class OwnDatabase:
    """The engine's own database, for what the application keeps beside its runs: `ctx.transaction(ctx.database, ...)`.

    The function gets a connection of the driver, `psycopg.Connection` or `sqlite3.Connection`, and is a `def`.
    """

    def __init__(self, begin: Callable[[], AbstractContextManager[Any]]) -> None:
        self._begin = begin

    def begin(self) -> AbstractContextManager[Any]:
        """Begin a transaction that blocks; it commits at the end of the block."""
        return self._begin()
