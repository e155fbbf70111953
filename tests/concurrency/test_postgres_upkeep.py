"""What only the PostgreSQL store has of an operator's statements: their plans in a large schema, and what others have locked."""

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import msgspec
import psycopg
import pytest

from outlast.native.postgres.parameters import SQL
from outlast.native.store import ClaimedRun
from outlast.run import RunStatus

from .postgres_world import World, finish, opened, record

RUNS = 20_000
NO_AGE = timedelta(0)
OUTLIVE = {"run_key", "action"}
"""Tables that name a run and stay when it is pruned."""
FILL = """
INSERT INTO outlast.run (id, lane, kind, version, priority, status, due_at, created_at, finished_at)
SELECT (lpad(to_hex(n), 12, '0') || '70008000000000000000')::uuid, %(lane)s, 'greet', 1, 0, s.status,
    CASE WHEN s.status IN ('pending', 'waiting') THEN now() END, now() - interval '9 d',
    CASE WHEN s.status IN ('succeeded', 'failed') THEN now() - interval '8 d' END
FROM generate_series(1, %(runs)s) AS n, LATERAL (
    SELECT CASE n %% 100 WHEN 1 THEN 'failed' WHEN 2 THEN 'pending' WHEN 3 THEN 'waiting' ELSE 'succeeded' END AS status
) AS s
"""


@pytest.fixture
def world(postgres_url: str) -> Iterator[World]:
    with opened(postgres_url) as world:
        yield world


NAMED = ("operation", "operation_attempt", "decision", "signal", "cursor")


@pytest.fixture
def large(world: World) -> World:
    """Many runs that are over, each with something that hangs on it, and statistics."""
    with psycopg.connect(world.url, autocommit=True) as connection:
        connection.execute(FILL, {"lane": world.lane, "runs": RUNS})
        connection.execute(
            "INSERT INTO outlast.run_body (run, input, input_digest, tags, headers, seed) SELECT id, 'null', 'd', '[]', '{}', 1 FROM outlast.run"
        )
        connection.execute(
            "INSERT INTO outlast.step (run, generation, path, name, number, seq, kind, outcome, digest, attempts, token, finished_at) "
            "SELECT id, 0, '', 'a', n, n, 'step', 'result', 'd', 1, 1, now() FROM outlast.run, generate_series(0, 2) AS n"
        )
        connection.execute(
            "INSERT INTO outlast.step_failure (run, generation, path, name, number, attempt, token, error, started_at, failed_at) "
            "SELECT id, 0, '', 'b', 0, 1, 1, '{}', now(), now() FROM outlast.run"
        )
        for columns, values in (("activity (attempt, note, reports, started_at", "1, '', 0, now()"), ("wait (kind, due_at", "'sleep', now()")):
            connection.execute(
                f"INSERT INTO outlast.{columns}, run, generation, path, name, number) SELECT {values}, id, 0, '', 'c', 0 FROM outlast.run".encode()
            )
        connection.execute("INSERT INTO outlast.run_key (kind, key, run, input_digest) SELECT 'greet', id::text, id, 'd' FROM outlast.run")
        connection.execute(
            "INSERT INTO outlast.operation (effect, key, status, run, generation, step, token, planned_at, changed_at, digest) "
            "SELECT 'pay', id || '/0/pay', 'done', id::text, 0, 'pay', 1, now(), now(), 'd' FROM outlast.run"
        )
        connection.execute(
            "INSERT INTO outlast.operation_attempt (effect, key, number, token, run, run_token, started_at, timeout, settle) "
            "SELECT effect, key, 1, 1, run, 1, now(), 1, 1 FROM outlast.operation"
        )
        connection.execute(
            "INSERT INTO outlast.decision (id, state, run, generation, step, question, about, digest, options, needs_result, opened_at) "
            "SELECT id::text, 'open', id::text, 0, 'pay', 'q', 'null', 'd', '{}', '{}', now() FROM outlast.run"
        )
        connection.execute("INSERT INTO outlast.signal (id, topic, run, sent_at) SELECT gen_random_uuid(), 't', id, now() FROM outlast.run")
        connection.execute("INSERT INTO outlast.cursor (run, topic, number) SELECT id, 't', 1 FROM outlast.run")
        for table in ("run", "run_body", "step", "step_failure", "activity", "wait", "run_key", *NAMED):
            connection.execute(f"ANALYZE outlast.{table}".encode())
    return world


def plan(world: World, statement: str, **parameters: object) -> list[dict[str, Any]]:
    """Every node of a statement's plan."""
    with psycopg.connect(world.url, autocommit=True) as connection:
        ((tree,),) = connection.execute(f"EXPLAIN (FORMAT JSON) {SQL[statement]}".encode(), parameters).fetchall()
    nodes, todo = [], [tree[0]["Plan"]]
    while todo:
        node = todo.pop()
        nodes.append(node)
        todo += node.get("Plans", [])
    return nodes


