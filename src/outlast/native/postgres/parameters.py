"""Parameters: how lists of numbers and ids go to the server, and the statements by name. Few parameters of text, because
turning each value by itself is the slow part of the driver."""

from collections.abc import Iterable
from typing import Any

from outlast.database.statements import load_statements
from outlast.step_key import StepKey, parse_path

SQL = load_statements("outlast.native.postgres")

PREPARED = frozenset(SQL[name] for name in ("fence", "set_idle", "insert_runs", "insert_records", "insert_failures"))
"""What is prepared: the frequent statements whose plan is the same however large the tables are, and were when it was made.

A plan that is kept is made anew only when its tables are analysed. The others would do harm: made on a table of a few rows,
the plan of a claim or of an end walks a whole index for each row, and still does when there are a million.
"""


def array(values: Iterable[object]) -> str:
    """Return numbers or UUIDs as the text of a PostgreSQL array; neither needs quotes."""
    return f"{{{','.join(map(str, values))}}}"


def key_columns(key: StepKey) -> dict[str, Any]:
    """Return the three columns in which a step key is kept."""
    return {"path": key.path_text, "name": key.name, "number": key.number}


def step_key(path: str, name: str, number: int) -> StepKey:
    return StepKey(parse_path(path), name, number)
