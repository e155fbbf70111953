"""Proving: plants a bug, plays the scenario that is to show it, and says which invariants did."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from outlast.testing.postgres_server import FAST_SETTINGS, PostgresServer

from .checker import LIVENESS, SAFETY, violations
from .crew import PROJECT
from .evidence import Evidence, load_evidence
from .places import PostgresPlace, SqlitePlace
from .planted import PLANTED, VARIABLE
from .trial import Options, Trial

SCENARIO_SECONDS_MAX = 120
SEED = 4


def play_directed(name: str, folder: Path, postgres_url: str | None = None) -> Evidence:
    """Play the directed scenario with a planted bug, or with none when the name is empty; on SQLite unless an address is given."""
    place = PostgresPlace((), postgres_url) if postgres_url is not None else SqlitePlace(folder)
    try:
        paths = os.pathsep.join([str(PROJECT / "src"), str(PROJECT)])
        done = subprocess.run(
            [sys.executable, "-m", "tests.chaos.directed", place.direct_url(), str(folder)],
            cwd=PROJECT,
            env={**os.environ, "PYTHONPATH": paths, VARIABLE: name},
            capture_output=True,
            text=True,
            timeout=SCENARIO_SECONDS_MAX,
            check=False,
        )
        if done.returncode:
            raise AssertionError(f"the scenario with {name or 'no bug'} broke off:\n{done.stderr[-3000:]}")
        facts = {"database": place.name, "self_check": place.self_check(), "over_at": time.time(), "settle_seconds": 0, "idle": []}
        (folder / "state.json").write_text(json.dumps({"facts": facts, "tables": place.dump()}), encoding="utf-8")
    finally:
        place.close()
    return load_evidence(folder)


def caught_by(name: str, database: str) -> Counter[str]:
    """Play the bug's own scenario on a database of its own, and count the violations by invariant."""
    bug = PLANTED[name]
    with tempfile.TemporaryDirectory(prefix=f"planted-{name}-") as folder:
        if bug.seconds:
            options = {"is_idle_measured": False, "settle_seconds": 40.0, "every": 1.2, **bug.options}
            Trial(Options(database, SEED, bug.seconds, planted=name, **options), Path(folder)).run()
            evidence = load_evidence(Path(folder))
        elif database == "sqlite":
            evidence = play_directed(name, Path(folder))
        else:
            with PostgresServer(is_private=True, settings=FAST_SETTINGS) as server:
                evidence = play_directed(name, Path(folder), server.create_database("directed"))
        checks = (*SAFETY, *LIVENESS) if bug.seconds else SAFETY
        return Counter(violation.invariant for violation in violations(evidence, checks))