PRUNED = "{" + ",".join(f"00000000-{number:04x}-7000-8000-000000000000" for number in range(1, 501)) + "}"
AGES = {"now": None, "older_than": NO_AGE}
ASKED = {
    "list_old_runs": AGES | {"after": "00000000-0000-0000-0000-000000000000", "limit": 500, "dead_letters": False, "bound": 10_000},
    "delete_runs": AGES | {"runs": PRUNED, "dead_letters": False},
    "list_old_keys": AGES | {"kind": "", "key": "", "limit": 500},
    "delete_keys": {
        "batch": json.dumps([{"kind": "greet", "key": f"k{number}", "run": f"00000000-{number:04x}-7000-8000-000000000000"} for number in range(1, 501)])
    },
    "list_lanes": {"bound": 1001},
    "count_held": {"sample": 10_001},
    "count_asleep": {"sample": 10_001, "now": None},
    "count_ahead": {"lane": 1, "priority": 0, "due_at": "2100-01-01T00:00:00Z", "run": "00000000-0001-7000-8000-000000000000", "bound": 1001},
}


def test_an_operator_s_statement_never_walks_through_the_runs(large: World) -> None:
    """In a schema of twenty thousand runs no statement reads a large table from end to end."""
    walked = {
        statement: [
            node for node in plan(large, statement, **asked) if node["Node Type"] == "Seq Scan" and node["Relation Name"] not in ("lane", "queue", "worker")
        ]
        for statement, asked in ASKED.items()
    }
    assert {statement: [node["Relation Name"] for node in nodes] for statement, nodes in walked.items() if nodes} == {}


def test_the_walk_of_a_prune_is_one_in_the_primary_key(large: World) -> None:
    """A page begins where the last one ended, and the runs are not sorted to find it."""
    indexes = [node["Index Name"] for node in plan(large, "list_old_runs", **ASKED["list_old_runs"]) if "Index Name" in node]
    assert "run_pkey" in indexes
    seen, place = [], None
    for _ in range(RUNS // 500):
        with large.database.reading() as tx:
            page = large.store.list_old_runs(tx, timedelta(days=1), 500, place, dead_letters=False)
        seen += page
        place = page[-1].run_id
    assert len({one.run_id for one in seen}) == RUNS
    assert sum(one.is_prunable for one in seen) == RUNS * 97 // 100
    assert {one.records for one in seen if one.is_prunable} == {5}, "three records, a failed attempt and an operation"
    prunable = [one.run_id for one in seen if one.is_prunable][:500]
    with large.database.transaction() as tx:
        assert large.store.delete_runs(tx, prunable, timedelta(days=1), dead_letters=False) == 500
    with psycopg.connect(large.url) as connection:
        counts = [connection.execute(f"SELECT count(*) FROM outlast.{table}".encode()).fetchall() for table in ("run", "run_body", "step", "run_key")]
    assert counts == [[(RUNS - 500,)], [(RUNS - 500,)], [(3 * (RUNS - 500),)], [(RUNS,)]]


def test_every_table_that_hangs_on_a_run_is_pruned(world: World) -> None:
    """Each table with a column `run` is named in the statement that prunes, or is meant to outlive it."""
    with psycopg.connect(world.url) as connection:
        rows = connection.execute("SELECT table_name FROM information_schema.columns WHERE table_schema = 'outlast' AND column_name = 'run'").fetchall()
        views = connection.execute("SELECT table_name FROM information_schema.views WHERE table_schema = 'outlast'").fetchall()
    assert {table for (table,) in set(rows) - set(views) if f"DELETE FROM outlast.{table} " not in SQL["delete_runs"]} == OUTLIVE


def cancel(world: World, worker: int, claim: ClaimedRun) -> None:
    with world.database.transaction() as tx:
        world.store.fence(tx, worker)
        world.store.commit_checkpoints(tx, [msgspec.structs.replace(finish(claim.hold), status=RunStatus.CANCELED)])


def test_a_run_that_somebody_has_locked_is_not_waited_for(world: World) -> None:
    """Whoever retries a run at this moment keeps it: the prune passes over it, with all that hangs on it, and takes its neighbour."""
    worker, runs = world.worker(), world.accept(2)
    claims = world.claim(worker, runs)
    with world.database.transaction() as tx:
        world.store.fence(tx, worker)
        world.store.commit_checkpoints(tx, [record(claim.hold) for claim in claims])
    for claim in claims:
        cancel(world, worker, claim)
    with psycopg.connect(world.url) as other:
        other.execute("SELECT FROM outlast.run WHERE id = %s FOR NO KEY UPDATE", [runs[0]])
        with world.database.transaction() as tx:
            assert world.store.delete_runs(tx, runs, NO_AGE, dead_letters=False) == 1
        assert other.execute("SELECT run::text FROM outlast.step").fetchall() == [(runs[0],)]
    assert world.status(runs[0]) is RunStatus.CANCELED


def test_a_run_that_was_retried_meanwhile_stays(world: World) -> None:
    """The prune waits for nobody and tests what it locks: a retry that committed after the walk has saved the run."""
    worker, (run_id,) = world.worker(), world.accept(1)
    cancel(world, worker, world.claim(worker, [run_id])[0])
    with world.database.reading() as tx:
        assert [one.is_prunable for one in world.store.list_old_runs(tx, NO_AGE, 9, None, dead_letters=False)] == [True]
    with world.database.transaction() as tx:
        world.store.retry_run(tx, run_id, "ann", "again")
    with world.database.transaction() as tx:
        assert world.store.delete_runs(tx, [run_id], NO_AGE, dead_letters=False) == 0
    assert world.status(run_id) is RunStatus.PENDING
