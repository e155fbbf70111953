"""What a machine can hold of the project's style: lengths, docstrings, and the single places of time, randomness and drivers."""

import ast
import re

import pytest

from .source import GENERATED, LIBRARY, PROJECT, imports, names_used, python_files, shown, tree

FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 60

OURS = python_files(*(PROJECT / folder for folder in ("src", "tests", "scripts", "bench", "apps")))
IN_LIBRARY = python_files(LIBRARY)

CLOCKS = re.compile(
    r"time\.(time|monotonic|perf_counter|process_time|thread_time|clock_gettime|localtime|gmtime)(_ns)?|datetime\.(datetime|date)\.(now|utcnow|today)|.*loop(\(\))?\.time"
)
RANDOMNESS = re.compile(r"(random|secrets)\..+|uuid\.uuid[1-8]|os\.(urandom|getrandom)|numpy\.random.*")


def is_generated(path):
    """Whether the file says at its top that a program wrote it."""
    return GENERATED in path.read_text(encoding="utf-8")[:1000]


def functions(path):
    """All functions of a file, methods and inner ones too."""
    return [node for node in ast.walk(tree(path)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def test_files_are_short():
    """A file that a person wrote has at most 500 lines."""
    lengths = {shown(path): len(path.read_text(encoding="utf-8").splitlines()) for path in OURS if not is_generated(path)}
    assert not {place: length for place, length in lengths.items() if length > FILE_LINES_MAX}


def test_functions_are_short():
    """A function has at most 60 lines, its decorators not counted."""
    lengths = {shown(path, node): node.end_lineno - node.lineno + 1 for path in OURS if not is_generated(path) for node in functions(path)}
    assert not {place: length for place, length in lengths.items() if length > FUNCTION_LINES_MAX}


def test_every_file_says_what_it_is_responsible_for():
    """Each file opens with a docstring."""
    assert not [shown(path) for path in OURS if not ast.get_docstring(tree(path))]


def test_every_test_says_what_it_proves():
    """Each test has a docstring of one line that states its fact."""
    tests = [(path, node) for path in python_files(PROJECT / "tests") for node in functions(path) if node.name.startswith("test_")]
    silent = [shown(path, node) for path, node in tests if not (ast.get_docstring(node) or "").strip()]
    assert not [place for place in silent if "/typing/" not in place]


def test_only_the_clock_reads_time():
    """No other file of the library asks what time it is, so that a test can move it."""
    assert not _uses(CLOCKS, except_for="clock.py")


def test_only_ids_makes_randomness():
    """All that is random in the library comes from one file, so that a simulation can repeat it."""
    assert not _uses(RANDOMNESS, except_for="ids.py")


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("import time\ntime.monotonic()", True),
        ("from time import time_ns as t\nt()", True),
        ("from datetime import datetime\ndatetime.now(UTC)", True),
        ("import datetime as d\nd.datetime.utcnow()", True),
        ("import asyncio\nasyncio.get_running_loop().time()", True),
        ("self._loop.time()", True),
        ("import time\ntime.sleep(1)", False),
        ("clock.now()", False),
    ],
)
def test_the_rule_about_time_sees_every_spelling(tmp_path, text, is_found):
    """The search behind the rule finds what reads a clock, and only that."""
    file = tmp_path / "file.py"
    file.write_text(text)
    assert bool(list(_matches(file, CLOCKS))) == is_found


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("import random\nrandom.random()", True),
        ("from uuid import uuid4\nuuid4()", True),
        ("import os\nos.urandom(3)", True),
        ("import uuid\nuuid.UUID('x')", False),
    ],
)
def test_the_rule_about_randomness_sees_every_spelling(tmp_path, text, is_found):
    """The search behind the rule finds what makes randomness, and only that."""
    file = tmp_path / "file.py"
    file.write_text(text)
    assert bool(list(_matches(file, RANDOMNESS))) == is_found


def test_database_files_are_opened_by_one_driver_only():
    """No other SQLite library, and no second way to a database, is in the library: a second one in a process drops the first one's locks."""
    foreign = re.compile(r"(apsw|pysqlite3|aiosqlite|sqlcipher3|duckdb|dbm|shelve)(\..*)?")
    assert not [f"{shown(path, node)} imports {name}" for path in IN_LIBRARY for node, name in imports(path) if foreign.fullmatch(name)]


def test_sql_is_written_in_sql_files():
    """No file outside `database/` has a statement in a string."""
    statement = re.compile(r"\s*(SELECT\s.+\sFROM|INSERT\s+INTO|UPDATE\s+\S+\s+SET|DELETE\s+FROM|CREATE\s+(TABLE|INDEX|DATABASE|SCHEMA)|DROP\s)\b", re.DOTALL)
    files = [path for path in IN_LIBRARY if LIBRARY / "database" not in path.parents and LIBRARY / "testing" not in path.parents]
    strings = ((path, node) for path in files for node in ast.walk(tree(path)) if isinstance(node, ast.Constant) and isinstance(node.value, str))
    assert not [shown(path, node) for path, node in strings if statement.match(node.value)]


def _uses(pattern, *, except_for):
    files = [path for path in IN_LIBRARY if path != LIBRARY / except_for]
    return [f"{shown(path, node)} uses {name}" for path in files for node, name in _matches(path, pattern)]


def _matches(path, pattern):
    called = [(node, f"{ast.unparse(node)}") for node in ast.walk(tree(path)) if isinstance(node, ast.Attribute) and node.attr == "time"]
    return [(node, name) for node, name in (*names_used(path), *called) if pattern.fullmatch(name)]
