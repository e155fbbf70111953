"""Both stores do what a plain model of them says, whatever comes in whatever order, and what is kept holds the invariants.

`OUTLAST_MODEL_EXAMPLES` sets how many sequences are tried, for a longer search than a commit's: 1,000 take a quarter of an hour.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from .store_model_rare import ModelMachine
from .store_pair import StorePair

EXAMPLES = int(os.environ.get("OUTLAST_MODEL_EXAMPLES", "40"))
# A sequence is told as it was: to make it shorter could take longer than a test may.
SETTINGS = settings(max_examples=EXAMPLES, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.reuse, Phase.generate])
HAPPENED = {
    *("key met", "key conflict", "woken by time", "overdue and ended", "overdue and woken", "pruned", "refused write", "refused by cancel", "fenced off"),
    *("duplicate", "parked", "signal that woke", "signal before park", "signal heard", "expired", "expired unheard", "time-out", "answer", "answer used"),
    *("signal with a key that is taken", "signal key conflict", "signal with a key that is free again"),
    *("worker stopped", "worker dead", "worker silent", "recovered as pending", "recovered as waiting", "recovered as dead"),
    *("retry of failed", "retry of dead", "retry of canceled", "resume", "discard of failed", "discard of dead"),
    *("ended as succeeded", "ended as failed", "ended as canceled"),
    *("cancel of pending", "cancel of pending, which never ran", "cancel of waiting", "cancel of waiting, which never ran", "cancel of running"),
    *("cancel of succeeded", "cancel of failed", "cancel of canceled", "cancel of dead", "cancel of none"),
}
"""What has to come up at least once, or the test would have tested less than it says."""


@pytest.fixture
def pair(tmp_path: Path, postgres_url: str) -> Iterator[StorePair]:
    pair = StorePair(tmp_path, postgres_url)
    yield pair
    pair.close()


@pytest.mark.timeout(120 + 15 * EXAMPLES)
def test_both_stores_do_what_the_model_says(pair: StorePair) -> None:
    """After every call of any sequence both databases have answered and kept what the model has, and every invariant holds."""
    machine = type("PairedModelMachine", (ModelMachine,), {"pair": pair, "kinds": set()})
    run_state_machine_as_test(machine, settings=SETTINGS)
    assert machine.kinds >= HAPPENED, f"never happened in any sequence: {sorted(HAPPENED - machine.kinds)}"
