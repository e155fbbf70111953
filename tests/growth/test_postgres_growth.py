"""On PostgreSQL a worker's statements cost the same however many runs there are, and whatever the planner knows of them.

The small form; `make growth` does the same with a million runs.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from outlast.native.postgres import postgres_backend

from .filling import KINDS, VERSIONS, Sizes, fill
from .growth import CLAIMED_UNDER_SNAPSHOT, WOKEN_UNDER_SNAPSHOT, Grown, examine, snapshot
from .plans import Plan
from .waves import faults

SIZES = Sizes(finished=50_000, asleep=50_000, stranded=50_000, pending=50_000, crowd=20_000, due=3_000)


@pytest.fixture
def grown(postgres_url: str) -> Iterator[Grown]:
    """A filled database, of which the planner knows nothing yet."""
    backend = postgres_backend(postgres_url)
    backend.schema.ensure("create")
    lanes = fill(postgres_url, SIZES)
    yield Grown(postgres_url, backend, lanes[: KINDS * VERSIONS], lanes)
    backend.liveness.close()
    backend.wakes.close()
    backend.database.close()


def test_statements_cost_the_same_in_a_large_database(grown: Grown) -> None:
    """Each is served by its index, without statistics, with them, and while another session keeps thousands of claims from being cleaned up."""
    found_by = {"never analysed": examine(grown)}
    with psycopg.connect(grown.url, autocommit=True) as connection:
        connection.execute("ANALYZE")
    found_by["analysed"] = examine(grown)
    with snapshot(grown.url):
        grown.claim(CLAIMED_UNDER_SNAPSHOT)
        grown.wake(WOKEN_UNDER_SNAPSHOT)
        found_by["under an old snapshot"] = examine(grown, leftovers=CLAIMED_UNDER_SNAPSHOT)
    assert {state: found for state, found in found_by.items() if found} == {}


GOOD = Plan("probe_lanes", 200, 400, frozenset({"run_claim", "lane_pkey"}), frozenset({"queue"}))


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({}, None),
        ({"walked": frozenset({"run"})}, "probe_lanes reads run as a whole"),
        ({"indexes": frozenset({"run_pkey"})}, "probe_lanes is not served by run_claim"),
        ({"buffers": 600}, "probe_lanes touches 600 pages for 200 rows, 520 are allowed"),
        ({"statement": "claim_runs", "indexes": frozenset({"run_pkey", "run_body_pkey"}), "rows": 9}, "claim_runs found only 9 rows: this proves nothing"),
    ],
)
def test_what_is_wrong_with_a_plan_is_noticed(change: dict[str, Any], fault: str | None) -> None:
    """A walk through the runs, the wrong index, too many pages, and a statement that found nothing to do."""
    assert faults([replace(GOOD, **change)], 10, held=0) == ([] if fault is None else [fault])
