"""`outlast doctor`: what it prints, and its exit codes."""

import json
import sys
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from outlast.cli import main
from outlast.finding import Check, not_applicable, ok, problem, warning

FINE = ok(Check.CLOCK, "on time")
MISSING = not_applicable(Check.FILES, "the server looks after its files")
WARNED = warning(Check.SETTINGS, "synchronous_commit is off", "set it to on")
BROKEN = problem(Check.SCHEMA, "version 1\x1b[2J is too old", "run `outlast migrate`")


class Engine:
    """An engine with a report that a test has written."""

    inspector = enqueue = None

    def __init__(self, *findings):
        self.findings = findings

    async def examine(self):
        return list(self.findings)

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exception):
        pass


@pytest.fixture
def doctor(monkeypatch):
    """Call the command with these findings."""

    def call(*findings, options=()):
        monkeypatch.setitem(sys.modules, "app_of_doctor_test", SimpleNamespace(engine=Engine(*findings)))
        return CliRunner().invoke(main, ["doctor", "--app", "app_of_doctor_test:engine", *options])

    return call


@pytest.mark.parametrize(
    ("findings", "code", "sum"),
    [
        ((FINE,), 0, "no problems, no warnings"),
        ((FINE, WARNED, MISSING), 0, "no problems, 1 warning"),
        ((BROKEN, WARNED, FINE), 1, "1 problem, 1 warning"),
        ((BROKEN, BROKEN), 1, "2 problems, no warnings"),
    ],
)
def test_the_exit_code_is_one_for_any_problem(doctor, findings, code, sum):
    """Warnings alone do not fail a deployment's check."""
    done = doctor(*findings)
    assert (done.exit_code, done.output.splitlines()[-1]) == (code, sum)
    assert doctor(*findings, options=["--json"]).exit_code == code


def test_what_is_wrong_is_printed_whole_with_what_to_do(doctor):
    """The table has a line for each finding; below it stands what to do, and nothing reaches the terminal unescaped."""
    lines = doctor(BROKEN, MISSING, FINE).output.splitlines()
    assert lines == [
        "CHECK   LEVEL           FOUND",
        "schema  problem         version 1\\x1b[2J is too old",
        "files   not applicable  the server looks after its files",
        "clock   ok              on time",
        "",
        "problem: version 1\\x1b[2J is too old",
        "  what to do: run `outlast migrate`",
        "",
        "1 problem, no warnings",
    ]


def test_json_has_every_finding(doctor):
    """One line, with the words that never change."""
    found = json.loads(doctor(WARNED, FINE, options=["--json"]).output)
    assert found == {
        "findings": [
            {"check": "settings", "level": "warning", "message": "synchronous_commit is off", "remedy": "set it to on"},
            {"check": "clock", "level": "ok", "message": "on time", "remedy": ""},
        ]
    }


def test_a_file_that_is_not_there_is_a_problem_and_stays_so(tmp_path):
    """Looking makes no database."""
    done = CliRunner().invoke(main, ["doctor", "--database", f"sqlite:///{tmp_path}/none.db"])
    assert done.exit_code == 1
    assert "there is no file" in done.output
    assert list(tmp_path.iterdir()) == []


def test_a_password_is_never_printed():
    """Neither in the address nor in what the driver says about it."""
    address = "postgresql://app:hunter2@127.0.0.1:1/shop?connect_timeout=2"
    for options in ([], ["--json"]):
        done = CliRunner().invoke(main, ["doctor", "--database", address, *options])
        assert done.exit_code == 1
        assert "postgresql://app@127.0.0.1:1/shop" in done.output
        assert "hunter2" not in done.output


def test_a_wrong_address_is_wrong_use():
    """What is no address at all is not looked at."""
    assert CliRunner().invoke(main, ["doctor", "--database", "mysql://localhost/x"]).exit_code == 2
