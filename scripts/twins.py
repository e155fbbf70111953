"""Twins: the text of a class that does the same as another one, by calling it from a plain thread.

Reads source text and imports nothing of the library. What a class is mirrored into is `generate_blocking.py`'s business.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

LIBRARY = Path(__file__).parents[1] / "src" / "outlast"

Function = ast.FunctionDef | ast.AsyncFunctionDef
Functions = dict[str, list[Function]]
"""The functions of a class by name, overloads in their order."""

RENAMED = {"__aenter__": "__enter__", "__aexit__": "__exit__"}
WRAPPED = {
    "Run[O]": ("BlockingRun[O]", "BlockingRun(self._portal, {})"),
    "list[Run[O]]": ("list[BlockingRun[O]]", "[BlockingRun(self._portal, run) for run in {}]"),
    "DurableTimeout": ("BlockingTimeout", "BlockingTimeout(self._thread, {})"),
}
"""What a method returns that has a twin of its own: the twin's type, and how it is made."""
TYPE_VARIABLES = {"C", "I", "O", "P", "R", "S", "T"}
"""They are the generated file's own."""


@dataclass(frozen=True)
class Source:
    """One file that is mirrored."""

    module: str

    @property
    def tree(self) -> ast.Module:
        return _parsed(LIBRARY.joinpath(*self.module.split(".")[1:]).with_suffix(".py"))

    def functions(self, class_name: str) -> Functions:
        """Return the functions of a class that are not its own business."""
        (found,) = (node for node in self.tree.body if isinstance(node, ast.ClassDef) and node.name == class_name)
        functions: Functions = {}
        for node in found.body:
            if isinstance(node, Function) and (not node.name.startswith("_") or node.name in RENAMED):
                functions.setdefault(node.name, []).append(node)
        return functions

    def imports(self, names: set[str]) -> Iterator[str]:
        """Yield import lines for those of the names that the file imports or defines."""
        package = self.module.rpartition(".")[0]
        for node in self.tree.body:
            if isinstance(node, ast.ImportFrom):
                module = f"{package}.{node.module}" if node.level else node.module
                yield from (f"from {module} import {_alias(one)}" for one in node.names if (one.asname or one.name) in names)
            elif isinstance(node, ast.Import):
                yield from (f"import {_alias(one)}" for one in node.names if (one.asname or one.name) in names)
            elif isinstance(node, ast.ClassDef) and node.name in names:
                yield f"from {self.module} import {node.name}"


@dataclass(frozen=True)
class Twin:
    """How methods are mirrored: of what object the originals are, and what awaits one, or calls one that is not awaited."""

    target: str
    awaiting: str
    calling: str = "{}"

    def methods(self, functions: Functions, bodies: dict[str, str] | None = None) -> str:
        """Return the methods' text, indented as in a class; `bodies` are those that are more than a call."""
        texts = [self._method(name, overloads, (bodies or {}).get(name)) for name, overloads in functions.items()]
        return textwrap.indent("\n".join(texts), "    ")

    def _method(self, name: str, overloads: list[Function], body: str | None) -> str:
        last = overloads[-1]
        returns, wrapped, is_awaited = _returns(last)
        if _is(last, "property"):
            return f"@property\n{_head(last, returns)}\n{_docstring(last)}    return {self.target}.{name}\n"
        heads = [f"@overload\n{_head(one, _returns(one)[0])} ...\n" for one in overloads if _is(one, "overload")]
        if _is(last, "overload"):  # of a port, where no implementation follows
            first = last.args.posonlyargs[1]
            rest = ", ".join(filter(None, [ast.unparse(last.args).rpartition("/, ")[2]]))
            head = f"def {name}(self, {first.arg}: TaskRef[Any, O], /, *input: Any, {rest}) -> {returns}:"
            call = f"{self.target}.{name}({first.arg}, *input, {_passed(last).rpartition(', ')[2]})"
        else:
            head, call = _head(last, returns), f"{self.target}.{name}({_passed(last)})"
        statement = body or f"return {wrapped.format((self.awaiting if is_awaited else self.calling).format(call))}"
        return "\n".join([*heads, f"{head}\n{_docstring(*overloads)}{textwrap.indent(statement, '    ')}"])


def stubs(functions: Functions) -> str:
    """Return what a protocol says of these functions, indented as in a class."""
    return textwrap.indent("\n".join(_stub(overloads[-1]) for overloads in functions.values()), "    ")


def import_lines(sources: Iterable[Source], *classes: Functions) -> str:
    """Return import lines for every name in the functions' signatures."""
    names: set[str] = set()
    for function in (one for functions in classes for overloads in functions.values() for one in overloads):
        parts = [function.args, *filter(None, [function.returns])]
        names |= {node.id for part in parts for node in ast.walk(part) if isinstance(node, ast.Name)}
    return "\n".join(sorted({line for source in sources for line in source.imports(names - TYPE_VARIABLES)}))


@cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def _is(function: Function, decorator: str) -> bool:
    return any(isinstance(one, ast.Name) and one.id == decorator for one in function.decorator_list)


def _head(function: Function, returns: str) -> str:
    return f"def {RENAMED.get(function.name, function.name)}({ast.unparse(function.args)}) -> {returns}:"


def _stub(function: Function) -> str:
    assert function.returns is not None, f"{function.name} does not say what it returns"
    decorator = "@property\n" if _is(function, "property") else ""
    prefix = "async " if isinstance(function, ast.AsyncFunctionDef) else ""
    return f"{decorator}{prefix}{_head(function, ast.unparse(function.returns))} ..."


def _returns(function: Function) -> tuple[str, str, bool]:
    """Return the type of what the twin returns, how it is made of what the original returns, and whether that is awaited."""
    assert function.returns is not None, f"{function.name} does not say what it returns"
    returns, is_awaited = function.returns, isinstance(function, ast.AsyncFunctionDef)
    if isinstance(returns, ast.Subscript) and ast.unparse(returns.value) == "Coroutine":
        assert isinstance(returns.slice, ast.Tuple)
        returns, is_awaited = returns.slice.elts[-1], True
    text = ast.unparse(returns)
    return *WRAPPED.get(text, (text, "{}")), is_awaited


def _passed(function: Function) -> str:
    """Return the arguments of a call that hands everything on."""
    arguments = function.args
    passed = [one.arg for one in (*arguments.posonlyargs, *arguments.args) if one.arg != "self"]
    passed += [f"*{arguments.vararg.arg}"] if arguments.vararg else []
    passed += [f"{one.arg}={one.arg}" for one in arguments.kwonlyargs]
    passed += [f"**{arguments.kwarg.arg}"] if arguments.kwarg else []
    return ", ".join(passed)


def _docstring(*overloads: Function) -> str:
    text = next((found for one in reversed(overloads) if (found := ast.get_docstring(one))), "").replace("`async with ", "`with ")
    end = "\n" if "\n" in text else ""
    return textwrap.indent(f'"""{text}{end}"""\n', "    ") if text else ""


def _alias(alias: ast.alias) -> str:
    return f"{alias.name} as {alias.asname}" if alias.asname else alias.name
