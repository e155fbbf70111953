"""Batched SQL without an engine: `python -m bench.peers.batched_sql ACTION JSON`. The bar for the engine's own overhead.

One connection claims a hundred runs in one statement, records a step of all of them in one transaction, and ends them
together with the last step. No body is executed, and nothing is replayed, retried or taken over. It must write the rows
that an engine writes, fenced and durable, and must never take a shortcut that an engine could not take.
"""

import json
import resource
import secrets
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, cast

import msgspec
import psycopg

from bench.event import report
from bench.sql import load_statements

STEPS = {"one_step": 1, "ten_steps": 10}
WORKER = 1
STATEMENTS = load_statements(__file__)
ENQUEUE_BATCH = 500

Options = dict[str, Any]
Claimed = tuple[str, int, dict[str, int]]


def _encode(batch: list[dict[str, Any]]) -> str:
    return msgspec.json.encode(batch).decode()


def _new_id() -> str:
    value = (time.time_ns() // 1_000_000) << 80 | 0x7 << 76 | secrets.randbits(12) << 64 | 0x2 << 62 | secrets.randbits(62)
    return str(uuid.UUID(int=value))


@contextmanager
def _transaction(connection: psycopg.Connection) -> Iterator[None]:
    """One transaction sent as a whole, so that it costs one wait for the server; an error voids all of it."""
    with connection.pipeline():
        connection.execute("BEGIN")
        connection.execute("SET LOCAL lock_timeout = 100")
        yield
        connection.execute("COMMIT")


class BatchedSql:
    """The one connection, and the three things that are done on it."""

    def __init__(self, connection: psycopg.Connection, slots: int) -> None:
        self._connection = connection
        self._slots = slots

    def enqueue(self, task: str, numbers: range) -> None:
        batch = [{"id": _new_id(), "kind": task, "input": {"number": number}, "seed": secrets.randbits(62)} for number in numbers]
        with _transaction(self._connection):
            self._connection.execute(STATEMENTS["enqueue"], {"batch": _encode(batch)})

    def claim(self) -> list[Claimed]:
        with _transaction(self._connection):
            self._connection.execute(STATEMENTS["fence"], {"worker": WORKER})
            cursor = self._connection.execute(STATEMENTS["claim"], {"worker": WORKER, "slots": self._slots})
        return cast(list[Claimed], cursor.fetchall())

    def record(self, claimed: list[Claimed], seq: int, *, is_last: bool) -> None:
        """Record one step of every claimed run, and end the runs in the same transaction after the last one."""
        now = datetime.now(UTC)
        steps = [
            {"run": run, "token": token, "name": f"increment-{seq}", "seq": seq, "digest": "0" * 32, "result": given["number"] + seq, "started_at": now}
            for run, token, given in claimed
        ]
        ends = [{"id": run, "token": token, "output": {"number": given["number"] + seq}} for run, token, given in claimed]
        with _transaction(self._connection):
            self._connection.execute(STATEMENTS["fence"], {"worker": WORKER})
            recorded = self._connection.execute(STATEMENTS["record_steps"], {"batch": _encode(steps)})
            ended = self._connection.execute(STATEMENTS["finish_runs"], {"batch": _encode(ends)}) if is_last else None
        if recorded.rowcount != len(claimed) or (ended is not None and ended.rowcount != len(claimed)):
            raise RuntimeError(f"of {len(claimed)} runs only {recorded.rowcount} accepted their step")


@contextmanager
def _opened(options: Options) -> Iterator[BatchedSql]:
    with psycopg.connect(options["url"], autocommit=True) as connection:
        yield BatchedSql(connection, options.get("concurrency", 100))


def prepare(options: Options) -> None:
    with psycopg.connect(options["url"], autocommit=True) as connection:
        connection.execute(STATEMENTS["create_schema"])
        connection.execute(STATEMENTS["add_worker"], {"worker": WORKER})
    report("prepared")


def enqueue(options: Options) -> None:
    task, count = options["task"], options["count"]
    at_once = min(options["at_once"], ENQUEUE_BATCH)
    with _opened(options) as sql:
        for number in range(options.get("warm_up", 0)):
            sql.enqueue(task, range(number, number + 1))
        begun = time.perf_counter()
        for first in range(0, count, at_once):
            sql.enqueue(task, range(first, min(first + at_once, count)))
        report("enqueued", seconds=time.perf_counter() - begun)


def drain(options: Options) -> None:
    steps = STEPS[options["task"]]
    done = 0
    with _opened(options) as sql:
        begun, begun_cpu = time.perf_counter(), time.process_time()
        while claimed := sql.claim():
            for seq in range(1, steps + 1):
                sql.record(claimed, seq, is_last=seq == steps)
            done += len(claimed)
        seconds, cpu_seconds = time.perf_counter() - begun, time.process_time() - begun_cpu
    if done != options["count"]:
        raise RuntimeError(f"{done} runs were there instead of {options['count']}")
    report("drained", seconds=seconds, cpu_seconds=cpu_seconds, memory_kib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


ACTIONS: dict[str, Callable[[Options], None]] = {"prepare": prepare, "enqueue": enqueue, "drain": drain}

if __name__ == "__main__":
    ACTIONS[sys.argv[1]](json.loads(sys.argv[2]))
