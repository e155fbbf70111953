"""The library's own files as data, for the tests that look at how it is written. It reads files and imports nothing of them."""

import ast
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PROJECT = Path(__file__).parents[2]
LIBRARY = PROJECT / "src" / "outlast"
GENERATED = "This file is generated"
"""What the header of a generated file says; the limits on length do not hold for such a file."""


def python_files(*folders: Path) -> list[Path]:
    """Return all Python files below the folders."""
    return sorted(path for folder in folders for path in folder.rglob("*.py") if not {".venv", "node_modules"} & set(path.parts))


@cache
def tree(path: Path) -> ast.Module:
    """Return what a file says, parsed."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def name_of(path: Path) -> str:
    """Return the dotted name of a module of the library."""
    parts = path.relative_to(LIBRARY.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def shown(path: Path, node: ast.AST | None = None) -> str:
    """Return a place as an editor takes it: file, and line if there is one."""
    return f"{path.relative_to(PROJECT)}:{getattr(node, 'lineno', 1)}"


def imports(path: Path) -> Iterator[tuple[ast.AST, str]]:
    """Yield the absolute names of modules that a file imports, anywhere in it."""
    package = name_of(path) if path.name == "__init__.py" else name_of(path).rpartition(".")[0]
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            yield node, ".".join([*above, *filter(None, [node.module])])


def names_used(path: Path) -> Iterator[tuple[ast.AST, str]]:
    """Yield what a file reads or calls, by its full name: `time.time` also where it says `from time import time as t`."""
    meaning = _meanings(tree(path))
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Name | ast.Attribute) and (name := _dotted(node)):
            first, _, rest = name.partition(".")
            yield node, ".".join(filter(None, [meaning.get(first, first), rest]))


def _meanings(module: ast.Module) -> dict[str, str]:
    meanings = {}
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            meanings |= {alias.asname: alias.name for alias in node.names if alias.asname}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            meanings |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return meanings


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{before}.{node.attr}" if (before := _dotted(node.value)) else ""
    return ""


def settings() -> dict:
    """Return pyproject.toml."""
    return tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
