"""On PostgreSQL waiting by name costs the same however many wait and however much was ever sent, with and without statistics."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from outlast import ids
from outlast.native.backend import Backend
from outlast.native.history import Outcome, Record, RecordKind, Wait
from outlast.native.mailbox import NewSignal
from outlast.native.postgres import postgres_backend
from outlast.native.store import Hold, RunCheckpoint, StepCheckpoint
from outlast.run import RunStatus
from outlast.step_key import StepKey

from .plans import explaining

WAITING = 10_000
DELIVERED = 50_000
WAITERS = 3
"""Of each topic."""
PAGES_MAX = 150
"""A statement over one signal and its three waiters: catalogues, a dozen looks into indexes of three levels, and what it writes."""
WORKER = 1
KEY = StepKey((), "wait")
FILL = (
    "INSERT INTO outlast.lane (queue, kind, version) VALUES ('default', 'greet', 1)",
    f"""INSERT INTO outlast.worker (id, name, process, lanes, tasks, lease, lease_until, started_at, is_provable)
    VALUES ({WORKER}, 'worker', 'process', '{{1}}', '[]', interval '30 s', now() + interval '1 day', now(), true)""",
    f"""INSERT INTO outlast.run (id, lane, kind, version, priority, status, token, worker, created_at)
    SELECT (lpad(to_hex(n), 12, '0') || '70008' || substr(md5(n::text), 1, 15))::uuid, lane.id, 'greet', 1, 0,
        CASE n WHEN 0 THEN 'running' ELSE 'waiting' END, 1, CASE n WHEN 0 THEN {WORKER} END, now()
    FROM generate_series(0, {WAITING}) AS n, outlast.lane""",
    "INSERT INTO outlast.run_body (run, input, input_digest, tags, headers, seed) SELECT id, 'null', '', '[]', '{}', 7 FROM outlast.run",
    f"""INSERT INTO outlast.wait (run, generation, path, name, number, kind, topic)
    SELECT id, 0, '', 'pay', 0, 'effect', 'topic ' || (row_number() OVER (ORDER BY id)) / {WAITERS} FROM outlast.run WHERE status = 'waiting'""",
    f"""INSERT INTO outlast.signal (id, topic, idempotency_key, sent_at, expires_at, number, is_delivered)
    SELECT gen_random_uuid(), 'old ' || n % 1000, 'key ' || n, now(), now() + interval '1 day', n, true FROM generate_series(1, {DELIVERED}) AS n""",
    f"SELECT setval('outlast.signal_number', {DELIVERED})",
    f"INSERT INTO outlast.cursor (run, topic, number) SELECT id, 'old 7', {DELIVERED} / 2 FROM outlast.run",
)


@dataclass
class Filled:
    """A database in which many wait by name."""

    backend: Backend
    url: str
    held: Hold


@pytest.fixture
def filled(postgres_url: str) -> Iterator[Filled]:
    backend = postgres_backend(postgres_url)
    backend.schema.ensure("create")
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for table in ("run", "run_body", "wait", "signal", "cursor"):
            connection.execute(f"ALTER TABLE outlast.{table} SET (autovacuum_enabled = off)".encode())
        for statement in FILL:
            connection.execute(statement.encode())
        row = connection.execute("SELECT id::text, token FROM outlast.run WHERE status = 'running'").fetchone()
    assert row is not None
    yield Filled(backend, postgres_url, Hold(*row))
    backend.database.close()


def faults(filled: Filled) -> list[str]:
    """Send, deliver, hear and forget one signal, and park one run by name; say which statement was not served by its index."""
    expected = {
        "find_sent": {"signal_pkey", "signal_key"},
        "count_waiting": {"wait_topic", "run_pkey"},
        "find_mail": {"cursor_pkey", "signal_topic"},
        "move_cursors": {"step_pkey"},
        "send_signals": {"step_pkey"},
        "forget_failures": {"run_pkey", "step_failure_pkey"},
        "delete_expired": {"signal_expired", "signal_pkey"},
        "list_undelivered": {"signal_undelivered"},
        "number_signals": {"signal_undelivered", "signal_pkey"},
        "wake_named": {"signal_undelivered", "wait_topic", "wait_pkey", "run_pkey"},
        "mark_delivered": {"signal_undelivered", "wait_topic", "signal_pkey"},
        "wake_parked": {"signal_topic", "run_pkey"},
        "look": {"signal_undelivered"},
    }
    with explaining(filled.backend.database) as tx:
        store = filled.backend.store
        assert not store.append_signal(tx, NewSignal(ids.run_id(), "old 7", idempotency_key="key 7")).created
        store.append_signal(tx, NewSignal(ids.run_id(), "topic 7"))
        assert store.count_waiting(tx, "topic 7", 1_000) == WAITERS
        assert store.look(tx, [1]).has_undelivered
        delivered = store.deliver_signals(tx, 500)
        assert (delivered.count, delivered.has_more) == (1, False)
        mail = store.find_mail(tx, filled.held.run_id, "old 7", 0)
        assert (mail.signal is not None and mail.signal.number > DELIVERED / 2, mail.has_undelivered) == (True, False)
        record = Record(KEY, 0, RecordKind.WAIT, Outcome.RESULT, "", 1, datetime.now(UTC), "null")
        sent = NewSignal(ids.run_id(), "topic 8", ttl=timedelta(days=1))
        assert store.commit_checkpoints(tx, [StepCheckpoint(filled.held, 0, record, False, ("old 7", mail.newest), sent)])() == []
        assert store.delete_failures(tx, filled.held, 0, KEY) == 0
        assert store.delete_expired(tx, 500) == 0
        wait = Wait(StepKey((), "pay"), RecordKind.EFFECT, None, "topic 7")
        assert store.commit_checkpoints(tx, [RunCheckpoint(filled.held, 0, RunStatus.WAITING, None, (wait,))])() == []
    plans = {plan.statement: plan for plan in tx.plans}
    assert (plans["wake_named"].rows, plans["wake_parked"].rows) == (WAITERS, 1)
    large = {"run", "wait", "signal", "cursor"}
    return [
        f"{name}: walks {sorted(plans[name].walked & large)}, lacks {sorted(indexes - plans[name].indexes)}, touches {plans[name].buffers} pages"
        for name, indexes in expected.items()
        if plans[name].walked & large or indexes - plans[name].indexes or plans[name].buffers > PAGES_MAX
    ]


def test_delivery_and_park_are_served_by_their_indexes(filled: Filled) -> None:
    """With ten thousand waits and fifty thousand signals of old, whatever the planner knows of them, each statement touches what it is about."""
    found = {"never analysed": faults(filled)}
    with psycopg.connect(filled.url, autocommit=True) as connection:
        connection.execute("ANALYZE")
    found["analysed"] = faults(filled)
    assert found == {"never analysed": [], "analysed": []}
