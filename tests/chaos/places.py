"""Places: the database that chaos is done to, on a server or in a file of its own, and what is read back from it at the end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

import psycopg
from tests.concurrency.tcp_proxy import TcpProxy

from outlast import connect
from outlast.testing.postgres_server import FAST_SETTINGS, PostgresServer

from .statements import (
    AUDITED,
    DUMPED,
    POSTGRES_AUDIT,
    POSTGRES_INDEX_CHECK,
    POSTGRES_TRIGGER,
    SQLITE_AUDIT,
    SQLITE_TRIGGER,
)

Row = dict[str, Any]
_INSTANTS = ("due_at", "lease_until")
_JSON = ("result", "error", "input", "output", "tasks")


class Place(Protocol):
    """One database."""

    name: str

    def url(self, slot: str) -> str:
        """Return the address for a process in this slot: on PostgreSQL each has a wire of its own."""
        ...

    def direct_url(self) -> str: ...

    def connection(self) -> contextlib.AbstractContextManager[Any]:
        """Open a connection past every proxy."""
        ...

    def heal(self) -> None:
        """End every fault that is under way."""
        ...

    def transactions(self, slots: Sequence[str]) -> int | None:
        """Return how many transactions have passed on the wires of these slots; None where there are no wires."""
        ...

    def dump(self) -> dict[str, list[Row]]:
        """Return the tables and the audit as plain values, instants as seconds since 1970."""
        ...

    def self_check(self) -> list[str]:
        """Return what the database's own check finds wrong."""
        ...

    def close(self) -> None: ...


def make_schema(url: str) -> None:
    async def migrate() -> None:
        async with connect(url) as engine:
            await engine.migrate()

    asyncio.run(migrate())


class PostgresPlace:
    """A private server with a proxy for each slot, or an empty database of somebody else's."""

    name = "postgres"

    def __init__(self, slots: Sequence[str], url: str | None = None) -> None:
        self.server = PostgresServer(url, is_private=True, settings=FAST_SETTINGS)
        self.server.start()
        self.proxies: dict[str, TcpProxy] = {}
        try:
            self._direct = url or self.server.create_database("chaos")
            make_schema(self._direct)
            with self.connection() as connection:
                connection.execute(POSTGRES_AUDIT)
                for table in AUDITED:
                    connection.execute(POSTGRES_TRIGGER.format(table=table))
            self.proxies = {slot: TcpProxy(self._direct) for slot in slots}
        except BaseException:
            self.close()
            raise

    def url(self, slot: str) -> str:
        return self.proxies[slot].url

    def direct_url(self) -> str:
        return self._direct

    @contextlib.contextmanager
    def connection(self) -> Iterator[psycopg.Connection[Any]]:
        with psycopg.connect(self._direct, autocommit=True, connect_timeout=10) as connection:
            yield connection

    def terminate_backends(self, share: float, chance: Any) -> int:
        """End a share of the server's sessions, whatever they are in the middle of; return how many it were."""
        with self.connection() as connection:
            rows = connection.execute("SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()").fetchall()
            chosen = [pid for (pid,) in rows if chance.random() < share]
            return sum(bool(connection.execute("SELECT pg_terminate_backend(%s)", (pid,)).fetchone()) for pid in chosen)

    def heal(self) -> None:
        for proxy in self.proxies.values():
            proxy.is_refusing = False
            proxy.passing.set()
            for cut in proxy.cuts:
                cut.let_go.set()
            proxy.cuts = []

    def transactions(self, slots: Sequence[str]) -> int | None:
        return sum(self.proxies[slot].commits for slot in slots)

    def dump(self) -> dict[str, list[Row]]:
        with self.connection() as connection:

            def rows(table: str, order: str = "") -> list[Row]:
                found = connection.execute(f"SELECT to_json(t)::text FROM {table} AS t {order}").fetchall()
                return [json.loads(text) for (text,) in found]

            tables = {name: [_plain(row) for row in rows(f"outlast.{name}")] for name in DUMPED}
            return tables | {"audit": [_plain_change(row) for row in rows("chaos.audit", "ORDER BY id")]}

    def self_check(self) -> list[str]:
        with self.connection() as connection:
            try:
                connection.execute("CREATE EXTENSION IF NOT EXISTS amcheck")
            except psycopg.Error:
                return []  # this server has no amcheck; the checker looks for double keys by itself
            try:
                connection.execute(POSTGRES_INDEX_CHECK).fetchall()
            except psycopg.Error as error:
                return [str(error)]
            return []

    def close(self) -> None:
        for proxy in self.proxies.values():
            proxy.close()
        self.server.stop()


