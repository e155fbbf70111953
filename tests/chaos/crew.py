"""Crew: the processes of one trial, started, killed, frozen and started again. Each is a group of its own and ended by its number only."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from .journal import Journal
from .places import Place, SqlitePlace, wait_until

PROJECT = Path(__file__).parents[2]
END_SECONDS_MAX = 30.0
FREEZE_TRIES = 40
RESTART_SECONDS = 0.5


class Member:
    """One slot of the crew: a worker or a client, which is a new process each time that it is started."""

    def __init__(self, slot: str, program: str, arguments: list[str], environment: dict[str, str]) -> None:
        self.slot = slot
        self.program = program
        self.arguments = arguments
        self.environment = environment
        self.lives = 0
        self.process: subprocess.Popen[bytes] | None = None
        self.frozen_since: float | None = None
        self.restart_at = 0.0
        self.is_wanted = True
        """It is started again when it has ended."""

    @property
    def is_up(self) -> bool:
        return self.process is not None and self.process.poll() is None


class Crew:
    """All members. What is done to them is noted in the journal of faults, with the proof that it happened."""

    def __init__(self, place: Place, folder: Path, journal: Journal) -> None:
        self._place = place
        self._folder = folder
        self._journal = journal
        self.members: dict[str, Member] = {}

    def add(self, slot: str, program: str, *arguments: str, environment: dict[str, str] | None = None) -> Member:
        member = self.members[slot] = Member(slot, program, list(arguments), environment or {})
        self.start(member)
        return member

    def start(self, member: Member) -> None:
        assert not member.is_up, f"{member.slot} was to be started twice"
        member.lives += 1
        member.is_wanted = True
        name = f"{member.slot}-{member.lives}"
        paths = os.pathsep.join([str(PROJECT / "src"), str(PROJECT), os.environ.get("PYTHONPATH", "")])
        command = [sys.executable, "-m", f"tests.chaos.{member.program}", self._place.url(member.slot), str(self._folder / f"{name}.jsonl"), "--name", name]
        with (self._folder / f"{name}.log").open("wb") as log:
            member.process = subprocess.Popen(
                [*command, *member.arguments],
                cwd=PROJECT,
                env={**os.environ, "PYTHONPATH": paths, **member.environment},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._journal.add("started", slot=member.slot, name=name, child=member.process.pid)

    def tend(self) -> None:
        """Note who has ended, and start again whose time has come."""
        for member in self.members.values():
            if member.process is not None and member.process.poll() is not None:
                self._note_exit(member)
            if member.process is None and member.is_wanted and time.monotonic() >= member.restart_at:
                self.start(member)

    def _note_exit(self, member: Member) -> None:
        process, member.process = member.process, None
        if process is not None:
            if process.stdin is not None:
                process.stdin.close()
            member.frozen_since = None
            member.restart_at = time.monotonic() + RESTART_SECONDS
            self._journal.add("exited", slot=member.slot, name=f"{member.slot}-{member.lives}", child=process.pid, code=process.returncode)

    def kill(self, member: Member, *, comes_back: bool = True) -> bool:
        """Kill a process for certain and wait until it is gone; return whether it was there."""
        member.is_wanted = comes_back
        if not member.is_up or member.process is None:
            return False
        pid = member.process.pid
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        member.process.wait(END_SECONDS_MAX)
        self._journal.add("fault", fault=f"kill_{member.program}", slot=member.slot, child=pid, landed=True)
        self._note_exit(member)
        return True

    def ask_to_stop(self, member: Member) -> bool:
        if not member.is_up or member.process is None or member.frozen_since is not None:
            return False
        member.process.send_signal(signal.SIGTERM)
        self._journal.add("fault", fault="stop_executor", slot=member.slot, child=member.process.pid, landed=True)
        return True

    def freeze(self, member: Member) -> bool:
        """Stop a process where it stands, but not inside a write to a SQLite file, which it would block for everybody."""
        for _ in range(FREEZE_TRIES):
            if not member.is_up or member.process is None:
                return False
            member.process.send_signal(signal.SIGSTOP)
            if not isinstance(self._place, SqlitePlace) or self._place.is_free():
                member.frozen_since = time.monotonic()
                self._journal.add("fault", fault="freeze_executor", slot=member.slot, child=member.process.pid, landed=True)
                return True
            member.process.send_signal(signal.SIGCONT)
            time.sleep(0.02)
        return False

    def thaw(self, member: Member) -> None:
        if member.frozen_since is not None and member.process is not None:
            member.frozen_since = None
            with contextlib.suppress(ProcessLookupError):
                member.process.send_signal(signal.SIGCONT)
            self._journal.add("thawed", slot=member.slot, child=member.process.pid)

    def workers(self) -> list[Member]:
        return [member for member in self.members.values() if member.program == "executor"]

    def clients(self) -> list[Member]:
        return [member for member in self.members.values() if member.program == "client"]

    def end(self, members: list[Member]) -> None:
        """Stop these members politely, and those that do not end in time by force; nobody comes back."""
        for member in members:
            member.is_wanted = False
            self.thaw(member)
            if member.is_up and member.process is not None:
                member.process.send_signal(signal.SIGTERM)
        wait_until(lambda: not any(member.is_up for member in members), END_SECONDS_MAX)
        for member in members:
            if member.is_up:
                self._journal.add("did_not_stop", slot=member.slot)
                self.kill(member, comes_back=False)
        self.tend()

    def close(self) -> None:
        """Kill whatever is left; they may be frozen."""
        for member in self.members.values():
            self.kill(member, comes_back=False)
