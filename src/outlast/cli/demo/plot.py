"""Plot: what happens to the workers in the middle of their work. One is killed, one is frozen and thawed again.

It looks at the journal and at what workers tell, not at the engine's tables, so that what it sees happen has happened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from outlast.clock import SystemClock

from .crew import Crew, Member
from .watch import Watch
from .world import Entry, World

POLL_SECONDS = 0.1
RESTART_SECONDS = 1.0
FREEZES_MAX = 10
THAW_RETRY_SECONDS = 2.0
"""If nobody else renews its lease for so long after a freeze, the frozen worker holds the database's file."""
TAKEOVER_SECONDS_MAX = 30.0
REFUSAL_SECONDS_MAX = 10.0
INTERESTING_SHARE = (0.08, 0.75)
"""A copy within this share is in the middle: something is done, and something is left."""


@dataclass(frozen=True)
class Interruption:
    """A worker taken out of its work."""

    member: Member
    how: str
    """`killed` or `frozen`."""
    at: float
    """Seconds since the epoch, as in the journal."""
    open: tuple[Entry, ...]
    """The steps that it had begun and not ended."""


@dataclass(frozen=True)
class Continuation:
    """Where an interrupted step went on."""

    interruption: Interruption
    cut_off: Entry
    again: Entry | None
    """None if it never did."""
    byte: int

    @property
    def seconds(self) -> float:
        return self.again.at - self.interruption.at if self.again else float("inf")


