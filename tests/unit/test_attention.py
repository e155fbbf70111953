"""The attention list by itself: two lists in one order, and pages that follow each other without a gap."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from outlast.decision import DecisionState, DecisionView
from outlast.decisions.attention import AttentionKind, Place, attention_page, place_from
from outlast.errors import UsageError
from outlast.failure import Failure
from outlast.ids import run_id
from outlast.run import RunStatus

from .test_cli_output import a_run

NOW = datetime(2026, 1, 1, tzinfo=UTC)
QUESTION = DecisionView("d1", DecisionState.OPEN, "r1", "pay", "Was pay done?", "{}", "digest", ("done", "again"), ("done",), None, NOW)


def at(seconds):
    return NOW + timedelta(seconds=seconds)


def question(seconds):
    return replace(QUESTION, id=f"decision, {seconds}", opened_at=at(seconds))


def dead_letter(seconds, status=RunStatus.FAILED):
    return a_run(id=run_id(), status=status, finished_at=at(seconds), error=Failure("x.Y", "broken"))


def test_both_come_in_one_order():
    """Questions and dead letters are mixed by when they came, the latest first."""
    page = attention_page([question(5), question(1)], [dead_letter(9, RunStatus.DEAD), dead_letter(3)], 10, Place())
    assert [item.kind for item in page.items] == [AttentionKind.DEAD, AttentionKind.DECISION, AttentionKind.FAILED, AttentionKind.DECISION]
    assert [item.since for item in page.items] == [at(9), at(5), at(3), at(1)]
    assert page.next is None
    assert ([one.id for one in page.decisions], [one.finished_at for one in page.runs]) == (["decision, 5", "decision, 1"], [at(9), at(3)])


def test_each_says_what_to_do():
    """A question is answered, a failed run is retried, resumed or discarded, and a dead one was failed by no step."""
    page = attention_page([QUESTION], [dead_letter(-1), dead_letter(-2, RunStatus.DEAD)], 10, Place())
    asked, failed, dead = page.items
    assert asked.remedies == ("outlast decide d1 done --result JSON", "outlast decide d1 again")
    assert [remedy.split()[1] for remedy in failed.remedies] == ["retry", "resume", "discard"]
    assert [remedy.split()[1] for remedy in dead.remedies] == ["retry", "discard"]
    assert (asked.what, failed.what) == ("Was pay done?", "import v2: x.Y: broken")


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_pages_follow_each_other(limit):
    """Whatever is on one page is on no other, and nothing is left out, though each list is read by itself."""
    questions = [question(seconds) for seconds in (9, 7, 6, 1)]
    runs = [dead_letter(seconds) for seconds in (8, 5, 4, 3, 2)]
    found, before = [], None
    for _ in range(20):
        place = place_from(before)
        open_ones = questions[1 + next((number for number, one in enumerate(questions) if one.id == place.decision), -1) :]
        ended = [run for run in runs if place.run is None or (run.finished_at, run.id) < place.run]
        page = attention_page(open_ones[: limit + 1], ended[: limit + 1], limit, place)
        found += [item.since for item in page.items]
        before = page.next
        if before is None:
            break
    assert found == [at(seconds) for seconds in range(9, 0, -1)]


def test_a_place_comes_back_from_its_text():
    """Also where only one of the lists was begun, and with any name that a decision may have."""
    for place in (Place(), Place("d1"), Place(None, (NOW, run_id())), Place("a,b,c", (at(0.000001), run_id()))):
        assert place_from(place.text()) == place
    assert place_from(None) == Place()


@pytest.mark.parametrize("text", ["", "r1", "2026-01-01T00:00:00+00:00,r1,", "2026-01-01T00:00:00,01a23217-6b27-7ce3-953e-aae559a8ca98,", "soon,,d1", ",r1,d1"])
def test_what_is_no_place_is_refused(text):
    """Whoever writes one himself is told where it comes from."""
    with pytest.raises(UsageError, match="as next"):
        place_from(text)