class SqlitePlace:
    """One file."""

    name = "sqlite"

    def __init__(self, folder: Path) -> None:
        self.path = folder / "chaos.db"
        make_schema(self.direct_url())
        with self.connection() as connection:
            connection.executescript(SQLITE_AUDIT)
            for table in AUDITED:
                full = "outlast_run_step" if table == "step" else f"outlast_{table}"
                columns = [name for _, name, *_ in connection.execute(f"PRAGMA table_info({full})")]
                for when in ("INSERT", "UPDATE", "DELETE"):
                    old, new = (_json_object(columns, row) for row in ("OLD", "NEW"))
                    values = {"old": "NULL" if when == "INSERT" else old, "new": "NULL" if when == "DELETE" else new}
                    connection.execute(SQLITE_TRIGGER.format(table=table, full=full, when=when, **values))

    def url(self, slot: str) -> str:
        return self.direct_url()

    def direct_url(self) -> str:
        return f"sqlite:///{self.path}"

    @contextlib.contextmanager
    def connection(self, timeout: float = 60) -> Iterator[sqlite3.Connection]:
        with contextlib.closing(sqlite3.connect(self.path, timeout=timeout, isolation_level=None)) as connection:
            yield connection

    def is_free(self) -> bool:
        """Tell whether nobody is inside a write."""
        with self.connection(timeout=0.05) as connection:
            try:
                connection.execute("BEGIN EXCLUSIVE")
                connection.execute("ROLLBACK")
            except sqlite3.OperationalError:
                return False
            return True

    def heal(self) -> None:
        """Whoever holds the lock is ended by the nemesis."""

    def transactions(self, slots: Sequence[str]) -> int | None:
        return None

    def dump(self) -> dict[str, list[Row]]:
        with self.connection() as connection:
            connection.row_factory = sqlite3.Row

            def rows(table: str, order: str = "") -> list[Row]:
                return [dict(row) for row in connection.execute(f"SELECT * FROM {table} {order}")]

            tables = {name: [_plain(row) for row in rows("outlast_run_step" if name == "step" else f"outlast_{name}")] for name in DUMPED}
            return tables | {"audit": [_plain_change(row) for row in rows("chaos_audit", "ORDER BY id")]}

    def self_check(self) -> list[str]:
        with self.connection() as connection:
            found = [text for (text,) in connection.execute("PRAGMA integrity_check") if text != "ok"]
            return found + [f"a row of {table} refers to nothing in {parent}" for table, _, parent, _ in connection.execute("PRAGMA foreign_key_check")]

    def close(self) -> None:
        """The file goes with its folder."""


def _json_object(columns: Sequence[str], row: str) -> str:
    pairs = ", ".join(f"'{name}', {row}.{name}" for name in columns)
    return f"json_object({pairs})"


def _plain_change(row: Row) -> Row:
    changes = {name: json.loads(row[name]) if isinstance(row[name], str) else row[name] for name in ("old", "new")}
    return row | {name: None if value is None else _plain(value) for name, value in changes.items()}


def _plain(row: Row) -> Row:
    """Return a row with instants as seconds since 1970, JSON as values, and the words that both databases have."""
    row = {{"ended_as": "end"}.get(name, name): value for name, value in row.items()}
    for name, value in row.items():
        if value is not None and (name.endswith("_at") or name in _INSTANTS):
            row[name] = datetime.fromisoformat(value).timestamp() if isinstance(value, str) else value / 1e6
        elif isinstance(value, str) and name in _JSON:
            row[name] = json.loads(value)
    return row


def open_place(database: str, folder: Path, slots: Sequence[str]) -> Place:
    return PostgresPlace(slots) if database == "postgres" else SqlitePlace(folder)


def wait_until(holds: Any, seconds: float, pause: float = 0.1) -> bool:
    """Ask again and again, for what no event tells; return whether it came true in time."""
    ends_at = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > ends_at:
            return False
        time.sleep(pause)
    return True
