"""SIGKILL at each point of a transactional step: the row and the record are both there, once, after another worker went on."""

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

CHILD = Path(__file__).with_name("transaction_child.py")
SOURCE = str(Path(__file__).parents[2] / "src")
POINTS = ["before the function", "after the function", "before the record", "before the commit", "after the commit"]
SECONDS_MAX = 120.0


def run_child(url: str, point: str) -> tuple[int, str]:
    ended = subprocess.run(
        [sys.executable, str(CHILD), url, point], capture_output=True, text=True, timeout=SECONDS_MAX, env=os.environ | {"PYTHONPATH": SOURCE}, check=False
    )
    assert ended.returncode in (0, -signal.SIGKILL), ended.stderr
    return ended.returncode, ended.stdout


def execute(url: str, sql: str) -> list[tuple[Any, ...]]:
    connection: Any = sqlite3.connect(url.removeprefix("sqlite:///"), timeout=30) if url.startswith("sqlite") else psycopg.connect(url)
    with contextlib.closing(connection):
        cursor = connection.execute(sql)
        rows = cursor.fetchall() if cursor.description is not None else []
        connection.commit()
    return rows


@pytest.mark.parametrize("point", POINTS)
def test_a_killed_transaction_is_there_whole_or_not_at_all(database_url: str, point: str) -> None:
    """Right after the kill row and record agree; in the end both are there once, and the function's value is the run's result."""
    execute(database_url, "CREATE TABLE item (name text PRIMARY KEY)")
    records = "SELECT count(*) FROM " + ("outlast_run_step" if database_url.startswith("sqlite") else "outlast.step")
    assert run_child(database_url, point)[0] == -signal.SIGKILL
    is_committed = point == "after the commit"
    assert execute(database_url, "SELECT count(*) FROM item") == execute(database_url, records) == [(int(is_committed),)]
    assert run_child(database_url, "nowhere") == (0, "bread\n")
    assert execute(database_url, "SELECT count(*) FROM item") == execute(database_url, records) == [(1,)]
