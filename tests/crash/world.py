"""A world for crash tests: a database, a folder, child processes, and what is read back from outside of the engine."""

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg

PROGRAM = Path(__file__).with_name("journey.py")
SOURCE = Path(__file__).parents[2] / "src"
PATIENCE = 120.0
"""Seconds after which a wait for something named fails: generous, because the machine may be busy."""


class Child:
    """A process that was started here, with what it has said so far."""

    def __init__(self, arguments: list[str], folder: Path, *, program: Path = PROGRAM, within: Sequence[str] = ()) -> None:
        """Start `program` with these arguments; `within` is what it is to be started by, such as `nice`."""
        environment = {**os.environ, "JOURNEY_FOLDER": str(folder), "PYTHONPATH": os.pathsep.join([str(SOURCE), os.environ.get("PYTHONPATH", "")])}
        self.process = subprocess.Popen(
            [*within, sys.executable, str(program), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            text=True,
            start_new_session=True,
        )
        self.said: list[str] = []
        self.complained: list[str] = []
        self._news = threading.Condition()
        self._readers = [
            threading.Thread(target=self._read, args=(self.process.stdout, self.said), daemon=True),
            threading.Thread(target=self._read, args=(self.process.stderr, self.complained), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, stream: Any, lines: list[str]) -> None:
        for line in stream:
            with self._news:
                lines.append(line.rstrip("\n"))
                self._news.notify_all()
        with self._news:
            self._news.notify_all()

    def wait_for(self, what: str, *, count: int = 1) -> str:
        """Wait until it has said a line that begins with `what`, for the `count`th time."""
        with self._news:
            if not self._news.wait_for(lambda: len(self._matching(what)) >= count or not self._readers[0].is_alive(), PATIENCE):
                raise AssertionError(f"never said {what!r}\n" + self.report())
            found = self._matching(what)
        assert len(found) >= count, f"ended without saying {what!r} {count} times\n" + self.report()
        return found[count - 1]

    def _matching(self, what: str) -> list[str]:
        return [line for line in self.said if line.startswith(what)]

    def wait(self) -> int:
        code = self.process.wait(PATIENCE)
        for reader in self._readers:
            reader.join(PATIENCE)
        return code

    def signal(self, number: signal.Signals) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)

    def kill(self) -> None:
        """End it for certain; it may be frozen."""
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.wait()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()

    def report(self) -> str:
        return "\n".join([f"exit {self.process.poll()}", *self.said[-30:], "--- and complained:", *self.complained[-60:]])


class World:
    """One database and one folder; children are ended with it."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.children: list[Child] = []

    def __enter__(self) -> "World":
        return self

    def __exit__(self, *_: object) -> None:
        for child in self.children:
            child.kill()

    def execute(self, *options: str) -> Child:
        return self._start("execute", self.url, *options)

    def enqueue(self, *options: str) -> Child:
        return self._start("enqueue", self.url, *options)

    def enqueue_now(self, *options: str) -> list[str]:
        """Enqueue and return the ids."""
        child = self.enqueue(*options)
        assert child.wait() == 0, child.report()
        return [line.split()[0] for line in child.said]

    def _start(self, *arguments: str, program: Path = PROGRAM, within: Sequence[str] = ()) -> Child:
        child = Child(list(arguments), self.folder, program=program, within=within)
        self.children.append(child)
        return child

    def freeze(self, child: Child) -> None:
        """Stop a process where it stands, but not inside a write to a SQLite file, which it would block for everybody."""
        paused = threading.Event()
        for _ in range(100):
            child.signal(signal.SIGSTOP)
            if not self.url.startswith("sqlite") or self.can_write():
                return
            child.signal(signal.SIGCONT)
            paused.wait(0.05)
        raise AssertionError("the process was never outside of a write\n" + child.report())

    def can_write(self) -> bool:
        """Whether a SQLite file can be written within a second."""
        with contextlib.closing(sqlite3.connect(self.url.removeprefix("sqlite:///"), timeout=1, isolation_level=None)) as connection:
            try:
                connection.execute("BEGIN EXCLUSIVE")
                connection.execute("ROLLBACK")
            except sqlite3.OperationalError:
                return False
            return True

    # --- what is read from outside -----------------------------------------------------------------------------------------
    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Ask the database itself; table names are written `{run}`."""
        if self.url.startswith("sqlite"):
            with contextlib.closing(sqlite3.connect(self.url.removeprefix("sqlite:///"), timeout=30)) as connection:
                return connection.execute(sql.replace("{step}", "outlast_run_step").replace("{", "outlast_").replace("}", "")).fetchall()
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(sql.replace("{", "outlast.").replace("}", "")).fetchall()  # type: ignore[arg-type]  # built here from a constant

    def statuses(self) -> Counter[str]:
        return Counter(status for (status,) in self.query("SELECT status FROM {run}"))

    def wait_until(self, what: str, holds: Callable[[], bool]) -> None:
        """Wait until something holds that can only be asked for again and again."""
        ended = threading.Event()
        for _ in range(int(PATIENCE / 0.1)):
            if holds():
                return
            ended.wait(0.1)
        raise AssertionError(f"never came true: {what}; runs are {dict(self.statuses())}\n" + "\n\n".join(child.report() for child in self.children))

    def wait_until_all(self, status: str = "succeeded") -> None:
        self.wait_until(f"every run is {status}", lambda: set(self.statuses()) == {status})

    def bodies(self) -> list[dict[str, Any]]:
        path = self.folder / "bodies.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def body_counts(self) -> Counter[tuple[str, str]]:
        """How often each step's body began, by run and step."""
        return Counter((body["run"], body["step"]) for body in self.bodies())


@contextlib.contextmanager
def world_of(url: str, folder: Path) -> Iterator[World]:
    with World(url, folder) as world:
        yield world
