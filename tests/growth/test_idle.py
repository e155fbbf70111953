"""What an idle worker costs its database, counted by the server in its own log and not by the worker.

Counted is every statement that the server executed for a database, on whatever connection it came, but for three: what opens
a transaction, what ends it, and the one statement of settings in between, which travel with the query in one round trip
and read no table. So counted are the looks at the queue, at the timers and at the other workers, the renewals of the
lease, the sweeps, and the listener's tests of itself.
"""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack

import psycopg
import pytest

from outlast import Context, connect, task
from outlast.testing.postgres_server import FAST_SETTINGS, PostgresServer

from .server_log import LOGGED, Sent, queries, read_log, statements

SECONDS = 20.0
QUERIES_A_SECOND_MAX = 2.0
ASLEEP = 100_000
SETTLED_SECONDS = 3.0
"""What a worker does once, when it has just come, is over by then."""
CROWDS = {"alone": 1, "asleep": 1, "fleet": 3}
"""Databases, and how many workers idle in each. In `asleep` a hundred thousand runs sleep."""
WORK = {"look", "list_workers", "renew_worker", "list_orphans", "list_held", "notify"}
"""All that an idle worker asks. Each comes several times in the seconds that are counted, so that none is missed by chance."""
SLEEPERS = """
INSERT INTO outlast.run (id, lane, kind, version, priority, status, due_at, created_at)
SELECT (lpad(to_hex(n), 12, '0') || '70008000000000000000')::uuid, lane.id, 'greet', 1, 0, 'waiting', now() + interval '1 day', now()
FROM outlast.lane, generate_series(1, %s) AS n
"""


@task("greet")
async def greet(_: Context) -> None:
    """Never claimed here."""


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A server that notes every statement, and is nobody else's."""
    with PostgresServer(is_private=True, settings={**FAST_SETTINGS, **LOGGED}) as server:
        for name in CROWDS:
            server.create_database(name)
        yield server


async def idle(server: PostgresServer) -> list[Sent]:
    """Let all crowds idle at the same time, and return what the server was sent meanwhile."""
    async with AsyncExitStack() as stack:
        for name, workers in CROWDS.items():
            for _ in range(workers):
                engine = await stack.enter_async_context(connect(server.url(name), tasks=(greet,)))
                await engine.start()
        await asyncio.to_thread(put_to_sleep, server.url("asleep"))
        await asyncio.sleep(SETTLED_SECONDS)
        before = len(server.log)
        await asyncio.sleep(SECONDS)
        return list(read_log(server.log[before:]))


def put_to_sleep(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(SLEEPERS, [ASLEEP])


def test_an_idle_worker_asks_at_most_twice_a_second(server: PostgresServer) -> None:
    """Neither other workers nor a hundred thousand sleeping runs make it more."""
    sent = asyncio.run(idle(server))
    asked = {name: queries(sent, name) for name in CROWDS}
    rates = {name: asked[name].total() / workers / SECONDS for name, workers in CROWDS.items()}
    whole = {name: statements(sent, name) / workers / SECONDS for name, workers in CROWDS.items()}
    sys.stdout.write(f"queries a second and worker: {rates}; with the frames and settings of their transactions: {whole}\n")
    assert {name: set(asked[name]) for name in CROWDS} == dict.fromkeys(CROWDS, WORK)
    assert max(rates.values()) <= QUERIES_A_SECOND_MAX, asked
