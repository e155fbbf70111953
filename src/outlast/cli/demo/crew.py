"""Crew: the demo's worker processes. It ends them itself, all of them, however the demo ends."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from outlast.cli.worker_process import WorkerProcess, worker_command

from .world import World

STOP_SECONDS = 10.0


@dataclass
class Member:
    """One worker, with what became of it."""

    number: int
    process: WorkerProcess
    state: str = "working"
    """`working`, `killed`, `frozen`, `thawed` or `stopped`."""
    renewals: int = 0
    """Lease renewals that it told."""
    refusals: list[str] = field(default_factory=list)
    """What it told about leases and writes that were refused."""

    @property
    def pid(self) -> int:
        return self.process.pid

    def read(self) -> None:
        """Take in what it has told since the last time."""
        for message in self.process.read_messages():
            event = message.pop("event")
            self.renewals += event == "lease_renewed"
            if event in ("lease_lost", "write_refused"):
                self.refusals.append(f"{event}: {message.get('reason', message.get('what', ''))}")


class Crew:
    """Starts workers of one world on one database; a context manager that leaves none behind."""

    def __init__(self, url: str, world: World, *, queue: str, concurrency: int, say: Callable[[str], None]) -> None:
        self.members: list[Member] = []
        self._folder: Path = world.folder
        self._command = worker_command(f"{__package__}.tasks:engine", queues=(queue,), concurrency=concurrency, stop_timeout=STOP_SECONDS)
        self._environment = {**os.environ, **world.environment(), "OUTLAST_DATABASE_URL": url}
        self._say = say

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for member in self.members:
            member.process.close()

    def start(self) -> Member:
        """Start one more worker."""
        number = len(self.members) + 1
        with self._log(number).open("wb") as log:
            member = Member(number, WorkerProcess(self._command, output=log, environment=self._environment))
        self.members.append(member)
        return member

    def _log(self, number: int) -> Path:
        return self._folder / f"worker-{number}.log"

    def read(self) -> None:
        """Take in what the workers have told, and notice those that ended by themselves."""
        for member in self.members:
            member.read()
            if member.process.exit_code is not None and member.state in ("working", "thawed"):
                member.state = "ended"
                self._say(f"worker {member.number} (process {member.pid}) ended with exit code {member.process.exit_code}; {self.last_words(member)}")

    def last_words(self, member: Member) -> str:
        """Return the last line of a worker's log."""
        lines = self._log(member.number).read_text(errors="replace").strip().splitlines()
        return f"its log ends: {lines[-1]}" if lines else "its log is empty"

    def working(self) -> list[Member]:
        return [member for member in self.members if member.state == "working"]

    def find(self, pid: int | None) -> Member | None:
        return next((member for member in self.members if member.pid == pid), None)

    def ask_to_stop(self) -> None:
        """Ask all that live to stop in good order."""
        for member in self.members:
            if member.state in ("working", "thawed"):
                member.state = "stopped"
                member.process.stop()

    def all_ended(self) -> bool:
        return all(member.process.exit_code is not None for member in self.members)
