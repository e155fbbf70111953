"""What every part of the store has: the statements by name, and the clock that stands for the database's own."""

from collections import defaultdict
from datetime import datetime
from typing import Any

from outlast.clock import Clock, SystemClock
from outlast.database.sqlite.instant import to_number
from outlast.database.statements import load_statements
from outlast.database.transaction import Transaction

RowsOfRuns = dict[str, list[tuple[Any, ...]]]
"""By the id of their run, which is left out of them."""


class Tables:
    """The native engine's tables. On SQLite the machine's clock is the database's."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._sql = load_statements("outlast.native.sqlite")

    def _now(self, now: datetime | None) -> int:
        return to_number(now or self._clock.now())

    def _rows_of_runs(self, tx: Transaction, statement: str, runs: str) -> RowsOfRuns:
        """Run a statement over `runs`, a JSON list of run and generation, whose first column is the run."""
        rows: RowsOfRuns = defaultdict(list)
        for row in tx.run(self._sql[statement], {"runs": runs}).all():
            rows[row[0]].append(row[1:])
        return rows
