"""The ledger's rows by plain SQL: what is committed now, and every committed change of a row that a checker wants to see.

It imports nothing of the library, so that the provider's program, which looks at what is durable, stands apart from the engine.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import psycopg

Row = dict[str, Any]
AUDITED = ("operation", "operation_attempt", "decision", "run", "worker")
POSTGRES_AUDIT = """
CREATE SCHEMA audit;
CREATE TABLE audit.change (
    id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    at double precision NOT NULL DEFAULT extract(epoch FROM clock_timestamp()),
    place text NOT NULL,
    old json,
    new json
);
CREATE FUNCTION audit.note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO audit.change (place, old, new) VALUES (TG_TABLE_NAME,
        CASE WHEN TG_OP <> 'INSERT' THEN to_json(OLD) END, CASE WHEN TG_OP <> 'DELETE' THEN to_json(NEW) END);
    RETURN NULL;
END;
$$;
"""
POSTGRES_TRIGGER = "CREATE TRIGGER audit_note AFTER INSERT OR UPDATE ON outlast.{table} FOR EACH ROW EXECUTE FUNCTION audit.note()"
SQLITE_AUDIT = "CREATE TABLE audit_change (id INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, place TEXT NOT NULL, old TEXT, new TEXT)"
SQLITE_TRIGGER = """
CREATE TRIGGER audit_note_{table}_{when} AFTER {when} ON outlast_{table} BEGIN
    INSERT INTO audit_change (at, place, old, new) VALUES ((julianday('now') - 2440587.5) * 86400.0, '{table}', {old}, {new});
END
"""
_JSON = ("about", "arguments", "error", "late", "options", "needs_result", "output", "result")
_LENGTHS = ("timeout", "settle")


@contextlib.contextmanager
def opened(url: str) -> Iterator[Any]:
    """Open a connection of the driver's own, in which each statement commits by itself."""
    if url.startswith("sqlite"):
        with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=60, isolation_level=None)) as connection:
            yield connection
    else:
        with psycopg.connect(url, autocommit=True) as connection:
            yield connection


def prefix_of(url: str) -> str:
    return "outlast_" if url.startswith("sqlite") else "outlast."


def find_attempts(url: str, key: str) -> list[Row]:
    """Return the attempts of an operation's key that are committed now, each in the state that is committed now."""
    mark = "?" if url.startswith("sqlite") else "%s"
    with opened(url) as connection:
        rows = connection.execute(f"SELECT number, token, outcome FROM {prefix_of(url)}operation_attempt WHERE key = {mark} ORDER BY number", [key])
        return [{"number": number, "token": token, "outcome": outcome} for number, token, outcome in rows.fetchall()]


def note_changes(url: str) -> None:
    """From now on note every committed change of the audited tables, which must be there."""
    with opened(url) as connection:
        if not url.startswith("sqlite"):
            connection.execute(POSTGRES_AUDIT)
            for table in AUDITED:
                connection.execute(POSTGRES_TRIGGER.format(table=table))
            return
        connection.execute(SQLITE_AUDIT)
        for table in AUDITED:
            columns = [name for _, name, *_ in connection.execute(f"PRAGMA table_info(outlast_{table})")]
            old, new = (f"json_object({', '.join(f'{name!r}, {row}.{quoted(name)}' for name in columns)})" for row in ("OLD", "NEW"))
            connection.execute(SQLITE_TRIGGER.format(table=table, when="INSERT", old="NULL", new=new))
            connection.execute(SQLITE_TRIGGER.format(table=table, when="UPDATE", old=old, new=new))


def quoted(name: str) -> str:
    return f'"{name}"'


def read_changes(url: str) -> list[tuple[int, float, str, Row | None, Row | None]]:
    """Return what was noted, in order, as plain values: instants as seconds since 1970, lengths in seconds, JSON as values."""
    table = "audit_change" if url.startswith("sqlite") else "audit.change"
    with opened(url) as connection:
        rows = connection.execute(f"SELECT id, at, place, old, new FROM {table} ORDER BY id").fetchall()
    return [(number, at, place, plain(old, url), plain(new, url)) for number, at, place, old, new in rows]


def read_rows(url: str, table: str) -> list[Row]:
    """Return the rows of one of the engine's tables as plain values."""
    with opened(url) as connection:
        if url.startswith("sqlite"):
            connection.row_factory = sqlite3.Row
            found = [dict(row) for row in connection.execute(f"SELECT * FROM outlast_{table}")]
        else:
            found = [row for (row,) in connection.execute(f"SELECT to_json(t) FROM outlast.{table} AS t").fetchall()]
    return [plain(row, url) or {} for row in found]


def plain(row: Any, url: str) -> Row | None:
    """Return a row, as JSON or as a mapping, in plain values; JSON inside is text on SQLite, and a value on PostgreSQL."""
    if row is None:
        return None
    values: Row = dict(json.loads(row) if isinstance(row, str) else row)
    if "ended_as" in values:
        values["end"] = values.pop("ended_as")  # what SQLite calls it
    for name, value in values.items():
        if value is None:
            continue
        if name.endswith("_at") or name in ("due_at", "lease_until"):
            values[name] = datetime.fromisoformat(value).timestamp() if isinstance(value, str) else value / 1e6
        elif name in _LENGTHS:
            values[name] = value / 1e6
        elif name in _JSON and url.startswith("sqlite"):
            values[name] = json.loads(value)
    return values
