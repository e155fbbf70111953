"""Statements: SQL by name, from the `.sql` files of the part that owns the tables."""

import re
from functools import cache
from importlib.resources import files

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


@cache
def load_statements(package: str) -> dict[str, str]:
    """Return the statements in `package`'s folder `statements`, by their `-- name:` lines.

    The comment lines above a statement say what it does, what it locks and which index serves it; they are not sent.
    """
    statements: dict[str, str] = {}
    for file in sorted(files(package).joinpath("statements").iterdir(), key=lambda entry: entry.name):
        if file.name.endswith(".sql"):
            for name, sql in _split(file.read_text(encoding="utf-8")):
                if name in statements:
                    raise ValueError(f"statement {name} is there twice in {package}")
                statements[name] = sql
    return statements


def _split(text: str) -> list[tuple[str, str]]:
    parts = _NAME.split(text)[1:]
    return [(name, _without_comments(body)) for name, body in zip(parts[::2], parts[1::2], strict=True)]


def _without_comments(body: str) -> str:
    lines = (line for line in body.splitlines() if not line.lstrip().startswith("--"))
    return "\n".join(line for line in lines if line.strip()).strip().removesuffix(";")
