"""On SQLite a worker's statements are searches in an index however many runs there are, with statistics and without."""

import json
import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from outlast.database.statements import load_statements
from outlast.database.transaction import Transaction
from outlast.ids import run_id
from outlast.native.sqlite import sqlite_backend
from outlast.testing.store_suite.world import World

QUEUES, KINDS, VERSIONS = 20, 5, 2
EACH = 50_000
"""Finished, sleeping, stranded and pending."""
HELD, OVERDUE = 600, 600
ALIVE, DEAD = 1, 2
AGO, NOW, AHEAD = 1_000_000, 2_000_000, 3_000_000
LARGE = {"outlast_run", "run", "outlast_run_body", "body", "outlast_run_step", "step", "outlast_step_failure", "failure"}
"""Tables that grow, by the names that statements give them."""
SQL = load_statements("outlast.native.sqlite")
LANES = json.dumps(list(range(1, QUEUES * KINDS * VERSIONS + 1)))
ASKED: dict[str, tuple[dict[str, Any], str]] = {
    "look": ({"lanes": LANES, "now": NOW}, "claim timer deadline"),
    "probe_lanes": ({"lane": 1, "now": NOW, "limit": 200, "with_suspects": True, "suspect_losses": 2}, "claim"),
    "list_priorities": ({"lane": 1}, "claim"),
    "probe_priority": ({"lane": 1, "priority": 0, "now": NOW, "limit": 10, "with_suspects": True, "suspect_losses": 2}, "claim"),
    "claim_runs": ({"worker": ALIVE, "run_ids": "[]", "limit": 100, "now": NOW}, ""),
    "list_claimed": ({"worker": ALIVE, "run_ids": "[]"}, ""),
    "list_held": ({"worker": ALIVE}, "worker"),
    "list_flagged": ({"worker": ALIVE, "now": NOW}, "worker"),
    "wake_due": ({"now": NOW, "limit": 500}, "timer"),
    "lock_overdue": ({"now": NOW, "limit": 500}, "deadline"),
    "wake_overdue": ({"now": NOW, "batch": "[]"}, ""),
    "list_workers": ({"now": NOW, "counted": 0, "only_alive": True, "limit": 1000}, "worker"),
    "list_orphans": ({"limit": 500}, "worker"),
    "recover_runs": ({"now": NOW, "batch": "[]"}, ""),
    "count_losses": ({"batch": "[]"}, ""),
    "delete_ended_workers": ({"before": NOW}, "worker"),
}
"""What a worker asks again and again, with the indexes of runs that have to serve it; none of them: the primary key."""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A file with many runs of each sort, of which the planner knows nothing yet."""
    file = tmp_path_factory.mktemp("grown") / "outlast.db"
    backend = sqlite_backend(file)
    backend.schema.ensure("create")
    fill(file)
    yield World(backend)
    backend.database.close()


def fill(file: Path) -> None:
    lanes = [(f"queue_{q}", f"kind_{k}", version) for version in range(1, VERSIONS + 2) for q in range(QUEUES) for k in range(KINDS)]
    served = QUEUES * KINDS * VERSIONS
    draw = random.Random(1)
    sorts = [("succeeded", EACH, None), ("waiting", EACH, AHEAD), ("waiting", 3_000, AGO), ("pending", EACH, AGO), ("running", HELD, None)]
    rows = [row(status, draw.randrange(served) + 1, due_at, worker=ALIVE) for status, count, due_at in sorts for _ in range(count)]
    rows += [row("pending", draw.randrange(served, len(lanes)) + 1, AGO) for _ in range(EACH)]
    rows += [row("pending", draw.randrange(served) + 1, AGO, deadline_at=AGO) for _ in range(OVERDUE)]
    rows += [row("running", draw.randrange(served) + 1, None, worker=DEAD) for _ in range(HELD)]
    names = list(rows[0])
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.executemany("INSERT INTO outlast_lane (queue, kind, version) VALUES (?, ?, ?)", lanes)
        connection.executemany(f"INSERT INTO outlast_run ({', '.join(names)}) VALUES ({', '.join(f':{name}' for name in names)})", rows)
        connection.execute("INSERT INTO outlast_run_body (run, seed, input, input_digest, tags, headers) SELECT id, 7, '{}', 'd', '[]', '{}' FROM outlast_run")


def row(status: str, lane: int, due_at: int | None, *, worker: int | None = None, deadline_at: int | None = None) -> dict[str, Any]:
    is_over, is_held = status == "succeeded", status == "running"
    return {
        "id": run_id(),
        "kind": "kind",
        "version": 1,
        "lane": lane,
        "priority": lane % 3,
        "status": status,
        "due_at": due_at,
        "worker": worker if is_held else None,
        "deadline_at": deadline_at,
        "created_at": 1,
        "finished_at": 2 if is_over else None,
    }


class _UndoError(Exception):
    """Ends a transaction whose changes are not wanted."""


def faults(world: World, state: str) -> dict[str, list[str]]:
    """Say by statement what its plan walks through, and which index does not serve it.

    The state stands in the text, because a plan of the same text as before is not made anew: the driver keeps it.
    """
    with world.writing() as tx:
        return _faults(tx, state)


def _faults(tx: Transaction, state: str) -> dict[str, list[str]]:
    found = {}
    for statement, (asked, indexes) in ASKED.items():
        lines = [detail for *_, detail in tx.run(f"EXPLAIN QUERY PLAN /* {state} */ {SQL[statement]}", asked).all()]
        wrong = [line for line in lines if line.startswith("SCAN") and line.split()[1] in LARGE and not _is_along_a_short_index(line)]
        wrong += [f"not by {index}" for index in indexes.split() if not any(f"INDEX outlast_run_{index}" in line for line in lines)]
        if wrong:
            found[statement] = [*wrong, *lines]
    return found


def _is_along_a_short_index(line: str) -> bool:
    """An index that has only what is asked for may be walked in its order: the soonest timers, what is held."""
    return line.endswith(("INDEX outlast_run_timer", "INDEX outlast_run_worker"))


def test_statements_are_searches_in_a_large_file(large: World) -> None:
    """None of them walks through the runs, and each is served by the index that was made for it."""
    assert faults(large, "never analysed") == {}
    with large.writing() as tx:
        tx.run("ANALYZE")
    assert faults(large, "analysed") == {}


@pytest.mark.parametrize("index", ["claim", "timer", "worker", "deadline"])
def test_a_lacking_index_is_noticed(large: World, index: str) -> None:
    """The judgement above would see a statement that walks through the runs."""
    with pytest.raises(_UndoError), large.writing() as tx:
        tx.run(f"DROP INDEX outlast_run_{index}")
        wrong = _faults(tx, f"without {index}")
        assert [statement for statement, (_, indexes) in ASKED.items() if index in indexes.split()] == list(wrong)
        raise _UndoError
