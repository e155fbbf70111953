"""PostgresDatabase: the database's address, its few connections, and the settings that every transaction begins with.

It works through a pooler in transaction mode: no start-up options, nothing set for longer than a transaction, and prepared
statements only where there is no pooler. What needs a session of its own (`LISTEN`, session locks) uses `connect_direct`.
"""

from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from weakref import WeakKeyDictionary, WeakSet

import psycopg
from psycopg.adapt import Buffer, Loader
from psycopg.types.string import TextLoader

from outlast.errors import UnavailableError
from outlast.limits import CONNECTIONS_MAX, ENQUEUE_TIMEOUT, IDLE_IN_TRANSACTION_TIMEOUT, LOCK_TIMEOUT, STATEMENT_TIMEOUT

from .address import parse_address, shown_address
from .connections import Connection, Connections
from .loop_transaction import LoopTransaction
from .prepared import Kept, Prepared
from .refusals import translate
from .transaction import PostgresTransaction

_BEGIN_READ = "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY"
_BEGIN_WRITE = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"


class PostgresDatabase:
    """One PostgreSQL database; see `outlast.database.transaction.Database`."""

    def __init__(
        self, url: str, *, direct_url: str | None = None, connections: int = CONNECTIONS_MAX, role: str = "", prepared: Collection[str] = frozenset()
    ) -> None:
        """`direct_url` reaches the server itself where `url` goes through a pooler. `role` is shown in `pg_stat_activity`.

        Statements in `prepared` are prepared on sessions that no pooler shares out, in transactions that the loop drives.
        """
        self._settings = parse_address(url)
        self._direct_settings = parse_address(direct_url) if direct_url else self._settings
        self._application = f"outlast {role}".strip()
        self._connections = Connections(self._make, connections, ENQUEUE_TIMEOUT)
        self._doubtful: WeakSet[Connection] = WeakSet()
        self._kept = Kept({_READ_SETTINGS, _WRITE_SETTINGS, *prepared})
        self._prepared: WeakKeyDictionary[Connection, Prepared] = WeakKeyDictionary()

    @property
    def url(self) -> str:
        return shown_address(self._settings)

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        # A connection of its own: what the application does with it lasts as long as it lasts, and what it sets is gone with it.
        with closing(_connect(self._settings, f"{self._application} application")) as connection, connection.transaction():
            yield connection

    def on_loop(self, *, is_reading: bool = False) -> AbstractAsyncContextManager[LoopTransaction] | None:
        connection = self._connections.take_idle()
        if connection is None:
            return None
        return self._open_on_loop(connection, _BEGIN_READ, _READ_SETTINGS) if is_reading else self._open_on_loop(connection, _BEGIN_WRITE, _WRITE_SETTINGS)

    @asynccontextmanager
    async def _open_on_loop(self, connection: Connection, begin: str, settings: str) -> AsyncIterator[LoopTransaction]:
        try:
            prepared = self._prepared.get(connection)
            transaction = LoopTransaction(connection, lambda: self._is_doubtful(connection), prepared)
            try:
                transaction.begin(begin, settings)
                process = None if prepared is not None else transaction.run("SELECT pg_backend_pid()")
                yield transaction
                await transaction.commit()
                if process is not None:  # a pooler greets with another process than the one that answers
                    is_ours_alone = process.first() == (connection.info.backend_pid,)
                    self._prepared[connection] = Prepared(self._kept if is_ours_alone else Kept(()))
            finally:
                await transaction.leave()
        finally:
            self._connections.give_back(connection)

    @contextmanager
    def transaction(self) -> Iterator[PostgresTransaction]:
        with self._open(_BEGIN_WRITE, _WRITE_SETTINGS) as transaction:
            yield transaction

    @contextmanager
    def reading(self) -> Iterator[PostgresTransaction]:
        with self._open(_BEGIN_READ, _READ_SETTINGS) as transaction:
            yield transaction

    def now(self) -> datetime:
        with self.reading() as tx:
            return cast(datetime, tx.run("SELECT clock_timestamp()").all()[0][0])

    def execute_alone(self, sql: str, parameters: dict[str, Any]) -> None:
        """Run one statement outside a transaction block: what is lost with it must not matter, for nothing is fenced."""
        connection = self._connections.take()
        try:
            connection.execute(sql, parameters)
        except psycopg.Error as error:
            raise translate(error, is_commit_sent=True) from error
        finally:
            self._connections.give_back(connection)

    def connect_direct(self, role: str) -> Connection:
        """Make a connection to the server itself that belongs to the caller, who closes it."""
        return _connect(self._direct_settings, f"{self._application} {role}")

    def interrupt(self) -> None:
        self._connections.interrupt()

    def interrupt_hung(self, limit: timedelta) -> None:
        self._connections.interrupt_hung(limit)

    def close(self) -> None:
        self._connections.close()

    @contextmanager
    def _open(self, begin: str, settings: str) -> Iterator[PostgresTransaction]:
        connection = self._connections.take()
        try:
            transaction = PostgresTransaction(connection, lambda: self._is_doubtful(connection))
            with transaction.open(begin, settings):
                yield transaction
        finally:
            self._connections.give_back(connection)

    def _make(self) -> Connection:
        connection = _connect(self._settings, self._application)
        connection.add_notice_handler(lambda notice: self._note(connection, notice))
        return connection

    def _note(self, connection: Connection, notice: psycopg.errors.Diagnostic) -> None:
        """Remember that the server stopped waiting for a synchronous standby: the commit may yet be lost with this server."""
        if notice.source_function == "SyncRepWaitForLSN":
            self._doubtful.add(connection)

    def _is_doubtful(self, connection: Connection) -> bool:
        if connection not in self._doubtful:
            return False
        self._doubtful.discard(connection)
        return True


