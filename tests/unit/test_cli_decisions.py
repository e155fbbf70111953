"""The commands for what waits for a person: attention, decide, resume. The ports are stand-ins that note what they are asked."""

import json
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from outlast.cli.application import user_name
from outlast.decision import NO_RESULT, DecisionState, DecisionView
from outlast.decisions.attention import AttentionPage, attention_page, place_from
from outlast.failure import Failure
from outlast.run import RunStatus

from .test_cli_commands import NOW, Ports, outlast
from .test_cli_output import a_run

QUESTION = DecisionView("d1", DecisionState.OPEN, "r1", "pay", "Was \x1b pay done?", '{"amount":5}', "digest", ("done", "again"), ("done",), None, NOW)


class DecidingPorts(Ports):
    """The same stand-in with what people are asked."""

    def __init__(self):
        super().__init__()
        self.attention = AttentionPage((), None)

    async def list_attention(self, **page):
        self.note("list_attention", **page)
        return self.attention

    async def decide(self, decision_id, option, *, result, note, actor):
        self.note("decide", decision_id, option, result=result, note=note, actor=actor)
        return replace(QUESTION, state=DecisionState.ANSWERED, answer=option, answered_by=actor)

    async def resume(self, run_id, result, *, actor, reason):
        self.note("resume", run_id, result, actor=actor, reason=reason)
        return a_run(status=RunStatus.PENDING, why="waiting for a worker")


@pytest.fixture
def ports(monkeypatch):
    """The application that `--app app_of_test:engine` names."""
    ports = DecidingPorts()
    monkeypatch.setitem(sys.modules, "app_of_test", SimpleNamespace(engine=ports))
    return ports


def test_what_waits_for_a_person_is_listed_with_what_to_do(ports):
    """A question with its options, a failed run with what failed, since when, and the place of the next page; an empty list says so."""
    assert outlast("attention").output == "nothing waits for you\n"
    failed = a_run(id="r2", status=RunStatus.FAILED, finished_at=NOW, error=Failure("x.Y", "broken"))
    ports.attention = attention_page([QUESTION, QUESTION], [failed], 2, place_from(None))
    done = outlast("attention", "--limit", "2")
    assert ports.calls[-2] == ("list_attention", {"limit": 2, "before": None})
    assert "decision  2026-01-01 00:00:00Z  r1   outlast decide d1 done|again  Was \\x1b pay done?" in done.output
    assert "more: --before ,,d1" in done.output
    ports.attention = attention_page([], [failed], 2, place_from(None))
    assert "failed  2026-01-01 00:00:00Z  r2   outlast retry|resume|discard RUN  import v2: x.Y: broken" in outlast("attention").output


def test_attention_as_json(ports):
    """A program gets each item with its commands, the question's data as values, and the run."""
    ports.attention = attention_page([QUESTION], [a_run(id="r2", status=RunStatus.DEAD, finished_at=NOW)], 9, place_from(None))
    page = json.loads(outlast("attention", "--json").output)
    assert [item["kind"] for item in page["attention"]] == ["decision", "dead"]
    assert page["attention"][0]["decision"]["about"] == {"amount": 5}
    assert page["attention"][0]["remedies"] == ["outlast decide d1 done --result JSON", "outlast decide d1 again"]
    assert page["attention"][1]["failed"]["id"] == "r2"
    assert page["next"] is None


def test_a_decision_is_answered(ports):
    """Option, result, note and who reach the operator; no result is something else than null."""
    done = outlast("decide", "d1", "done", "--result", '{"a": 1}', "--note", "they say so", "--actor", "ann")
    assert ports.calls[0] == ("decide", "d1", "done", {"result": {"a": 1}, "note": "they say so", "actor": "ann"})
    assert done.output == "answered: done by ann\n"
    outlast("decide", "d1", "again")
    assert ports.calls[2] == ("decide", "d1", "again", {"result": NO_RESULT, "note": "", "actor": user_name()})
    outlast("decide", "d1", "done", "--result", "null")
    assert ports.calls[4][-1]["result"] is None
    assert json.loads(outlast("decide", "d1", "done", "--json").output)["answer"] == "done"


def test_a_run_is_resumed_with_a_result(ports):
    """The result, who and why reach the operator."""
    done = outlast("resume", "r1", "--result", "[1]", "--actor", "ann", "--reason", "done by hand")
    assert ports.calls[0] == ("resume", "r1", [1], {"actor": "ann", "reason": "done by hand"})
    assert done.output == "pending: waiting for a worker\n"


def test_show_lists_what_a_run_has_asked(ports):
    """Each question with its state and its answer, and who gave it."""
    ports.decisions = (QUESTION, replace(QUESTION, id="d0", state=DecisionState.CONSUMED, answer="again", answered_by="ann", note="not there"))
    done = outlast("show", "r1")
    assert "d1        open      pay   done|again               Was \\x1b pay done?" in done.output
    assert "d0        consumed  pay   again by ann: not there  Was" in done.output
    assert json.loads(outlast("show", "r1", "--json").output)["decisions"][0]["id"] == "d1"


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (["decide", "d1", "done", "--result", "{no json"], "--result"),
        (["resume", "r1", "--result", "text", "--reason", "x"], "quotes"),
        (["resume", "r1", "--result", "1"], "--reason"),
        (["attention", "--limit", "0"], "--limit"),
    ],
)
def test_wrong_use_is_code_2_with_the_remedy(ports, arguments, remedy):
    """What is no JSON, and what is not said, is told with exit code 2, and the port is not asked."""
    done = outlast(*arguments)
    assert done.exit_code == 2, done.output
    assert remedy in done.output
    assert [call for call in ports.calls if call != ("closed",)] == []
