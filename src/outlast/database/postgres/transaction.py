"""PostgresTransaction: statements queued in a pipeline, so that a whole transaction is one round trip.

`run` only queues. What a statement returned is fetched when it is first read: before the commit that costs a round trip,
after it nothing. An error comes at the first read or at the end of the block, whichever is earlier, and the first one
that the server reported is the one that is raised, for the rest are its consequences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from outlast.database.transaction import Refusal, RefusedError
from outlast.errors import CommitUnknownError, OutlastError, UnavailableError

from .connections import Connection
from .refusals import translate

Cursor = psycopg.Cursor[tuple[Any, ...]]


class PostgresRows:
    """What one statement returned."""

    def __init__(self, cursor: Cursor, fetch: Callable[[], None]) -> None:
        self._cursor = cursor
        self._fetch = fetch
        self._rows: list[tuple[Any, ...]] | None = None

    def all(self) -> list[tuple[Any, ...]]:
        if self._rows is None:
            self._ensure_fetched()
            self._rows = self._cursor.fetchall() if self._cursor.description is not None else []
        return self._rows

    def first(self) -> tuple[Any, ...] | None:
        rows = self.all()
        return rows[0] if rows else None

    @property
    def count(self) -> int:
        self._ensure_fetched()
        return max(self._cursor.rowcount, 0)

    def _ensure_fetched(self) -> None:
        if self._cursor.pgresult is None:
            self._fetch()


class PostgresTransaction:
    """One open transaction on one connection, between `begin` and `commit`."""

    def __init__(self, connection: Connection, is_commit_doubtful: Callable[[], bool]) -> None:
        self._connection = connection
        self._is_commit_doubtful = is_commit_doubtful
        self._failure: OutlastError | None = None
        self._is_commit_sent = False
        self._committed: Cursor | None = None
        self._pipeline: psycopg.Pipeline | None = None

    def run(self, sql: str, parameters: Mapping[str, Any] | None = None, /) -> PostgresRows:
        with self._translating():
            return PostgresRows(self._connection.execute(sql, parameters), self._sync)

    def run_many(self, sql: str, parameters: Sequence[Mapping[str, Any]], /) -> int:
        rows = [self.run(sql, each) for each in parameters]
        return sum(each.count for each in rows)

    @contextmanager
    def open(self, begin: str, settings: str) -> Iterator[None]:
        """Begin; commit at the end of the block, or undo everything when it ends with an exception."""
        try:
            with self._translating(), self._connection.pipeline() as self._pipeline:
                try:
                    self._connection.execute(begin)
                    self._connection.execute(settings)
                    yield
                    self._send_commit()
                except BaseException:
                    self._settle()
                    raise
            self._check_committed()
        finally:
            self._pipeline = None
            self._roll_back()

    def _send_commit(self) -> None:
        """Queue the commit. Leaving the pipeline sends it with all that waits, and fetches every answer: one round trip."""
        if self._failure is not None:
            raise self._failure
        self._is_commit_sent = True
        self._committed = self._connection.execute("COMMIT")

    def _check_committed(self) -> None:
        if self._committed is None or self._committed.statusmessage != "COMMIT":  # the server answers ROLLBACK, and no error, in an aborted transaction
            raise RefusedError(Refusal.OTHER, "the transaction was aborted before its commit")
        if self._is_commit_doubtful():
            raise CommitUnknownError("the commit is on this server, but not confirmed by its standby")

    def _sync(self) -> None:
        with self._translating():
            if self._pipeline is None:
                raise UnavailableError("the transaction ended before this result was read")
            self._pipeline.sync()

    def _settle(self) -> None:
        """Collect what is still queued, so that leaving the pipeline has nothing to complain about."""
        try:
            if self._pipeline is not None and not self._connection.closed:
                self._pipeline.sync()
        except psycopg.Error:
            pass  # a consequence of what is being raised already

    def _roll_back(self) -> None:
        """Leave the connection idle. One that does not get there is closed by whoever takes it back."""
        try:
            if not self._connection.closed and self._connection.info.transaction_status != TransactionStatus.IDLE:
                self._connection.execute("ROLLBACK")
        except psycopg.Error:
            self._connection.close()

    @contextmanager
    def _translating(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            if self._failure is None:
                self._failure = translate(error, is_commit_sent=self._is_commit_sent)
            raise self._failure from error
        except UnicodeEncodeError as error:
            raise RefusedError(Refusal.DATA, "a text with a lone surrogate cannot be stored") from error
