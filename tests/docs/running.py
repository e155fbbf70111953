"""Running a page: its Python blocks in one namespace, its console blocks in one shell, both in one folder, in the page's order.

A Python block whose first line is a comment with a file's name is that file, for the blocks and commands after it. What a
page shows as output may have `...` for what differs; how many spaces stand between words does not matter.
"""

import contextlib
import importlib
import io
import os
import re
import selectors
import signal
import subprocess
import sys
import types
from pathlib import Path
from time import monotonic

from .pages import PROJECT, Block

COMMAND_SECONDS_MAX = 60.0
_END = "=== end of command"


class PageRun:
    """One page while it runs. The current folder is the page's own."""

    def __init__(self, page: Path, folder: Path) -> None:
        self._page = page
        self._folder = folder
        self._module = types.ModuleType(f"page_{page.stem.lower()}")
        self._imported: list[str] = [self._module.__name__]
        self._shell: Shell | None = None

    def __enter__(self) -> "PageRun":
        sys.modules[self._module.__name__] = self._module
        sys.path.insert(0, str(self._folder))
        return self

    def __exit__(self, *exit: object) -> None:
        sys.path.remove(str(self._folder))
        for name in self._imported:
            sys.modules.pop(name, None)
        if self._shell is not None:
            self._shell.close()

    def run(self, block: Block) -> None:
        """Run a block and compare what it prints with what the page shows."""
        if block.language == "console":
            self._run_console(block)
        elif block.file_name is not None:
            self._make_file(block.file_name, block.text)
        else:
            self._run_python(block)

    def _make_file(self, name: str, text: str) -> None:
        (self._folder / name).write_text(text, encoding="utf-8")
        module = name.removesuffix(".py")
        assert module not in sys.modules, f"{module} is the name of a module that is there already"
        self._imported.append(module)
        importlib.invalidate_caches()
        importlib.import_module(module)

    def _run_python(self, block: Block) -> None:
        code = compile("\n" * (block.line - 1) + block.text, str(self._page), "exec", dont_inherit=True)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, self._module.__dict__)
        if block.output is not None:
            check_output(block.output, printed.getvalue(), f"{self._page.name}:{block.line}")

    def _run_console(self, block: Block) -> None:
        self._shell = self._shell or Shell(self._folder)
        for command, expected in commands_of(block.text):
            code, output = self._shell.run(command)
            check_output(expected, output, f"{self._page.name}:{block.line}: $ {command}")
            assert code == 0 or "Error:" in expected, f"{self._page.name}:{block.line}: $ {command}\nended with {code}:\n{output}"


class Shell:
    """A shell in a process group of its own, in which `outlast` and `python` are those of the tests."""

    def __init__(self, folder: Path) -> None:
        programs = folder / ".programs"
        programs.mkdir()
        for name, arguments in (("outlast", "-m outlast "), ("python", "")):
            program = programs / name
            program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments}"$@"\n')
            program.chmod(0o755)
        environment = {
            **os.environ,
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(PROJECT / "src"),
            "PYTHONWARNINGS": "error,ignore::ResourceWarning",
        }
        self._process = subprocess.Popen(
            ["bash", "--norc"], cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
        )
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)

    def run(self, command: str) -> tuple[int, str]:
        """Run one command and return its exit code and what it printed."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\nprintf '\\n{_END} %d\\n' $?\n".encode())
        self._process.stdin.flush()
        text, deadline = "", monotonic() + COMMAND_SECONDS_MAX
        while not (end := re.search(rf"\n{_END} (\d+)\n", text)):
            text += self._read(deadline, command)
        return int(end[1]), text[: end.start()]

    def _read(self, deadline: float, command: str) -> str:
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            assert selector.select(max(0.0, deadline - monotonic())), f"$ {command}\ndid not end within {COMMAND_SECONDS_MAX:.0f} s"
        read = self._process.stdout.read()
        assert read, f"$ {command}\nended the shell"
        return read.decode()

    def close(self) -> None:
        """End the shell and what it has started."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.stdout.close()


def commands_of(text: str) -> list[tuple[str, str]]:
    """Return the commands of a console block, each with the output shown below it. `> ` goes on with a command."""
    commands: list[list[str]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            commands.append([line[2:], ""])
        elif line.startswith("> ") and not commands[-1][1]:
            commands[-1][0] += f"\n{line[2:]}"
        else:
            commands[-1][1] += f"{line}\n"
    return [(command, output) for command, output in commands]


def check_output(expected: str, printed: str, place: str) -> None:
    """Fail unless `printed` is what the page shows."""
    pattern = "".join(map(_pattern, _squeezed(expected)))
    assert re.fullmatch(pattern, "".join(_squeezed(printed))), f"{place}\n--- the page shows\n{expected}\n--- it prints\n{printed}"


def _squeezed(text: str) -> list[str]:
    return [f"{' '.join(line.split())}\n" for line in text.strip().splitlines()]


def _pattern(line: str) -> str:
    """A line of three dots stands for any lines, three dots within a line for any text in it."""
    return r"(?:.*\n)*" if line == "...\n" else ".*".join(map(re.escape, line.split("...")))
