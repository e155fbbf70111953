"""A worker of the bank in a process of its own, to be killed: `python bank_child.py ENGINE_URL BANK_URL FOLDER`; BANK_URL may be `own`.

Each transfer is one transactional step between two plain ones: debit, credit, and one row under the run's nonce that counts. What
begins and what the function returns goes to a log that outlives the process.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import sqlite3
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psycopg_pool

from outlast import Context, FinalError, RetryPolicy, connect, step, task

PATIENT = RetryPolicy(maximum_attempts=1000, initial_delay="20ms", maximum_delay="200ms")
"""Ended sessions count as attempts: nothing here fails for good but what means to."""
PAUSE_SECONDS_MAX = 0.02
"""Between debit and credit, so that kills find transactions open."""
LEASE = "2s"


@dataclass(frozen=True)
class Transfer:
    """An order to move money; one that `is_refused` fails after it has moved it."""

    source: int
    target: int
    amount: int
    is_refused: bool = False


class Bank:
    """What the transactional step of this process begins on, and where it notes what it does."""

    def __init__(self, on: Any = None, folder: Path = Path()) -> None:
        self.on = on
        self._path = folder / "bank.jsonl"

    def note(self, event: str, nonce: str) -> None:
        """One line in one write: what is in the file happened."""
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(descriptor, json.dumps({"event": event, "nonce": nonce, "pid": os.getpid()}).encode() + b"\n")
        os.close(descriptor)


BANK = Bank()


@step(retry=PATIENT)
def move(connection: Any, nonce: str, transfer: Transfer) -> str:
    """Debit, credit and count, in whatever order the locks come; the nonce is the result, so that record and row can be joined."""
    BANK.note("begun", nonce)
    execute = partial(execute_on, connection)
    execute("UPDATE account SET balance = balance - %s, moves = moves + 1 WHERE number = %s", transfer.amount, transfer.source)
    time.sleep(random.uniform(0, PAUSE_SECONDS_MAX))
    execute("UPDATE account SET balance = balance + %s, moves = moves + 1 WHERE number = %s", transfer.amount, transfer.target)
    execute("INSERT INTO transfer (nonce, times) VALUES (%s, 1) ON CONFLICT (nonce) DO UPDATE SET times = transfer.times + 1", nonce)
    if transfer.is_refused:
        raise FinalError("the bank changed its mind after it had moved the money")
    BANK.note("returned", nonce)
    return nonce


def execute_on(connection: Any, sql: str, *values: Any) -> Any:
    return connection.execute(sql.replace("%s", "?") if isinstance(connection, sqlite3.Connection) else sql, values)


@step
async def look_up(amount: int) -> int:
    return amount


@task
async def move_money(ctx: Context, transfer: Transfer) -> str:
    await ctx.step(look_up, transfer.amount)
    nonce = await ctx.transaction(BANK.on or ctx.database, move, str(ctx.uuid()), transfer)
    await ctx.step(look_up, -transfer.amount)
    return nonce


async def main(engine_url: str, bank_url: str, folder: Path) -> None:
    global BANK
    if bank_url == "own":
        BANK = Bank(None, folder)
    elif bank_url.startswith("sqlite"):
        BANK = Bank(lambda: sqlite3.connect(bank_url.removeprefix("sqlite:///"), timeout=30), folder)
    else:
        BANK = Bank(psycopg_pool.ConnectionPool(bank_url, min_size=1, max_size=8, open=True, check=psycopg_pool.ConnectionPool.check_connection), folder)
    async with connect(engine_url, tasks=(move_money,), lease=LEASE) as engine:
        engine.events.subscribe(
            lambda event: os.write(1, f"{event.name}\n".encode()) if event.name in ("worker_started", "lease_lost", "write_refused") else None
        )
        await engine.run(concurrency=8, stop_timeout=10)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
