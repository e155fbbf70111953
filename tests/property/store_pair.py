"""StorePair: the same calls of `Store` on SQLite and on PostgreSQL, and whether both say and keep the same.

What may differ is taken out here, with the reason: the numbers of lanes, and the marks of progress, which each database
counts in its own way and only compares with themselves.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from outlast.database.sqlite.instant import from_number
from outlast.database.transaction import Refusal, RefusedError, Transaction
from outlast.errors import OutlastError
from outlast.native.backend import Backend
from outlast.native.postgres import postgres_backend
from outlast.native.sqlite import sqlite_backend
from outlast.native.store import LaneName, Orphan, Store

from .store_draws import LANES

TABLES = {
    "run": "id, lane, kind, version, priority, status, due_at, worker, token, generation, ending, cancel_requested_at, attempts, recoveries, "
    # What a run had lost before it ended is of no consequence: a retry begins at nothing.
    "CASE WHEN finished_at IS NULL THEN losses END, strikes, deadline_at, created_at, started_at, claimed_at, finished_at",
    "run_body": "run, seed, input, input_digest, idempotency_key, tags, headers, output, error, failed_path, failed_name, failed_number, retired_seq, "
    "cancel_reason, verdict, warnings",
    "run_key": "kind, key, run, input_digest, ended_status",
    "step": "run, generation, path, name, number, seq, kind, outcome, digest, attempts, token, started_at, finished_at, result, error",
    "step_failure": "run, generation, path, name, number, attempt, token, error, started_at, failed_at, retry_at, is_retired",
    "activity": "run, generation, path, name, number, attempt, started_at, done, total, note",
    "wait": "run, generation, path, name, number, kind, due_at",
    "queue": "name, paused_at",
    "worker": "id, name, process, beat, is_alive, is_idle, lease_until, started_at, ended_at, is_provable, tasks",
    "action": "at, actor, action, run, queue, affected, reason",
}
OTHER_TABLES = ("lane",)
TABLES_OF_THE_MODEL = ("cursor", "signal", "decision")
"""What only the test with a model writes to, and compares."""
_NAMES_ON_SQLITE = {"step": "run_step"}
_INSTANTS = (
    "due_at",
    "cancel_requested_at",
    "deadline_at",
    "created_at",
    "started_at",
    "claimed_at",
    "finished_at",
    "failed_at",
    "retry_at",
    "ended_at",
    "at",
    "paused_at",
)


class Side:
    """One of the two databases."""

    def __init__(self, backend: Backend, prefix: str) -> None:
        self.backend = backend
        self.store: Store = backend.store
        self.lanes: dict[LaneName, int] = {}
        self.is_sqlite = prefix == "outlast_"
        self._prefix = prefix
        backend.schema.ensure("create")

    def table(self, name: str) -> str:
        return f"{self._prefix}{_NAMES_ON_SQLITE.get(name, name) if self.is_sqlite else name}"

    def place(self, name: str) -> str:
        return f":{name}" if self.is_sqlite else f"%({name})s"

    def empty(self) -> None:
        """Begin anew; what hangs on others goes first."""
        with self.backend.database.transaction() as tx:
            for name in reversed([*OTHER_TABLES[::-1], *TABLES, *TABLES_OF_THE_MODEL]):
                tx.run(f"DELETE FROM {self.table(name)}")
            self.lanes = self.store.ensure_lanes(tx, LANES)

    def rows(self) -> dict[str, list[tuple[Any, ...]]]:
        """Return all that is kept, in a form in which both sides can be compared."""
        with self.backend.database.reading() as tx:
            queued = {name: tx.run(f"SELECT {columns} FROM {self.table(name)}") for name, columns in TABLES.items()}
            return {name: sorted((self._plain(name, row) for row in rows.all()), key=repr) for name, rows in queued.items()}

    def _plain(self, table: str, row: tuple[Any, ...]) -> tuple[Any, ...]:
        lanes = {number: name for name, number in self.lanes.items()}
        values = dict(zip(_columns(table), row, strict=True))
        for name, value in values.items():
            if name == "lane":
                values[name] = lanes[value]
            elif self.is_sqlite and value is not None and (name in _INSTANTS or name == "lease_until"):
                values[name] = from_number(value)
            elif name.startswith("is_"):
                values[name] = bool(value)
            elif name == "warnings":
                values[name] = json.loads(value) if self.is_sqlite else value
        return tuple(values.items())

    def said(self, answer: Any) -> Any:
        """Return an answer with lanes by their names, sets in order, and no marks of progress."""
        lanes = {number: name for name, number in self.lanes.items()}
        if isinstance(answer, Orphan):
            return replace(answer, loss_mark=0, progress_mark=int(answer.progress_mark > answer.loss_mark))
        if hasattr(answer, "lane"):
            lane = lanes[answer.lane]
            names = answer._fields if isinstance(answer, tuple) else answer.__struct_fields__
            return lane, {name: getattr(answer, name) for name in names if name != "lane"}
        return answer


def _columns(table: str) -> list[str]:
    return [part.split()[-1] if "CASE" not in part else "losses" for part in TABLES[table].split(", ")]


class StorePair:
    """Both databases. Every call is made on both, and has to end the same way."""

    def __init__(self, folder: Path, postgres_url: str) -> None:
        self.sides = [Side(sqlite_backend(folder / "pair.db"), "outlast_"), Side(postgres_backend(postgres_url), "outlast.")]

    def empty(self) -> None:
        for side in self.sides:
            side.empty()

    def close(self) -> None:
        for side in self.sides:
            side.backend.database.close()

    def write(self, call: Callable[[Side, Transaction], Any]) -> Any:
        """Make a call in a writing transaction of each, and return what both answered, or the class of their error."""
        return self._same(call, lambda side: side.backend.database.transaction())

    def read(self, call: Callable[[Side, Transaction], Any]) -> Any:
        return self._same(call, lambda side: side.backend.database.reading())

    def delete(self, table: str, column: str, value: Any) -> None:
        """What an operator or a part that was restored may do."""
        self.write(lambda side, tx: tx.run(f"DELETE FROM {side.table(table)} WHERE {column} = {side.place('value')}", {"value": value}).count)

    def set(self, table: str, column: str, value: Any, key: str, key_value: Any) -> None:
        def set(side: Side, tx: Transaction) -> int:
            sql = f"UPDATE {side.table(table)} SET {column} = {side.place('value')} WHERE {key} = {side.place('key')}"
            return tx.run(sql, {"value": value, "key": key_value}).count

        self.write(set)

    def _same(self, call: Callable[[Side, Transaction], Any], opened: Callable[[Side], Any]) -> Any:
        answers = []
        for side in self.sides:
            try:
                answers.append(_told(side, until_free(lambda side=side: _made(call, side, opened))))
            except RefusedError as error:
                answers.append(error.refusal)
            except OutlastError as error:
                answers.append(type(error))
        assert answers[0] == answers[1], _difference(*answers)
        return answers[0]

    def assert_same_rows(self) -> None:
        here, there = (side.rows() for side in self.sides)
        for name in TABLES:
            assert here[name] == there[name], f"{name}\n{_difference(here[name], there[name])}"


def until_free(made: Callable[[], Any], times: int = 100) -> Any:
    """Make a transaction again that a lock of the database's own upkeep has cut off: the same may pass then."""
    for _ in range(times):
        try:
            return made()
        except RefusedError as error:
            if error.refusal is not Refusal.BUSY:
                raise
    return made()


def _made(call: Callable[[Side, Transaction], Any], side: Side, opened: Callable[[Side], Any]) -> Any:
    with opened(side) as tx:
        answer = call(side, tx)
    return answer() if callable(answer) else answer


def _difference(here: Any, there: Any) -> str:
    """Return what only one side said, part by part where both said as many."""
    if isinstance(here, list | tuple) and isinstance(there, list | tuple) and len(here) == len(there):
        return "\n".join(_difference(one, other) for one, other in zip(here, there, strict=True) if one != other)
    return f"SQLite: {here}\nPostgreSQL: {there}"


def _told(side: Side, answer: Any) -> Any:
    if isinstance(answer, list | tuple) and type(answer) in (list, tuple):
        return [_told(side, one) for one in answer]
    if isinstance(answer, set | frozenset):
        lanes = {number: name for name, number in side.lanes.items()}
        return sorted(lanes.get(one, one) for one in answer)
    if isinstance(answer, dict):
        return sorted(((key, _told(side, value)) for key, value in answer.items()), key=lambda pair: repr(pair[0]))
    return side.said(answer)
