"""Parameters: how lists of numbers and ids go to the server, and the statements by name. Few parameters of text, because
turning each value by itself is the slow part of the driver."""

from collections.abc import Iterable
from typing import Any

from outlast.database.statements import load_statements
from outlast.step_key import StepKey, parse_path

SQL = load_statements("outlast.native.postgres")

PREPARED = frozenset(SQL.values())


def array(values: Iterable[object]) -> str:
    """Return numbers or UUIDs as the text of a PostgreSQL array; neither needs quotes."""
    return f"{{{','.join(map(str, values))}}}"


def key_columns(key: StepKey) -> dict[str, Any]:
    """Return the three columns in which a step key is kept."""
    return {"path": key.path_text, "name": key.name, "number": key.number}


def step_key(path: str, name: str, number: int) -> StepKey:
    return StepKey(parse_path(path), name, number)
