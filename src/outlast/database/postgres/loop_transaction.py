"""LoopTransaction: a transaction that an event loop drives: its statements are queued and sent as a whole, and nothing blocks.

Theory of operation. The loop's own thread writes to the socket and reads from it, when it can be written and read. A
transaction on a thread would do the same with less code, but each of its calls gives up the interpreter's lock and has to
wait for it again, up to the switch interval of 5 ms, while the loop runs bodies: with the loop busy, a flush of 2 ms took
30. Here the database works while the loop does, and neither waits for the other.

What a statement returned is there after `fetch` or after the commit. The first error that the server reported is the one
that is raised. A transaction that is left in the middle, by a cancel, closes its connection: what was sent may be kept or
not, as with any broken connection.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any

import psycopg
from psycopg.adapt import Transformer
from psycopg.pq import ExecStatus, TransactionStatus
from psycopg.pq.abc import PGresult

from outlast.database.transaction import Refusal, RefusedError
from outlast.errors import CommitUnknownError, OutlastError, UnavailableError

from .connections import Connection
from .prepared import Prepared, name_of
from .refusals import translate

logger = logging.getLogger("outlast")

_PLACEHOLDER = re.compile(r"%\((\w+)\)s")


class LoopRows:
    """What one statement returned, once it was fetched."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.answer: PGresult | None = None

    def all(self) -> list[tuple[Any, ...]]:
        answer = self._answered()
        loader = Transformer(self._connection)
        loader.set_pgresult(answer)
        return loader.load_rows(0, answer.ntuples, tuple)

    def first(self) -> tuple[Any, ...] | None:
        rows = self.all()
        return rows[0] if rows else None

    @property
    def count(self) -> int:
        return self._answered().command_tuples or 0

    def _answered(self) -> PGresult:
        if self.answer is None:
            raise RuntimeError("what a statement returned was asked for before the commit of a transaction on the loop")
        return self.answer


