"""Supervised: `outlast worker` with real child processes that execute journeys, and what it prints."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.crash.world import PROGRAM, SOURCE

_END_SECONDS_MAX = 60.0
_APPLICATION = """
import os, sys
sys.path.insert(0, {folder!r})
import journey
from outlast import connect
engine = connect(os.environ["JOURNEY_URL"], tasks=journey.TASKS, lease={lease!r})
"""


class Supervised:
    """A supervisor with two children, within a `with` block."""

    def __init__(self, url: str, folder: Path, *, lease: str) -> None:
        (folder / "application.py").write_text(_APPLICATION.format(folder=str(PROGRAM.parent), lease=lease))
        environment = {**os.environ, "JOURNEY_URL": url, "JOURNEY_FOLDER": str(folder), "PYTHONPATH": f"{SOURCE}{os.pathsep}{folder}"}
        command = [sys.executable, "-m", "outlast", "worker", "--app", "application:engine", "--processes", "2", "--json"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=folder)
        self.said: list[dict[str, Any]] = []
        self.children: list[int] = []

    def __enter__(self) -> "Supervised":
        self.children = [self.next("worker_process_started")["pid"] for _ in range(2)]
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Let it end in good order, and keep what it still says."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        rest, _ = self._process.communicate(timeout=_END_SECONDS_MAX)
        self.said += [json.loads(line) for line in rest.splitlines()]

    def next(self, name: str) -> dict[str, Any]:
        """Return the facts of the next event of this name."""
        assert self._process.stdout is not None
        for line in iter(self._process.stdout.readline, ""):
            self.said.append(json.loads(line))
            if self.said[-1]["event"] == name:
                return self.said[-1]
        raise AssertionError(f"the supervisor ended before it said {name}: {self.said}")
