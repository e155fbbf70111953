"""What the command line prints: nothing that a terminal obeys, and complete JSON."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from outlast.cli.output import bytes_text, escaped, plain, print_json, print_line, print_table, span_text
from outlast.inspector import RunPage
from outlast.run import Progress, RunStatus, RunView, StepView

HOSTILE = [*map(chr, range(0x20)), "\x7f", *map(chr, range(0x80, 0xA0)), "\u202e", "\u2066", "\u200f", "\u2028", "\ufeff", "\udcff"]


def a_run(**changed):
    """A view of a run in which only what a test is about differs."""
    fields = dict.fromkeys(RunView.__dataclass_fields__)
    fields |= {
        "id": "r1",
        "kind": "import",
        "version": 2,
        "queue": "default",
        "status": RunStatus.RUNNING,
        "why": "",
        "warnings": (),
        "tags": (),
        "headers": {},
    }
    fields |= {"generation": 0, "priority": 0, "attempts": 0, "recoveries": 0, "strikes": 0, "input": "{}", "created_at": datetime(2026, 1, 1, tzinfo=UTC)}
    return RunView(**(fields | changed))


@pytest.mark.parametrize("character", HOSTILE, ids=ascii)
def test_controls_and_directions_are_written_out(character):
    """No control, direction mark or surrogate reaches the screen, and what is printed is one line of text."""
    shown = escaped(f"a{character}b")
    assert shown.isprintable()
    assert shown.startswith("a\\")
    assert shown.endswith("b")


def test_ordinary_text_stays_as_it_is():
    """Letters of any language, signs and spaces are printed unchanged."""
    assert escaped("ünïcödé 名前 🎬 [red]x[/red]") == "ünïcödé 名前 🎬 [red]x[/red]"


def test_a_table_has_one_line_a_row(capsys):
    """A name with line breaks and escape sequences stays in its row, and nothing is cut off where no terminal is."""
    print_table(("NAME", "WHY"), [("x\n\x1b[2Jy", "z" * 300)])
    header, row = capsys.readouterr().out.splitlines()
    assert header.split() == ["NAME", "WHY"]
    assert row == "x\\x0a\\x1b[2Jy  " + "z" * 300


def test_json_is_one_line_of_ascii(capsys):
    """JSON output passes every pipe: hostile text is written with escapes only."""
    print_json({"name": "é\n\x1b\u202e"})
    line = capsys.readouterr().out
    assert line.isascii()
    assert line.count("\n") == 1
    assert json.loads(line) == {"name": "é\n\x1b\u202e"}


def test_a_view_in_json_holds_values_instead_of_json_text():
    """Input and output of a run are the values themselves, so that a program parses once."""
    fields = plain(RunPage((a_run(input='{"n": 1}', output="[2]"),), next="place"))
    assert fields["next"] == "place"
    assert fields["runs"][0]["input"] == {"n": 1}
    assert fields["runs"][0]["output"] == [2]
    assert fields["runs"][0]["status"] == "running"


def test_headers_named_like_values_stay_text():
    """Only a view's own fields are JSON text: a header called `input` is not parsed."""
    assert plain(a_run(headers={"input": "{no json"}))["headers"] == {"input": "{no json"}


def test_a_step_in_json_holds_its_result():
    """A step's result is the value itself, and its progress is an object."""
    step = StepView("copy", "step", "in_progress", 1, None, None, result="3", progress=Progress(1, 2))
    assert plain(step)["result"] == 3
    assert plain(step)["progress"] == {"done": 1, "total": 2, "note": ""}


def test_lines_are_escaped(capsys):
    """A line stays one line."""
    print_line("a\rb\n")
    assert capsys.readouterr().out == "a\\x0db\\x0a\n"


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (timedelta(seconds=-1), "0ms"),
        (timedelta(milliseconds=12), "12ms"),
        (timedelta(seconds=1.25), "1.2s"),
        (timedelta(minutes=3, seconds=4), "3m04s"),
        (timedelta(hours=5, minutes=6), "5h06m"),
        (timedelta(days=7, hours=8), "7d08h"),
    ],
)
def test_spans_have_two_units(span, text):
    """An age is shown in its two largest units."""
    assert span_text(span) == text


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 40, "5.0 TiB")])
def test_sizes_have_binary_units(count, text):
    """A size is shown in the largest unit below it."""
    assert bytes_text(count) == text
