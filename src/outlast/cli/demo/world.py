"""World: the folders of one demo, and the journal in which its steps say themselves what they did.

The journal is the demo's own witness: the engine neither reads nor writes it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from outlast.clock import SystemClock
from outlast.errors import CancelRequested
from outlast.this_step import StepAttempt, this_step

FOLDER_VARIABLE = "OUTLAST_DEMO_FOLDER"
PACE_VARIABLE = "OUTLAST_DEMO_BYTES_PER_SECOND"


@dataclass(frozen=True)
class World:
    """Where the demo's files are. It is the services object of the demo's workers."""

    folder: Path
    pace: float
    """Bytes a second of one copy, so that there is something to see and to interrupt; 0 for no limit."""

    @classmethod
    def of_environment(cls) -> World:
        """Return what the process that started this worker has set."""
        return cls(Path(os.environ[FOLDER_VARIABLE]), float(os.environ[PACE_VARIABLE]))

    def environment(self) -> dict[str, str]:
        """Return what a worker of this world needs in its environment."""
        return {FOLDER_VARIABLE: str(self.folder), PACE_VARIABLE: str(self.pace)}

    @property
    def library(self) -> Path:
        return self.folder / "library"

    @property
    def register(self) -> Path:
        return self.folder / "register"

    @property
    def journal(self) -> Journal:
        return Journal(self.folder / "journal.jsonl")


class Entry(msgspec.Struct, frozen=True):
    """What one attempt of one step said."""

    at: float
    pid: int
    run: str
    step: str
    token: int
    event: str
    """`began`, `went_on` (a copy, at `byte`), `ended`, `told` (to stop) or `failed`."""
    byte: int = 0


class Journal:
    """A file to which each entry is added by one write, so that a kill loses none and tears none."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, attempt: StepAttempt[Any], event: str, byte: int = 0) -> None:
        entry = Entry(SystemClock().now().timestamp(), os.getpid(), attempt.run_id, attempt.key, attempt.fencing_token, event, byte)
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, msgspec.json.encode(entry) + b"\n")
        finally:
            os.close(descriptor)

    def read(self) -> list[Entry]:
        """Return all entries in the order in which they were written."""
        if not self._path.exists():
            return []
        return [msgspec.json.decode(line, type=Entry) for line in self._path.read_bytes().splitlines()]


def owners(journal: list[Entry]) -> dict[str, int]:
    """Return the process that last began a step of each run."""
    return {entry.run: entry.pid for entry in journal if entry.event == "began"}


@contextmanager
def noted() -> Iterator[StepAttempt[World]]:
    """Note in the journal how this step begins and ends."""
    attempt = this_step(World)
    journal = attempt.services.journal
    journal.add(attempt, "began")
    try:
        yield attempt
    except CancelRequested:
        journal.add(attempt, "told")
        raise
    except BaseException:
        journal.add(attempt, "failed")
        raise
    journal.add(attempt, "ended")
