"""Database and Transaction: the two ports between a store and a driver.

A store never begins or commits: it is given an open transaction, and what it runs there is kept or undone as a whole
by whoever opened it. Calls block; the engine makes them on threads of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple, Protocol, TypeVar

from outlast.errors import OutlastError

R = TypeVar("R")
Answer = Callable[[], R]
"""What statements returned, put together when it is called, after the commit: so that a whole transaction is one round trip."""


class Dialect(StrEnum):
    """What a database understands. A statement is written for the dialect's own driver: `%(name)s` on PostgreSQL, `:name` on SQLite."""

    POSTGRESQL = "postgresql"
    SQLITE = "sqlite"


class Ask(NamedTuple):
    """A statement that somebody else runs, in a transaction of his own."""

    sql: str
    parameters: Mapping[str, Any]


class Refusal(StrEnum):
    """Why a database refused a statement."""

    BUSY = "busy"
    """A lock time-out, a deadlock, a serialization failure: the same transaction may pass if it is tried again."""
    DUPLICATE = "duplicate"
    """A unique key is there already."""
    DATA = "data"
    """A value, or the statement, cannot be stored at all."""
    FULL = "full"
    """The disk or a quota is full, or memory ran out."""
    READ_ONLY = "read_only"
    OTHER = "other"


class RefusedError(OutlastError):
    """The database refused a statement, and nothing of its transaction is there."""

    def __init__(self, refusal: Refusal, message: str) -> None:
        super().__init__(message)
        self.refusal = refusal


class Rows(Protocol):
    """What a statement returned. On PostgreSQL it is fetched when it is first read, which before the commit costs a round trip."""

    def all(self) -> list[tuple[Any, ...]]: ...
    def first(self) -> tuple[Any, ...] | None: ...
    @property
    def count(self) -> int:
        """How many rows the statement changed or returned."""
        ...


class Transaction(Protocol):
    """An open transaction. It ends with the `with` block that opened it: commit, or undone at an exception."""

    def run(self, sql: str, parameters: Mapping[str, Any] | None = None, /) -> Rows: ...

    def run_many(self, sql: str, parameters: Sequence[Mapping[str, Any]], /) -> int:
        """Run a statement once for each set of parameters and return how many rows were changed in all."""
        ...


class Database(Protocol):
    """One database, its connections and their limits. Opening it does no I/O; every connection is made on first use.

    Every method that reaches it raises `UnavailableError` when the database does not answer (nothing was committed),
    `CommitUnknownError` when the connection broke while a commit was under way, `RefusedError` when the database
    refused a statement, and `LeaseLostError` when a fence did. A process that was forked after opening is refused with
    a `UsageError`.
    """

    @property
    def url(self) -> str:
        """The address without any secret in it."""
        ...

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Open a writing transaction: READ COMMITTED with short time-outs on PostgreSQL, immediate on SQLite."""
        ...

    def reading(self) -> AbstractContextManager[Transaction]:
        """Open a short one for reading that never blocks a writer; statements see committed rows only."""
        ...

    def on_loop(self, *, is_reading: bool = False) -> AbstractAsyncContextManager[Transaction] | None:
        """Open a transaction that the running event loop drives, without blocking, and whose answers are there after the block.

        None where the driver has no such way, or no connection is free at once: then `transaction` or `reading`, on a thread.
        """
        ...

    def begin(self) -> AbstractContextManager[Any]:
        """Begin a transaction for statements of the application's own, and give its driver's connection.

        It commits at the end of the block; a crash before that leaves nothing of it. What is raised in it is the driver's.
        """
        ...

    def now(self) -> datetime:
        """Return the database's own time."""
        ...

    def interrupt(self) -> None:
        """End the calls that are under way, whatever they wait for: they raise as when a connection breaks.

        For a stop whose time is over. May be called from any thread; calls that begin later are not touched.
        """
        ...

    def interrupt_hung(self, limit: timedelta) -> None:
        """End the calls that have been under way for longer than `limit`: nothing is at the other end that would answer them.

        They raise as when a connection breaks, and the next call has another connection. It does not block.
        """
        ...

    def close(self) -> None:
        """Close all connections. It may be called twice; a closed database is not opened again."""
        ...
