"""Rows of a database as the model has them: read by plain SQL, with lanes by their names and signals by their place in the order.

Each database gives numbers of its own to signals; only their order is a promise. `Numbers` knows which number of a database is which
of the model, and whether a later one is ever smaller.
"""

import json
from dataclasses import replace
from typing import Any

from outlast.database.sqlite.instant import from_number
from outlast.native.store import Checkpoint, RunCheckpoint, StepCheckpoint

from .store_model_state import ModelSignal, State
from .store_pair import Side, until_free

COLUMNS: dict[str, tuple[str, str]] = {
    "run": (
        "id",
        "lane, priority, status, due_at, created_at, deadline_at, worker, token, cancel_requested_at, attempts, recoveries, losses, strikes, "
        "started_at, claimed_at, finished_at",
    ),
    "run_body": ("run", "input_digest, idempotency_key, output, error, retired_seq, cancel_reason, verdict, failed_path, failed_name, failed_number"),
    "run_key": ("kind, key", "run, input_digest, ended_status"),
    "step": ("run, path, name, number", "seq, kind, outcome, attempts, token, started_at, finished_at, result, error"),
    "step_failure": ("run, path, name, number, attempt", "token, started_at, failed_at, retry_at, is_retired, error"),
    "wait": ("run, path, name, number", "kind, due_at, topic, after"),
    "signal": ("id", "topic, run, payload, payload_digest, idempotency_key, sent_at, expires_at, number, is_delivered"),
    "cursor": ("run, topic", "number"),
    "worker": ("id", "lease_until, started_at, beat, is_alive, ended_at, end"),
    "decision": ("id", "run, digest, opened_at, state, answer, answered_at, closed_at"),
    "action": ("at, action, run, reason", ""),
}
"""What identifies a row, and what else is in it. Generation is 0 throughout."""


class Numbers:
    """Which number of one database is which of the model."""

    def __init__(self) -> None:
        self._here: dict[int, int] = {0: 0}
        self._there: dict[int, int] = {0: 0}

    def learn(self, rows: State, signals: dict[str, ModelSignal]) -> bool:
        """Take note of the numbers that signals have got, and return whether those of later ones are greater."""
        for (signal_id,), row in rows["signal"].items():
            number, known = row["number"], signals.get(signal_id)
            if number is not None and number not in self._there and known is not None and known.number is not None:
                self._here[known.number], self._there[number] = number, known.number
        given = [self._here[number] for number in sorted(self._here)]
        return given == sorted(set(given))

    def here(self, number: int) -> int:
        """Return the database's number for one of the model."""
        return self._here[number]

    def model(self, number: int | None) -> Any:
        """Return the model's number for one of the database."""
        return None if number is None else self._there.get(number, f"not numbered by the model: {number}")

    def translate(self, checkpoint: Checkpoint) -> Checkpoint:
        """Return a checkpoint with the database's numbers in place of the model's."""
        if isinstance(checkpoint, StepCheckpoint) and checkpoint.heard is not None:
            topic, number = checkpoint.heard
            return StepCheckpoint(checkpoint.hold, checkpoint.generation, checkpoint.record, checkpoint.was_open, (topic, self.here(number)), checkpoint.sent)
        if isinstance(checkpoint, RunCheckpoint) and checkpoint.waits:
            values = {name: getattr(checkpoint, name) for name in checkpoint.__struct_fields__}
            return RunCheckpoint(**values | {"waits": tuple(replace(wait, after=self.here(wait.after)) for wait in checkpoint.waits)})
        return checkpoint


def rows_of(side: Side) -> State:
    """Return all rows that the model knows, with the database's own numbers of signals."""
    return until_free(lambda: _read(side))


def _read(side: Side) -> State:
    with side.backend.database.reading() as tx:
        asked = {name: tx.run(f"SELECT {_selected(side, name)} FROM {side.table(name)}") for name in COLUMNS}
        return {name: dict(_row(side, name, row) for row in rows.all()) for name, rows in asked.items()}


def in_model_numbers(rows: State, numbers: Numbers) -> State:
    """Return the rows with the model's numbers of signals."""
    places = (("signal", "number"), ("cursor", "number"), ("wait", "after"))
    told = {table: {key: row | {column: numbers.model(row[column])} for key, row in rows[table].items()} for table, column in places}
    return rows | told


def without_used_places(rows: State) -> State:
    """Return the rows without what a delivery has noted in the waits of runs that it woke: nobody reads that, and the next park writes it anew."""
    asleep = {key for key in rows["wait"] if rows["run"][key[0],]["status"] == "waiting"}
    return rows | {"wait": {key: row if key in asleep else row | {"after": None} for key, row in rows["wait"].items()}}


def _selected(side: Side, table: str) -> str:
    identity, others = COLUMNS[table]
    names = f"{identity}, {others}" if others else identity
    if table != "worker":
        return names
    return names.removesuffix("end") + ("ended_as" if side.is_sqlite else '"end"')


def _row(side: Side, table: str, row: tuple[Any, ...]) -> tuple[Any, dict[str, Any]]:
    identity, others = (names.split(", ") if names else [] for names in COLUMNS[table])
    values = {name: _plain(side, name, value) for name, value in zip([*identity, *others], row, strict=True)}
    if table == "run" and values["finished_at"] is not None:
        values["losses"] = None
    return tuple(values[name] for name in identity), {name: values[name] for name in others}


def _plain(side: Side, name: str, value: Any) -> Any:
    if value is None:
        return None
    if name == "lane":
        return next(lane for lane, number in side.lanes.items() if number == value)
    if name.startswith("is_"):
        return bool(value)
    if name == "error":
        return json.loads(value)["type"] if isinstance(value, str) else value["type"]
    if side.is_sqlite and (name.endswith("_at") or name in ("lease_until", "at")):
        return from_number(value)
    return value