class LoopTransaction:
    """One open transaction on one connection that nobody else uses."""

    def __init__(self, connection: Connection, is_commit_doubtful: Callable[[], bool], prepared: Prepared | None = None) -> None:
        self._connection = connection
        self._pgconn = connection.pgconn
        self._is_commit_doubtful = is_commit_doubtful
        self._loop = asyncio.get_running_loop()
        self._prepared = prepared
        self._preparing: dict[bytes, LoopRows] = {}
        self._unanswered: deque[LoopRows] = deque()
        self._failure: OutlastError | None = None
        self._is_commit_sent = False
        self._committed: LoopRows | None = None
        self._afterwards: list[tuple[str, Mapping[str, Any]]] = []

    def run(self, sql: str, parameters: Mapping[str, Any] | None = None, /) -> LoopRows:
        """Queue a statement."""
        text, names = _numbered(sql)
        values = [_dumped(parameters[name]) for name in names] if parameters and names else None
        rows = LoopRows(self._connection)
        try:
            if self._prepared is None or sql not in self._prepared.kept:
                self._pgconn.send_query_params(text, values)
            else:
                self._pgconn.send_query_prepared(self._prepare(text, self._prepared.names), values)
        except psycopg.Error as error:
            raise self._fail(error) from error
        self._unanswered.append(rows)
        return rows

    def _prepare(self, text: bytes, names: set[bytes]) -> bytes:
        """Return the name of a statement that the session has, or will have by the time at which it is to run it."""
        name = name_of(text)
        if name not in names and name not in self._preparing:
            self._pgconn.send_prepare(name, text)
            self._preparing[name] = rows = LoopRows(self._connection)
            self._unanswered.append(rows)
        return name

    def run_many(self, sql: str, parameters: Sequence[Mapping[str, Any]], /) -> int:
        raise NotImplementedError("a transaction on the loop counts nothing before it is fetched: queue the statements one by one")

    def after_commit(self, sql: str, parameters: Mapping[str, Any], /) -> None:
        """Run a statement in a transaction of its own behind the commit, in the same round trip.

        Its snapshot is later than the commit. Without the commit it is not run, and what becomes of it is not told.
        """
        self._afterwards.append((sql, parameters))

    def begin(self, begin: str, settings: str) -> None:
        """Queue the beginning."""
        try:
            self._pgconn.enter_pipeline_mode()
        except psycopg.Error as error:
            raise self._fail(error) from error
        self.run(begin)
        self.run(settings)

    async def fetch(self) -> None:
        """Send what is queued, and wait for the answers. Raises the first error that there was."""
        await self._exchange()
        if self._failure is not None:
            raise self._failure

    async def commit(self) -> None:
        """Commit, in the same round trip as what is still queued."""
        if self._failure is not None:
            raise self._failure
        self._is_commit_sent = True
        self._committed = self.run("COMMIT")
        for sql, parameters in self._afterwards:
            self.run(sql, parameters)
        await self.fetch()
        if not self._is_committed:  # ROLLBACK, and no error, in an aborted transaction
            raise RefusedError(Refusal.OTHER, "the transaction was aborted before its commit")
        if self._is_commit_doubtful():
            raise CommitUnknownError("the commit is on this server, but not confirmed by its standby")

    @property
    def _is_committed(self) -> bool:
        answer = self._committed.answer if self._committed is not None else None
        return answer is not None and answer.command_status == b"COMMIT"

    async def leave(self) -> None:
        """Leave the connection idle, or close it."""
        try:
            if self._unanswered:  # what was queued was never sent
                await self._exchange()
            if self._pgconn.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
                self._pgconn.send_query_params(b"ROLLBACK", None)
                self._unanswered.append(LoopRows(self._connection))
                await self._exchange()
            self._pgconn.exit_pipeline_mode()
        except (psycopg.Error, OutlastError):
            self._connection.close()

    # --- the socket --------------------------------------------------------------------------------------------------
    async def _exchange(self) -> None:
        """Send, and take in every answer up to the one that says that there are no more."""
        pgconn, loop, descriptor = self._pgconn, self._loop, self._pgconn.socket
        ready = asyncio.Event()
        try:
            pgconn.pipeline_sync()
            loop.add_reader(descriptor, ready.set)
            try:
                while pgconn.flush():
                    loop.add_writer(descriptor, ready.set)
                    await ready.wait()
                    ready.clear()
                    loop.remove_writer(descriptor)
                    pgconn.consume_input()
                while not self._take_answers():  # looked at first: what came while the rest was sent may have been the last
                    await ready.wait()
                    ready.clear()
                    pgconn.consume_input()
            finally:
                loop.remove_reader(descriptor)
                loop.remove_writer(descriptor)
        except psycopg.Error as error:
            raise self._fail(error) from error
        except asyncio.CancelledError:
            self._connection.close()
            raise

    def _take_answers(self) -> bool:
        """Take in the answers that have arrived; return whether they are all there."""
        pgconn = self._pgconn
        while not pgconn.is_busy():
            answer = pgconn.get_result()
            if answer is None:  # the end of one statement's answers
                continue
            if answer.status == ExecStatus.PIPELINE_SYNC:
                self._unanswered.clear()
                self._note_prepared()
                return True
            if answer.status == ExecStatus.FATAL_ERROR:
                error = psycopg.errors.error_from_result(answer)
                if self._is_committed:
                    logger.debug("what was to follow a commit failed: %s", error)
                else:
                    self._fail(error)
            if self._unanswered:
                self._unanswered.popleft().answer = answer
        return False

    def _note_prepared(self) -> None:
        """What was prepared stays so, also when the transaction is undone; what came after an error was not."""
        for name, rows in self._preparing.items():
            if self._prepared is not None and rows.answer is not None and rows.answer.status == ExecStatus.COMMAND_OK:
                self._prepared.names.add(name)
        self._preparing.clear()

    def _fail(self, error: psycopg.Error) -> OutlastError:
        if self._failure is None:
            if self._prepared is not None and self._prepared.kept.give_up(error.sqlstate):
                self._failure = UnavailableError("a prepared statement cannot be used on this session: from now on none is")
            else:
                self._failure = translate(error, is_commit_sent=self._is_commit_sent)
        return self._failure


@cache
def _numbered(sql: str) -> tuple[bytes, tuple[str, ...]]:
    """Return a statement with the server's own placeholders, and the names of what they stand for."""
    names: list[str] = []

    def number(match: re.Match[str]) -> str:
        if match[1] not in names:
            names.append(match[1])
        return f"${names.index(match[1]) + 1}"

    return _PLACEHOLDER.sub(number, sql).replace("%%", "%").encode(), tuple(names)


def _dumped(value: object) -> bytes | None:
    """Return a parameter as text, whose type the statement says."""
    if value is None:
        return None
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if isinstance(value, datetime):
        return value.isoformat().encode()
    if not isinstance(value, str | int | float):
        raise TypeError(f"a {type(value).__name__} cannot be a parameter")
    text = str(value)
    if "\0" in text:
        raise RefusedError(Refusal.DATA, "a text with NUL cannot be stored")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise RefusedError(Refusal.DATA, "a text with a lone surrogate cannot be stored") from error
