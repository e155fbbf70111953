"""A minute of chaos on each database; six minutes are `make chaos`. What it does and how to look at it again: see `__main__.py`."""

from __future__ import annotations

import os
import random

import pytest

from outlast.testing.postgres_binaries import PostgresNotFoundError, find_binaries

from .checker import violations
from .evidence import load_evidence, told
from .trial import Options, Trial, summary

SEED_VARIABLE = "OUTLAST_CHAOS_SEED"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("database", ["postgres", "sqlite"])
def test_a_minute_of_chaos_breaks_no_invariant(database, tmp_path):
    """Workers, callers, server and wires are killed, frozen, restarted and cut under load; every invariant holds, and the faults have landed."""
    if database == "postgres":
        try:
            find_binaries()
        except PostgresNotFoundError as error:
            pytest.skip(str(error))
    seed = int(os.environ.get(SEED_VARIABLE) or random.randrange(10_000))
    folder = tmp_path / "evidence"
    Trial(Options(database, seed, seconds=60.0, machine_seconds=20.0), folder).run()
    found = violations(load_evidence(folder))
    assert not found, f"{SEED_VARIABLE}={seed}, evidence in {folder}\n{told(found)}\n{summary(folder)}"
