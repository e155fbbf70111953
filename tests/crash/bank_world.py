"""What is around the bank's workers: its tables, an observer of committed snapshots, and what is read at the end by plain SQL."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg

from outlast import connect, transaction_tables

from .bank_checker import BankEvidence
from .world import World

ACCOUNTS = 6
"""Few, so that transfers meet."""
BALANCE = 1_000_000
LOOK_SECONDS = 0.03


@contextlib.contextmanager
def open_bank(url: str, name: str = "test") -> Iterator[Any]:
    """Open a connection in which each statement commits by itself."""
    if url.startswith("sqlite"):
        with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=60, isolation_level=None, check_same_thread=False)) as connection:
            yield connection
    else:
        with psycopg.connect(url, autocommit=True, application_name=name) as connection:
            yield connection


def prepare_bank(engine_url: str, bank_url: str) -> None:
    """Make the engine's schema, and the bank's accounts, in the same database or in another."""

    async def migrate() -> None:
        async with connect(engine_url) as engine:
            await engine.migrate()

    asyncio.run(migrate())
    with open_bank(bank_url) as connection:
        if bank_url != engine_url:
            for statement in transaction_tables("sqlite" if bank_url.startswith("sqlite") else "postgresql").split(";"):
                if statement.strip():
                    connection.execute(statement)
        connection.execute("CREATE TABLE account (number bigint PRIMARY KEY, balance bigint NOT NULL, moves bigint NOT NULL)")
        connection.execute("CREATE TABLE transfer (nonce text PRIMARY KEY, times bigint NOT NULL)")
        for number in range(ACCOUNTS):
            connection.execute(f"INSERT INTO account VALUES ({number}, {BALANCE}, 0)")


class Observer:
    """A thread that reads one committed snapshot after the other for as long as the block lasts."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="observer", daemon=True)
        self._error: BaseException | None = None
        self.snapshots: list[tuple[int, int, int]] = []

    def __enter__(self) -> Observer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(60)
        if self._error is not None:
            raise self._error

    def _watch(self) -> None:
        begin = "BEGIN" if self._url.startswith("sqlite") else "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
        try:
            with open_bank(self._url, "observer") as connection:
                while not self._is_over.wait(LOOK_SECONDS):
                    connection.execute(begin)
                    balances, moves = connection.execute("SELECT sum(balance), sum(moves) FROM account").fetchone()
                    (times,) = connection.execute("SELECT coalesce(sum(times), 0) FROM transfer").fetchone()
                    connection.execute("COMMIT")
                    self.snapshots.append((int(balances), int(moves), int(times)))
        except BaseException as error:
            self._error = error


def read_evidence(world: World, bank_url: str, observer: Observer) -> BankEvidence:
    """Read what is there when all is over."""
    evidence = BankEvidence(snapshots=observer.snapshots)
    evidence.runs = {str(run): status for run, status in world.query("SELECT id, status FROM {run}")}
    records = world.query("SELECT run, outcome, result FROM {step} WHERE kind = 'transaction'")
    assert len({run for run, *_ in records}) == len(records), "a run has two records of its one transaction"
    evidence.records = {str(run): (outcome, _value(result)) for run, outcome, result in records}
    with open_bank(bank_url) as connection:
        evidence.counters = {nonce: int(times) for nonce, times in connection.execute("SELECT nonce, times FROM transfer").fetchall()}
        if bank_url != world.url:
            remembered = connection.execute("SELECT run, result FROM outlast_step").fetchall()
            evidence.remembered = {str(run): str(_value(result)) for run, result in remembered}
    return evidence


def _value(result: Any) -> str | None:
    """Return the text of a nonce that is JSON in the database; PostgreSQL's driver has decoded it."""
    return None if result is None else str(result).strip('"')


def last_note(folder: Path) -> dict[str, Any]:
    """Return the last whole line that a worker has noted."""
    path = folder / "bank.jsonl"
    if not path.exists():
        return {}
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 500))
        lines = file.read().splitlines()
    return dict(json.loads(lines[-1])) if lines else {}


def count_cut_off(world: World) -> int:
    """Count how often a transfer's function began in one more process."""
    path = world.folder / "bank.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    pids = Counter(nonce for nonce, _ in {(line["nonce"], line["pid"]) for line in lines if line["event"] == "begun"})
    return sum(processes - 1 for processes in pids.values())