def _connect(settings: dict[str, str], application: str) -> Connection:
    try:
        connection = psycopg.connect(
            **{"application_name": application} | settings,  # type: ignore[arg-type]  # libpq's own settings are all text
            autocommit=True,
            prepare_threshold=None,
        )
    except psycopg.Error as error:
        raise UnavailableError(" ".join(str(error).split())) from error
    for name, loader in (("uuid", TextLoader), ("json", TextLoader), ("timestamptz", _InstantLoader)):
        connection.adapters.register_loader(name, loader)
    return connection


class _InstantLoader(Loader):
    """Instants in UTC whatever the role's time zone is; psycopg's own loader asks the session, which a pooler shares."""

    def load(self, data: Buffer) -> datetime:
        return datetime.fromisoformat(bytes(data).decode()).astimezone(UTC)


def _milliseconds(duration: timedelta) -> str:
    return f"{round(duration.total_seconds() * 1000)}ms"


# One statement for all, because each message of a pipeline costs the server a parse and a plan. A table that was never
# analysed looks small to the planner, and a hash join over a million runs then looks cheap: every statement is served by an
# index, so that the other ways are simply taken away. A bitmap has no order: a probe would read and sort the whole of a lane
# of which the planner only knows how long the average one is.
_READ_SETTINGS = f"""\
SELECT set_config('lock_timeout', '{_milliseconds(LOCK_TIMEOUT)}', true),
    set_config('statement_timeout', '{_milliseconds(STATEMENT_TIMEOUT)}', true),
    set_config('idle_in_transaction_session_timeout', '{_milliseconds(IDLE_IN_TRANSACTION_TIMEOUT)}', true),
    set_config('TimeZone', 'UTC', true), set_config('DateStyle', 'ISO', true), set_config('jit', 'off', true),
    set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),
    set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true), set_config('enable_material', 'off', true)"""

# An administrator's stricter synchronous_commit stays.
_WRITE_SETTINGS = f"""{_READ_SETTINGS},
    set_config('synchronous_commit', CASE WHEN current_setting('synchronous_commit') IN ('off', 'local') THEN 'on'
        ELSE current_setting('synchronous_commit') END, true)"""
