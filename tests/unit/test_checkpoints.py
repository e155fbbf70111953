"""The group commit by itself, over a store that refuses, breaks and waits exactly when a test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from outlast.database.transaction import Refusal, RefusedError
from outlast.errors import CommitUnknownError, LeaseLostError, SchemaError, UnavailableError
from outlast.limits import CHECKPOINTS_WAITING_MAX, GROUP_BYTES_MAX, GROUP_RECORDS_MAX
from outlast.native.checkpoints import Checkpoints, Landing
from outlast.native.history import Outcome, Record, RecordKind
from outlast.native.store import Hold, StepCheckpoint
from outlast.step_key import StepKey

NOW = datetime(2026, 3, 1, tzinfo=UTC)
Rule = Callable[[list[str]], list[str]]


def step(name: str, run_id: str | None = None, result: str = "1") -> StepCheckpoint:
    """Return a checkpoint that the tests call by its name."""
    record = Record(StepKey((), name), 0, RecordKind.STEP, Outcome.RESULT, "", 1, NOW, result, None, NOW)
    return StepCheckpoint(Hold(run_id or f"run of {name}", 1), 0, record)


def names(checkpoints: Sequence[Any]) -> list[str]:
    return [each.record.key.name for each in checkpoints]


class Bench:
    """Checkpoints over a script. Each commit waits until `gate` is open, then does what `rule` says: raise, or name what is refused."""

    def __init__(self) -> None:
        self.groups: list[list[str]] = []
        self.kept: set[str] = set()
        self.landed: list[tuple[str, Landing]] = []
        self.lost: list[str] = []
        self.rule: Rule = lambda group: []
        self.gate = asyncio.Event()
        self.gate.set()
        self.checkpoints = Checkpoints(self, self, 1, self._on_lost)  # type: ignore[arg-type]  # it plays both the calls and the store

    def _on_lost(self, reason: str) -> None:
        self.lost.append(reason)
        self.checkpoints.abandon()

    # --- calls
    async def write(self, name: str, function: Callable[[Any], Any]) -> Any:
        await asyncio.sleep(0)
        await self.gate.wait()
        return function(None)

    async def overlap(self, name: str, function: Callable[[Any], Any], *, is_reading: bool = False) -> Any:
        return (await self.write(name, function))()

    read = write

    # --- store
    def fence(self, tx: Any, worker_id: int) -> None: ...

    def commit_checkpoints(self, tx: Any, checkpoints: Sequence[Any], now: Any) -> Callable[[], list[Any]]:
        group = names(checkpoints)
        self.groups.append(group)
        refused = self.rule(group)
        self.kept |= set(group) - set(refused)
        return lambda: [each for each in checkpoints if each.record.key.name in refused]

    def find_kept(self, tx: Any, checkpoints: Sequence[Any]) -> list[Any]:
        return [each for each in checkpoints if each.record.key.name in self.kept]

    # --- what tests do
    def add(self, *checkpoints: StepCheckpoint) -> None:
        for each in checkpoints:
            name = each.record.key.name
            self.checkpoints.add(each, lambda landing, error, name=name: self.landed.append((name, landing)))  # type: ignore[misc]  # a lambda's default

    async def drain(self) -> dict[str, Landing]:
        await asyncio.wait_for(self.checkpoints.drain(), 20)
        assert len(dict(self.landed)) == len(self.landed), "a checkpoint was ended twice"
        return dict(self.landed)


def played(scenario: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
    async def play() -> None:
        await scenario(Bench())

    asyncio.run(play())


async def until(holds: Callable[[], Any]) -> None:
    """Let the loop turn until something holds."""
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110 - only asking again and again tells
            await asyncio.sleep(0)


def refusing(refusal: Refusal, *culprits: str) -> Rule:
    def rule(group: list[str]) -> list[str]:
        if set(group) & set(culprits):
            raise RefusedError(refusal, "no")
        return []

    return rule


@pytest.mark.parametrize(("refusal", "landing"), [(Refusal.DUPLICATE, Landing.REFUSED), (Refusal.DATA, Landing.BAD), (Refusal.OTHER, Landing.BAD)])
def test_a_group_is_halved_until_the_culprit_stands_alone(refusal: Refusal, landing: Landing) -> None:
    """Two culprits among sixteen are found in a few commits, and the other fourteen are kept."""

    async def scenario(bench: Bench) -> None:
        bench.rule = refusing(refusal, "c3", "c12")
        bench.add(*(step(f"c{number}") for number in range(16)))
        landed = await bench.drain()
        assert {name for name, each in landed.items() if each is landing} == {"c3", "c12"}
        assert bench.kept == {f"c{number}" for number in range(16)} - {"c3", "c12"}
        assert len(bench.groups) <= 17

    played(scenario)


def test_a_fault_that_no_database_reports_is_its_own_checkpoints_alone() -> None:
    """What cannot even be sent ends as bad, and whoever waits beside it or behind it is not forgotten."""

    async def scenario(bench: Bench) -> None:
        def rule(group: list[str]) -> list[str]:
            if "bad" in group:
                raise TypeError("it cannot be encoded")
            return []

        bench.rule = rule
        bench.add(step("a"), step("bad"), step("b"))
        await asyncio.sleep(0)
        bench.add(step("later"))
        assert await bench.drain() == {"a": Landing.KEPT, "bad": Landing.BAD, "b": Landing.KEPT, "later": Landing.KEPT}

    played(scenario)


def test_records_of_a_run_set_aside_stay_in_their_order() -> None:
    """Those in its group, those that gathered before it was set aside and those that come later are written one by one, in the order of their making."""

    async def scenario(bench: Bench) -> None:
        busy, written = asyncio.Event(), []

        def rule(group: list[str]) -> list[str]:
            if "r1" in group and not busy.is_set():
                raise RefusedError(Refusal.BUSY, "a stranger has it")
            written.extend(name for name in group if name.startswith("r"))
            return []

        bench.rule = rule
        bench.add(step("r1", "one"), step("a"))
        await asyncio.sleep(0)
        bench.add(step("r2", "one"))  # gathers while the group with r1 is under way
        await until(lambda: bench.checkpoints._aside)
        bench.add(step("r3", "one"), step("b"))
        await until(lambda: {"a", "b"} <= bench.kept)
        assert not written, "a record was written before an older one of its run"
        busy.set()
        assert set((await bench.drain()).values()) == {Landing.KEPT}
        assert written == ["r1", "r2", "r3"]

    played(scenario)


def test_what_is_refused_after_a_commit_in_doubt_is_looked_for() -> None:
    """A server that carries out a doubtful commit after the rows were read back makes nobody a stranger to his own record."""

    async def scenario(bench: Bench) -> None:
        tries: list[list[str]] = []

        def rule(group: list[str]) -> list[str]:
            tries.append(group)
            if len(tries) == 1:
                raise CommitUnknownError
            bench.kept |= {"mine"}  # the first commit comes about only now
            if len(group) > 1 or group == ["mine"]:
                raise RefusedError(Refusal.DUPLICATE, "it is there")
            return ["other"]

        bench.rule = rule
        bench.add(step("mine"), step("other"))
        assert await bench.drain() == {"mine": Landing.KEPT, "other": Landing.REFUSED}

    played(scenario)


def test_after_a_doubtful_commit_only_what_is_not_there_is_written_again() -> None:
    """What was read back is kept and is not sent once more."""

    async def scenario(bench: Bench) -> None:
        def rule(group: list[str]) -> list[str]:
            if len(bench.groups) == 1:
                bench.kept.add("there")
                raise CommitUnknownError
            return []

        bench.rule = rule
        bench.add(step("there"), step("missing"))
        assert set((await bench.drain()).values()) == {Landing.KEPT}
        assert bench.groups == [["there", "missing"], ["missing"]]

    played(scenario)


@pytest.mark.parametrize("error", [UnavailableError(), SchemaError(), RefusedError(Refusal.FULL, "the disk is full"), RefusedError(Refusal.READ_ONLY, "")])
def test_an_outage_is_ridden_out(error: Exception) -> None:
    """A database that answers nobody costs time only: the same group is tried again as a whole."""

    async def scenario(bench: Bench) -> None:
        def rule(group: list[str]) -> list[str]:
            if len(bench.groups) < 3:
                raise error
            return []

        bench.rule = rule
        bench.add(step("a"), step("b"))
        assert set((await bench.drain()).values()) == {Landing.KEPT}
        assert bench.groups == [["a", "b"]] * 3

    played(scenario)


def test_the_fence_ends_everything_at_once() -> None:
    """The group, what waits behind it, what is set aside and what comes later are all told that the lease is lost; the worker hears it once."""

    async def scenario(bench: Bench) -> None:
        def rule(group: list[str]) -> list[str]:
            if "busy" in group:
                raise RefusedError(Refusal.BUSY, "")
            if "fatal" in group:
                raise LeaseLostError
            return []

        bench.rule = rule
        bench.add(step("busy", "one"))
        await until(lambda: bench.checkpoints._aside)
        bench.gate.clear()
        bench.add(step("behind", "one"), step("fatal"), step("beside"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        bench.add(step("waiting"))
        bench.gate.set()
        await bench.drain()
        bench.add(step("late"))
        await asyncio.sleep(0)
        assert dict(bench.landed) == dict.fromkeys(["busy", "behind", "fatal", "beside", "waiting", "late"], Landing.LOST)
        assert len(bench.lost) == 1
        assert not bench.kept

    played(scenario)


def test_abandoning_ends_a_flush_that_hangs() -> None:
    """Whoever waits for a commit that never answers is told when the lease is lost."""

    async def scenario(bench: Bench) -> None:
        bench.gate.clear()
        bench.add(step("hanging"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        bench.add(step("waiting"))
        bench.checkpoints.abandon()
        assert await bench.drain() == {"hanging": Landing.LOST, "waiting": Landing.LOST}

    played(scenario)


def test_groups_are_bounded_by_records_and_bytes() -> None:
    """One transaction never carries more than the limits, but a single large record travels all the same."""

    async def scenario(bench: Bench) -> None:
        bench.add(*(step(f"s{number}") for number in range(GROUP_RECORDS_MAX + 100)))
        await bench.drain()
        assert max(map(len, bench.groups)) == GROUP_RECORDS_MAX
        bench.groups.clear()
        half = "x" * (GROUP_BYTES_MAX // 2)
        bench.add(*(step(f"l{number}", result=half) for number in range(4)), step("huge", result=half * 3), step("small"))
        await bench.drain()
        assert bench.groups == [["l0"], ["l1"], ["l2"], ["l3"], ["huge"], ["small"]]

    played(scenario)


def test_there_is_no_room_while_too_much_waits() -> None:
    """At the limit the worker claims nothing more, and goes on when the pile is smaller."""

    async def scenario(bench: Bench) -> None:
        bench.gate.clear()
        bench.add(*(step(f"s{number}") for number in range(CHECKPOINTS_WAITING_MAX - 1)))
        assert bench.checkpoints.has_room
        bench.add(step("last"))
        assert not bench.checkpoints.has_room
        bench.gate.set()
        await asyncio.wait_for(bench.checkpoints.wait_for_room(), 20)
        assert len(bench.landed) < CHECKPOINTS_WAITING_MAX
        await bench.drain()

    played(scenario)