class Plot:
    """Carries out the interruptions, and keeps what it did."""

    def __init__(self, world: World, crew: Crew, watch: Watch, say: Callable[[str], None]) -> None:
        self._world = world
        self._crew = crew
        self._watch = watch
        self._say = say
        self.interruptions: list[Interruption] = []
        self.frozen_seconds = 0.0
        self.frozen: Member | None = None
        self.told_steps = 0
        """How many of the thawed worker's steps ended when it was told that they are no longer its own."""

    async def carry_out(self) -> None:
        """Kill one worker and freeze another, each in the middle of a copy; return early if all work is over before."""
        victim = await self._find_victim()
        if victim is None:
            return
        self._kill(victim)
        await asyncio.sleep(RESTART_SECONDS)
        self._start_replacement(victim)
        frozen = await self._find_victim()
        if frozen is not None:
            await self._freeze(frozen)
        if self.frozen is not None:
            await self._thaw(self.frozen)

    async def _find_victim(self) -> Member | None:
        """Wait for a worker that is in the middle of a copy, while another works that can take over."""
        while not self._watch.is_over:
            if len(self._crew.working()) > 1:
                for file in sorted(self._watch.running(), key=lambda file: -file.file.size):
                    share = file.done / file.file.size if file.file.size else 0.0
                    member = self._crew.find(file.pid)
                    if file.step == "copy" and INTERESTING_SHARE[0] < share < INTERESTING_SHARE[1] and member in self._crew.working():
                        return member
            await asyncio.sleep(POLL_SECONDS)
        return None

    def _kill(self, member: Member) -> None:
        member.process.kill()
        member.state = "killed"
        self._note(member, "killed")

    def _start_replacement(self, gone: Member) -> None:
        member = self._crew.start()
        self._say(f"worker {member.number} (process {member.pid}) started in the place of worker {gone.number}")

    def _note(self, member: Member, how: str) -> Interruption:
        """Keep what the worker was doing; it does nothing any more, so the journal holds all that it said."""
        interruption = Interruption(member, how, _now(), tuple(open_steps(self._world.journal.read(), member.pid)))
        self.interruptions.append(interruption)
        signal = "SIGKILL" if how == "killed" else "SIGSTOP"
        self._say(f"worker {member.number} (process {member.pid}) {how} with {signal} in the middle of {len(interruption.open)} steps")
        return interruption

    async def _freeze(self, member: Member) -> None:
        """Freeze a worker outside of a write: inside one it would keep everybody from writing, and a supervisor would have to kill it."""
        for _ in range(FREEZES_MAX):
            member.process.freeze()
            if await self._others_renew(member):
                break
            member.process.thaw()
            self._say(f"worker {member.number} was frozen inside a write: thawed, and frozen again")
            await asyncio.sleep(POLL_SECONDS)
        else:
            self._say(f"worker {member.number} could not be frozen outside of a write")
            return
        member.state = "frozen"
        self.frozen = member
        interruption = self._note(member, "frozen")
        self._start_replacement(member)
        await self._until(lambda: self._all_went_on(interruption), TAKEOVER_SECONDS_MAX)

    async def _others_renew(self, frozen: Member) -> bool:
        """Tell whether others can write: one of them renews its lease twice, of which the second has begun after the freeze."""
        self._crew.read()
        before = {member.number: member.renewals for member in self._crew.working() if member is not frozen}

        def has_renewed_twice() -> bool:
            self._crew.read()
            return any(member.renewals >= before[member.number] + 2 for member in self._crew.working() if member.number in before)

        return await self._until(has_renewed_twice, THAW_RETRY_SECONDS)

    def _all_went_on(self, interruption: Interruption) -> bool:
        journal = self._world.journal.read()
        return all(went_on(journal, interruption, entry).again for entry in interruption.open)

    async def _thaw(self, member: Member) -> None:
        """Let the frozen worker go on, which believes that it still holds its runs, and wait until it is told otherwise."""
        self.frozen_seconds = _now() - self.interruptions[-1].at
        member.process.thaw()
        member.state = "thawed"
        self._say(f"worker {member.number} (process {member.pid}) thawed with SIGCONT after {self.frozen_seconds:.1f} s")
        await self._until(lambda: self._was_refused(member), REFUSAL_SECONDS_MAX)
        for refusal in member.refusals:
            self._say(f"worker {member.number} says: {refusal}")
        interruption = self.interruptions[-1]
        await self._until(lambda: self._told(interruption) == len(interruption.open), REFUSAL_SECONDS_MAX)
        self.told_steps = self._told(interruption)
        member.state = "stopped"
        member.process.stop()

    def _was_refused(self, member: Member) -> bool:
        self._crew.read()
        return bool(member.refusals)

    def _told(self, interruption: Interruption) -> int:
        """Return how many of the interrupted steps have noticed that they must stop, or that what they do is refused."""
        still_open = open_steps(self._world.journal.read(), interruption.member.pid)
        return sum(entry not in still_open for entry in interruption.open)

    async def _until(self, is_true: Callable[[], bool], seconds: float) -> bool:
        """Wait for something to become true; return whether it did in time."""
        end = SystemClock().monotonic() + seconds
        while not is_true():
            if SystemClock().monotonic() > end:
                return False
            await asyncio.sleep(POLL_SECONDS)
        return True


def open_steps(journal: list[Entry], pid: int) -> list[Entry]:
    """Return the steps that a process began and said nothing of afterwards."""
    open_: dict[tuple[str, str, int], Entry] = {}
    for entry in journal:
        if entry.pid != pid:
            continue
        key = (entry.run, entry.step, entry.token)
        if entry.event == "began":
            open_[key] = entry
        elif entry.event != "went_on":
            open_.pop(key, None)
    return list(open_.values())


def went_on(journal: list[Entry], interruption: Interruption, cut_off: Entry) -> Continuation:
    """Find where a step that was cut off went on: under a newer token, at which byte."""
    later = [entry for entry in journal if entry.run == cut_off.run and entry.token > cut_off.token]
    again = next((entry for entry in later if entry.event == "began"), None)
    byte = next((entry.byte for entry in later if entry.event == "went_on"), 0)
    return Continuation(interruption, cut_off, again, byte)


def _now() -> float:
    return SystemClock().now().timestamp()
