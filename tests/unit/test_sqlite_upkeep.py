"""What only the SQLite store has of an operator's statements: their plans in a large file, and that no table is forgotten."""

import random
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from outlast.database.statements import load_statements
from outlast.ids import run_id
from outlast.native.sqlite import sqlite_backend
from outlast.testing.store_suite.world import World

RUNS = 20_000
_NO_AGE = timedelta(0)
LARGE = {"outlast_run", "run", "outlast_run_step", "step", "outlast_step_failure", "failure", "outlast_run_body", "outlast_run_key"}
OUTLIVE = {"outlast_run_key", "outlast_action", "outlast_operation_attempt"}
"""Tables that name a run and stay when it is pruned, or go by something else: attempts by their operation."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A file of many runs that are over, with statistics, so that the planner knows how large it is."""
    backend = sqlite_backend(Path(tmp_path_factory.mktemp("large")) / "outlast.db")
    backend.schema.ensure("create")
    world = World(backend)
    lane, draw = world.lane(), random.Random(1)
    statuses = ["succeeded", "failed", "pending", "waiting"]
    rows = [
        {
            "id": run_id(),
            "lane": lane,
            "status": status,
            "due_at": 1 if status in ("pending", "waiting") else None,
            "ended_at": 1 if status in ("succeeded", "failed") else None,
        }
        for status in draw.choices(statuses, [97, 1, 1, 1], k=RUNS)
    ]
    with world.writing() as tx:
        tx.run_many(
            "INSERT INTO outlast_run (id, kind, version, lane, priority, status, due_at, created_at, finished_at) "
            "VALUES (:id, 'import_asset', 1, :lane, 0, :status, :due_at, 1, :ended_at)",
            rows,
        )
        tx.run("ANALYZE")
    yield world
    backend.database.close()


def plan(world: World, statement: str, **parameters: object) -> str:
    with world.database.reading() as tx:
        rows = tx.run(f"EXPLAIN QUERY PLAN {load_statements('outlast.native.sqlite')[statement]}", parameters).all()
    return "\n".join(detail for *_, detail in rows)


ASKED = {
    "list_old_runs": {"cutoff": 2, "dead_letters": False, "after": "", "limit": 500, "bound": 9},
    "find_prunable": {"cutoff": 2, "dead_letters": False, "run_ids": "[]"},
    "delete_bodies": {"run_ids": "[]"},
    "delete_records": {"run_ids": "[]"},
    "delete_failures": {"run_ids": "[]"},
    "delete_activity": {"run_ids": "[]"},
    "delete_waits": {"run_ids": "[]"},
    "delete_own_attempts": {"run_ids": "[]"},
    "delete_own_operations": {"run_ids": "[]"},
    "delete_signals": {"run_ids": "[]"},
    "delete_cursors": {"run_ids": "[]"},
    "delete_decisions": {"run_ids": "[]"},
    "delete_runs": {"run_ids": "[]"},
    "list_old_keys": {"before": "", "kind": "", "key": "", "limit": 500},
    "delete_keys": {"batch": "[]"},
    "list_lanes": {"bound": 9},
    "count_held": {"sample": 9},
    "count_asleep": {"sample": 9, "now": 1},
    "count_ahead": {"lane": 1, "priority": 0, "due_at": 1, "run": "", "bound": 9},
    "find_run": {"run_ids": "[]", "now": 1},
}


@pytest.mark.parametrize("statement", ASKED)
def test_an_operator_s_statement_never_walks_through_the_runs(world: World, statement: str) -> None:
    """Each part of it is a search in an index or by key, or reads an index that holds only what it looks for."""
    scans = [line for line in plan(world, statement, **ASKED[statement]).splitlines() if line.startswith("SCAN") and line.split()[1] in LARGE]
    assert [line for line in scans if not line.endswith(("USING INDEX outlast_run_worker", "USING INDEX outlast_run_timer"))] == []


def test_the_walk_of_a_prune_is_a_search_in_the_primary_key(world: World) -> None:
    """A page begins where the last one ended; only what is on it is put in order."""
    lines = plan(world, "list_old_runs", **ASKED["list_old_runs"]).splitlines()
    assert lines[:2] == ["CO-ROUTINE judged", "SEARCH outlast_run USING PRIMARY KEY (id>?)"]


def test_a_walk_through_many_runs_reads_each_once(world: World) -> None:
    """Forty pages hold all of twenty thousand runs, whatever their state, and a page of them is deleted whole."""
    seen, place = [], None
    for _ in range(RUNS // 500):
        with world.database.reading() as tx:
            page = world.store.list_old_runs(tx, _NO_AGE, 500, place, dead_letters=False)
        seen += page
        place = page[-1].run_id
    assert len({one.run_id for one in seen}) == RUNS
    prunable = [one.run_id for one in seen if one.is_prunable]
    assert 0.95 * RUNS < len(prunable) < RUNS
    with world.writing() as tx:
        assert world.store.delete_runs(tx, prunable[:500], _NO_AGE, dead_letters=False) == 500
        assert tx.run("SELECT count(*) FROM outlast_run").all() == [(RUNS - 500,)]


def test_every_table_that_hangs_on_a_run_is_pruned(world: World) -> None:
    """Each table with a column `run` is emptied by a statement of the prune, or is meant to outlive it."""
    with world.database.reading() as tx:
        tables = {
            name for (name,) in tx.run("SELECT m.name FROM sqlite_schema m JOIN pragma_table_info(m.name) c ON c.name = 'run' WHERE m.type = 'table'").all()
        }
    sql = load_statements("outlast.native.sqlite")
    pruned = "\n".join(sql[name] for name in ASKED if name.startswith("delete_"))
    assert {table for table in tables if f"DELETE FROM {table} WHERE run IN" not in " ".join(pruned.split())} == OUTLIVE
