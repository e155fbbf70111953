"""Named SQL: every statement is used, explained, and there in both dialects under one name."""

import ast
import re
from pathlib import Path

from .source import LIBRARY, PROJECT, python_files, tree

NAME = re.compile(r"^-- name: (.*)$", re.MULTILINE)
ONE_DIALECT_ONLY = re.compile(r"^-- only here: \S.+$", re.MULTILINE)
"""The line that says why the other dialect has no such statement."""

FOLDERS = sorted(folder for folder in LIBRARY.glob("*/*/statements") if (folder.parent / "store.py").exists())
PARTS = sorted(
    part for part in {folder.parents[1] for folder in FOLDERS} if part / "sqlite" / "statements" in FOLDERS and part / "postgres" / "statements" in FOLDERS
)
MIGRATIONS = sorted(LIBRARY.glob("*/*/migrations"))
SQLITE_FILES = sorted(file for file in LIBRARY.rglob("*.sql") if "sqlite" in file.parts)


def statements(folder: Path) -> dict[str, str]:
    """Names and texts of a folder's statements, each with the comment above its name."""
    found = {}
    for file in sorted(folder.glob("*.sql")):
        parts = [comment_apart(part) for part in NAME.split(file.read_text(encoding="utf-8"))[::2]]
        for name, (_, comment), (text, _) in zip(NAME.findall(file.read_text(encoding="utf-8")), parts, parts[1:], strict=False):
            assert name not in found, f"{name} is there twice in {folder.relative_to(PROJECT)}"
            found[name] = f"{comment}\n{text.strip()}"
    return found


def comment_apart(text: str) -> tuple[str, str]:
    """A text without, and then only, the block of comment lines at its end, which belongs to what follows."""
    lines = text.rstrip().splitlines()
    start = len(lines)
    while start and lines[start - 1].startswith("--"):
        start -= 1
    return "\n".join(lines[:start]), "\n".join(lines[start:])


def literals(folder: Path) -> set[str]:
    """All strings and attribute names in a folder's Python: a statement is named by one of them."""
    nodes = [node for path in python_files(folder) for node in ast.walk(tree(path))]
    strings = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return strings | {node.attr for node in nodes if isinstance(node, ast.Attribute)}


def test_every_statement_is_used():
    """A statement that no code names is dead and would rot."""
    assert not [f"{folder.relative_to(LIBRARY)}: {name}" for folder in FOLDERS for name in sorted(set(statements(folder)) - literals(folder.parent))]


def test_every_statement_has_a_plain_name_and_says_what_it_does():
    """A name is one lower-case word with underscores, and a comment stands above or below it."""
    named = [(f"{folder.relative_to(LIBRARY)}: {name}", name, text) for folder in FOLDERS for name, text in statements(folder).items()]
    assert not [place for place, name, _ in named if not re.fullmatch(r"[a-z][a-z0-9_]*", name)]
    assert not [place for place, _, text in named if not any(line.startswith("-- ") for line in text.splitlines())]


def test_both_dialects_have_the_same_names():
    """What one database can do the other can; a difference has its reason in words."""
    for part in PARTS:
        folders = [part / dialect / "statements" for dialect in ("sqlite", "postgres")]
        sqlite, postgres = ({name for name, text in statements(folder).items() if not ONE_DIALECT_ONLY.search(text)} for folder in folders)
        assert (sorted(sqlite - postgres), sorted(postgres - sqlite)) == ([], []), part.name


def test_migrations_are_numbered_without_gaps():
    """Migrations are applied in the order of their numbers, so each number is there once."""
    for folder in MIGRATIONS:
        files = sorted(file.name for file in folder.glob("*.sql"))
        assert all(re.fullmatch(r"\d{4}_[a-z0-9_]+\.sql", name) for name in files), files
        assert [int(name[:4]) for name in files] == list(range(1, len(files) + 1))


def test_the_rule_reads_comments_as_people_do(tmp_path):
    """A comment above a name belongs to that statement and not to the one before."""
    (tmp_path / "x.sql").write_text(
        "-- a file\n\n-- does one\n-- name: one\nSELECT 1\n\n-- only here: because\n-- name: two\nSELECT 2\n\n-- name: bare\nSELECT 3\n"
    )
    found = statements(tmp_path)
    assert [found[name].strip() for name in ("one", "two", "bare")] == ["-- does one\nSELECT 1", "-- only here: because\nSELECT 2", "SELECT 3"]


def test_no_name_is_quoted_for_sqlite():
    """SQLite takes a name in double quotes that it does not know for a text, so that a misspelled column would compare as itself and say nothing."""
    code = [(file, number, line.partition("--")[0]) for file in SQLITE_FILES for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)]
    assert code
    assert not [f"{file.relative_to(LIBRARY)}:{number}" for file, number, text in code if '"' in text]
