"""Plans of the store's own statements, taken while the store itself runs them, with the settings and parameters that it gives."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from outlast.database.transaction import Database, Rows, Transaction
from outlast.native.postgres.parameters import SQL

_NAMES = {sql: name for name, sql in SQL.items()}


@dataclass(frozen=True)
class Plan:
    """What one statement did."""

    statement: str
    rows: int
    """Returned or changed."""
    buffers: int
    """Pages of shared memory that were touched, found there or read, those of its indexes and of what it wrote too."""
    indexes: frozenset[str]
    walked: frozenset[str]
    """Tables that were read as a whole: from end to end, or by a bitmap, which has no order, so that a limit comes too late."""

    @classmethod
    def of(cls, statement: str, tree: dict[str, Any], rows: int) -> "Plan":
        """Read a plan as EXPLAIN gives it."""
        nodes = list(_nodes(tree))
        return cls(
            statement,
            rows,
            tree["Shared Hit Blocks"] + tree["Shared Read Blocks"],
            frozenset(node["Index Name"] for node in nodes if "Index Name" in node),
            frozenset(node["Relation Name"] for node in nodes if node["Node Type"] in ("Seq Scan", "Bitmap Heap Scan")),
        )


class Explaining:
    """A transaction that takes the plan of every statement before it runs it. See `outlast.database.transaction.Transaction`."""

    def __init__(self, inner: Transaction) -> None:
        self._inner = inner
        self.plans: list[Plan] = []

    def run(self, sql: str, parameters: Mapping[str, Any] | None = None, /) -> Rows:
        """Run it twice, the first time only to see how, so that what the second returns is real."""
        self._inner.run("SAVEPOINT before")
        explained = self._inner.run(f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) {sql}", parameters).all()
        self._inner.run("ROLLBACK TO SAVEPOINT before")
        self._inner.run("RELEASE SAVEPOINT before")  # or what comes next would have a transaction number of its own
        rows = self._inner.run(sql, parameters)
        self.plans.append(Plan.of(_NAMES[sql], json.loads(explained[0][0])[0]["Plan"], rows.count))
        return rows

    def run_many(self, sql: str, parameters: Sequence[Mapping[str, Any]], /) -> int:
        return sum(self.run(sql, each).count for each in parameters)


class _Undo(Exception):  # noqa: N818 - it is no error
    """Ends a transaction whose changes are not wanted."""


@contextmanager
def explaining(database: Database) -> Iterator[Explaining]:
    """Give a transaction that takes plans, and undo at its end what was done in it."""
    try:
        with database.transaction() as tx:
            yield Explaining(tx)
            raise _Undo
    except _Undo:
        pass


def _nodes(tree: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield tree
    for part in tree.get("Plans", []):
        yield from _nodes(part)
