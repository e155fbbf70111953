"""The project's pages as data: their blocks of code, their headings, their links and their tables. It reads files and runs nothing."""

import re
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).parents[2]
PAGES = sorted([*PROJECT.glob("*.md"), *(PROJECT / "docs").rglob("*.md")])

_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```\s*$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+?)\s*$", re.MULTILINE)
_FILE_NAME = re.compile(r"# (\w+\.py)\n")


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    language: str
    text: str
    line: int
    """Of its first line in the page, from 1."""
    output: str | None = None
    """What it prints, when a block of text follows at once."""

    @property
    def file_name(self) -> str | None:
        """The file that it is, when its first line is nothing but a comment with a file's name."""
        found = _FILE_NAME.match(self.text)
        return found[1] if found else None


def name_of(page: Path) -> str:
    """Return how tests call a page: its path below `docs`."""
    return page.relative_to(PROJECT).as_posix().removeprefix("docs/")


def read(path: Path) -> str:
    """Return a page's text."""
    return path.read_text(encoding="utf-8")


def blocks_of(path: Path) -> list[Block]:
    """Return a page's Python and console blocks in their order, each with the output that the page shows for it."""
    text = read(path)
    found = list(_FENCE.finditer(text))
    blocks = []
    for index, fence in enumerate(found):
        after = found[index + 1] if index + 1 < len(found) else None
        has_output = after is not None and after[1] == "text" and not text[fence.end() : after.start()].strip()
        if fence[1] in ("python", "console"):
            blocks.append(Block(fence[1], fence[2], text.count("\n", 0, fence.start(2)) + 1, after[2] if after is not None and has_output else None))
    return blocks


def prose_of(path: Path) -> str:
    """Return a page without its blocks of code."""
    return _FENCE.sub("", read(path))


def links_of(path: Path) -> list[str]:
    """Return the targets of a page's links."""
    return _LINK.findall(prose_of(path))


def anchors_of(path: Path) -> set[str]:
    """Return what a link may name after `#`, by the rule that code hosts follow."""
    headings = (re.sub(r"[^\w\- ]", "", heading.replace("`", "")).strip().lower() for heading in _HEADING.findall(prose_of(path)))
    return {heading.replace(" ", "-") for heading in headings}


def rows_of(path: Path, first_column: str) -> list[list[str]]:
    """Return the rows of the table whose first column has this name."""
    lines = iter(prose_of(path).splitlines())
    for line in lines:
        if line.startswith("|") and _cells(line)[0] == first_column:
            next(lines)  # the rule below the names
            rows = []
            for row in lines:
                if not row.startswith("|"):
                    return rows
                rows.append(_cells(row))
            return rows
    raise LookupError(f"{path.name} has no table whose first column is {first_column!r}")


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]
