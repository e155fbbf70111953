"""The rules of the suite itself, each shown on a small suite of its own: what the conftest promises does fail a test."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).parents[1] / "conftest.py"
SOURCE = str(Path(__file__).parents[2] / "src")


@pytest.fixture
def outcome(tmp_path):
    """A function that runs a file of tests under our conftest and returns pytest's closing words."""

    def run(text, **variables):
        (tmp_path / "conftest.py").write_text(CONFTEST.read_text())
        (tmp_path / "test_it.py").write_text(text)
        kept = {name: value for name, value in os.environ.items() if name != "CI" and not name.startswith("PYTEST")}
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:asyncio",
            "-p",
            "no:xdist",
            "--rootdir",
            str(tmp_path),
            str(tmp_path),
        ]
        done = subprocess.run(command, capture_output=True, text=True, env=kept | {"PYTHONPATH": SOURCE} | variables, timeout=120)
        return done.stdout

    return run


def test_skipped_test_fails_in_ci_only(outcome):
    """A skip is a skip on a desk and a failure in CI."""
    text = "import pytest\ndef test_it(): pytest.skip('no such server')\n"
    assert "1 skipped" in outcome(text)
    in_ci = outcome(text, CI="true")
    assert "1 failed" in in_ci
    assert "no such server" in in_ci


def test_skipped_file_fails_in_ci(outcome):
    """A file that is skipped as a whole, because a library is missing, is a failure too."""
    text = "import pytest\npytest.importorskip('no_such_library')\n"
    assert "1 skipped" in outcome(text)
    assert "1 error" in outcome(text, CI="true")


def test_lacking_capability_is_a_skip_everywhere(outcome):
    """What an adapter says that it cannot do is not missing."""
    assert "1 skipped" in outcome("import pytest\ndef test_it(): pytest.skip('capability: no signals')\n", CI="true")


def test_expected_failure_is_no_skip(outcome):
    """A test that is expected to fail, and does, passes CI."""
    assert "1 xfailed" in outcome("import pytest\n@pytest.mark.xfail(strict=True)\ndef test_it(): assert False\n", CI="true")


def test_leaked_thread_fails_the_test(outcome):
    """A thread that goes on after its test is named; one that ends by itself in time, or is a daemon, is none."""
    leak = "import threading\nstop = threading.Event()\ndef test_it(): threading.Thread(target=stop.wait, args=(20,), name='forgotten', daemon={}).start()\n"
    assert "left threads running: forgotten" in outcome(leak.format(False))
    for harmless in (leak.format(True), leak.format(False).replace("(20,)", "(0.2,)")):
        closing = outcome(harmless)
        assert "1 passed" in closing
        assert "error" not in closing


def test_databases_are_separate_and_removed(outcome):
    """Each test has a database of its own, on both, and what it made there is not seen by the next and not kept."""
    text = """
import psycopg, pytest
seen = []
@pytest.mark.parametrize("round", [1, 2])
def test_it(postgres_url, round):
    with psycopg.connect(postgres_url) as connection:
        connection.execute("CREATE TABLE word (text text)")
        seen.append(connection.info.dbname)
        assert [name for name, in connection.execute("SELECT datname FROM pg_database WHERE datname LIKE 'test_%'")] == [seen[-1]]
def test_both(database_url):
    assert database_url.startswith(("sqlite:///", "postgresql://"))
"""
    assert "4 passed" in outcome(text)
