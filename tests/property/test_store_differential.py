"""What holds of both stores together: the same calls at the same instants give the same answers and the same rows."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from .store_machine import StoreMachine
from .store_pair import StorePair

# A sequence is short enough to be read as it is, and to make it shorter could take longer than a test may.
EXAMPLES = settings(max_examples=30, stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.reuse, Phase.generate])


@pytest.fixture
def pair(tmp_path: Path, postgres_url: str) -> Iterator[StorePair]:
    pair = StorePair(tmp_path, postgres_url)
    yield pair
    pair.close()


def test_both_stores_answer_and_keep_the_same(pair: StorePair) -> None:
    """Any sequence of calls gives the same answers, the same refusals and the same rows on SQLite and on PostgreSQL."""
    machine = type("PairedStoreMachine", (StoreMachine,), {"pair": pair, "kinds_of_calls": set()})
    run_state_machine_as_test(machine, settings=EXAMPLES)
    assert machine.kinds_of_calls >= {"claim some", "commit some", "recover some", "retry some", "discard some", "prune some"}, (
        "these calls did nothing in any sequence"
    )
