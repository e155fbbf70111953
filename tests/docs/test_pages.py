"""Everything that a page shows is run: its programs, its commands, and what they print."""

from pathlib import Path

import pytest

from .pages import PAGES, blocks_of, name_of
from .running import PageRun, check_output, commands_of

NEEDS_POSTGRES = {"postgresql.md"}
"""Pages whose programs find a PostgreSQL database in OUTLAST_DATABASE_URL; the others find a SQLite file."""


@pytest.mark.parametrize("page", [page for page in PAGES if blocks_of(page)], ids=name_of)
def test_a_page_runs_as_it_is_written(page: Path, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Every Python and console block of the page works, in the page's order, and prints what the page shows."""
    folder = tmp_path / "page"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("OUTLAST_DATABASE_URL", raising=False)
    if page.name in NEEDS_POSTGRES:
        monkeypatch.setenv("OUTLAST_DATABASE_URL", request.getfixturevalue("postgres_url"))
    with PageRun(page, folder) as run:
        for block in blocks_of(page):
            run.run(block)


@pytest.mark.parametrize(
    ("expected", "printed", "is_same"),
    [
        ("a\nb\n", "a\nb\n", True),
        ("a\nb\n", "a\nc\n", False),
        ("a  b", "a b\n", True),
        ("a ... b", "a 17 b", True),
        ("a ... b", "a 17 c", False),
        ("a\n...\nz", "a\nb\nc\nz", True),
        ("a\n...", "a\nb\nc\n", True),
        ("...", "a\nb", True),
        ("...\nz", "z", True),
        ("", "", True),
        ("", "something", False),
        ("a", "a\nb", False),
    ],
)
def test_output_is_compared_with_room_for_what_differs(expected: str, printed: str, is_same: bool):
    """Three dots stand for what differs, and for nothing else."""
    try:
        check_output(expected, printed, "here")
    except AssertionError:
        assert not is_same
    else:
        assert is_same


def test_console_blocks_are_split_into_commands():
    """A line that begins with a dollar sign is a command, one that begins with `>` goes on with it, the rest is output."""
    assert commands_of("$ one \\\n> two\nout\nmore\n$ three\n") == [("one \\\ntwo", "out\nmore\n"), ("three", "")]
