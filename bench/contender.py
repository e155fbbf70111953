"""Contenders: who is measured, and how one of their processes is run. It knows commands and events, no databases.

Every contender understands the same actions (`prepare`, `enqueue`, `drain`, and some of them `work` and `ask`), given
as `COMMAND ACTION JSON`, and answers with events. A process of its own for each action keeps one contender's memory,
connections and warm caches out of another's figures.
"""

import json
import os
import queue
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
OPENWORKFLOW_FOLDER = ROOT / "bench" / "peers" / "openworkflow"
PEERS = ROOT / "bench" / "peers"
ACTION_SECONDS_MAX = 900.0
"""A drain of the slowest peer takes a tenth of this; what takes longer hangs."""

Event = dict[str, Any]


class ContenderError(RuntimeError):
    """A contender cannot be measured: it is not installed, or one of its processes failed."""


@dataclass(frozen=True)
class Contender:
    """One side of a comparison."""

    name: str
    command: tuple[str, ...]
    settings: str
    """How it was set up, for the reader of the results."""
    connections: int = 10
    environment: str | None = None
    """The name of its own Python environment, which is made from its file of requirements; None where it needs none."""

    def run(self, action: str, **options: Any) -> Event:
        """Run one action to its end and return its last event."""
        arguments = self._arguments(action, options)
        try:
            done = subprocess.run(arguments, cwd=ROOT, env=_environment(), capture_output=True, text=True, timeout=ACTION_SECONDS_MAX, check=False)
        except subprocess.TimeoutExpired:
            raise ContenderError(f"{self.name} {action} did not end within {ACTION_SECONDS_MAX:.0f} s") from None
        lines = [line for line in done.stdout.splitlines() if _is_event(line)]
        if done.returncode or not lines:
            raise ContenderError(f"{self.name} {action} ended with {done.returncode}:\n{done.stderr.strip()[-4000:]}")
        return _event(lines[-1])

    @contextmanager
    def started(self, action: str, **options: Any) -> Iterator["Started"]:
        """Run one action beside others, and kill it at the end if it still runs."""
        process = subprocess.Popen(self._arguments(action, options), cwd=ROOT, env=_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            yield Started(self.name, process)
        finally:
            process.kill()
            process.communicate()

    def _arguments(self, action: str, options: dict[str, Any]) -> list[str]:
        return [*self.command, action, json.dumps({"connections": self.connections, **options})]


class Started:
    """A process that runs beside the harness, and what it has said so far."""

    def __init__(self, name: str, process: "subprocess.Popen[str]") -> None:
        self._name = name
        self._process = process
        self._events: queue.Queue[Event | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def next_event(self, *kinds: str, timeout: float) -> Event:
        """Return its next event of one of these kinds, passing over others."""
        while True:
            try:
                event = self._events.get(timeout=timeout)
            except queue.Empty:
                raise ContenderError(f"{self._name} did not say {' or '.join(kinds)} within {timeout:.0f} s") from None
            if event is None:
                raise ContenderError(f"{self._name} ended before it said {' or '.join(kinds)}")
            if event["event"] in kinds:
                return event

    def say(self, line: str) -> None:
        """Write a line to its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        """End it as a crash would: nothing in it gets to run."""
        self._process.kill()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if _is_event(line):
                self._events.put(_event(line))
        self._events.put(None)


def _is_event(line: str) -> bool:
    return line.startswith('{"event"')


def _event(line: str) -> Event:
    event: Event = json.loads(line)
    return event


def _environment() -> dict[str, str]:
    paths = (str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH"))
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "NODE_ENV": "production"}


def _python(environment: str) -> str:
    return str(PEERS / ".venv" / environment / "bin" / "python")


OUTLAST = Contender(
    "outlast",
    (sys.executable, "-m", "bench.outlast_load"),
    "defaults; one worker process, concurrency 100; the application's pool, where a row has one, with 20 connections",
    4,
)
BATCHED_SQL = Contender(
    "batched SQL",
    (sys.executable, "-m", "bench.peers.batched_sql"),
    "psycopg in pipeline mode, one connection, 100 runs a statement, claim in one transaction and each step in one, the end with the last step; no bodies",
    1,
)
OPENWORKFLOW = Contender(
    "OpenWorkflow",
    ("node", str(OPENWORKFLOW_FOLDER / "load.mjs")),
    "its PostgreSQL backend, one worker process, concurrency 100, 10 connections (postgres.js' default; 20 was level, 50 and 90 were slower), no telemetry",
)
PGQUEUER = Contender(
    "PgQueuer",
    (_python("pgqueuer"), "-m", "bench.peers.pgqueuer_load"),
    "a plain queue: no steps, no results, jobs are deleted; asyncpg, one connection in the worker and 10 in the client, batches of 100, all tables logged",
    environment="pgqueuer",
)
DBOS = Contender(
    "DBOS",
    (_python("dbos"), "-m", "bench.peers.dbos_load"),
    "one process, plain functions (coroutines were a third slower) from one queue with a worker concurrency of 100, polled every 50 ms (10 and 100 ms were a "
    "little slower, its default of 1 s bounds it to 100 runs a second), 20 connections, its worker's default, log level WARNING; without its hosted service "
    "nobody notices that a process died, so that there is no takeover to measure",
    20,
    environment="dbos",
)
CONTENDERS = {"outlast": OUTLAST, "openworkflow": OPENWORKFLOW, "batched_sql": BATCHED_SQL, "pgqueuer": PGQUEUER, "dbos": DBOS}


def make_ready(contender: Contender) -> None:
    """Install what a contender needs, or raise with the reason why it cannot be measured."""
    if contender is OPENWORKFLOW:
        _install_openworkflow()
    elif contender.environment:
        _install_python_peer(contender.name, contender.environment)
    elif contender is OUTLAST:
        tried = subprocess.run([sys.executable, "-c", "import bench.outlast_load"], cwd=ROOT, env=_environment(), capture_output=True, text=True, check=False)
        if tried.returncode:
            raise ContenderError(f"engine not importable: the public surface of outlast that the benchmark uses is not there\n{tried.stderr.strip()}")


def openworkflow_versions() -> dict[str, str]:
    """Return the exact versions that the OpenWorkflow side is pinned to."""
    versions: dict[str, str] = json.loads((OPENWORKFLOW_FOLDER / "package.json").read_text(encoding="utf-8"))["dependencies"]
    return versions


def python_versions(environment: str) -> dict[str, str]:
    """Return the exact versions that a side with a Python environment of its own is pinned to."""
    lines = _requirements(environment).read_text(encoding="utf-8").splitlines()
    return {name: version for name, _, version in (line.partition("==") for line in lines) if version}


def _requirements(environment: str) -> Path:
    return PEERS / f"{environment}_requirements.txt"


def _install_openworkflow() -> None:
    if not shutil.which("node") or not shutil.which("npm"):
        raise ContenderError("OpenWorkflow needs node 20 and npm: install them, or leave it out with --contenders")
    if all(_installed_version(name) == version for name, version in openworkflow_versions().items()):
        return
    done = subprocess.run(["npm", "install", "--no-package-lock"], cwd=OPENWORKFLOW_FOLDER, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ContenderError(f"npm install failed:\n{done.stderr.strip()}")


def _installed_version(name: str) -> str | None:
    file = OPENWORKFLOW_FOLDER / "node_modules" / name / "package.json"
    return str(json.loads(file.read_text(encoding="utf-8"))["version"]) if file.exists() else None


def _install_python_peer(name: str, environment: str) -> None:
    python = Path(_python(environment))
    check = f"from importlib.metadata import version; assert all(version(n) == v for n, v in {python_versions(environment)!r}.items())"
    if python.exists() and subprocess.run([python, "-c", check], capture_output=True, check=False).returncode == 0:
        return
    make = [sys.executable, "-m", "venv", str(python.parents[1])]
    fill = [str(python), "-m", "pip", "install", "--quiet", "-r", str(_requirements(environment))]
    for command in (make, fill):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ContenderError(f"{name} could not be installed: mend that, or leave it out with --contenders\n{done.stderr.strip()}")
