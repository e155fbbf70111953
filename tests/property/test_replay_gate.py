"""The gate for a release: programs that are stopped after any record and replayed are handed the same things again."""

import random
from collections import Counter
from datetime import datetime
from typing import Any
from weakref import WeakKeyDictionary

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outlast.context import Context
from outlast.errors import HistoryMismatchError
from outlast.failure import type_name
from outlast.native.history import Record
from outlast.native.replay import Replay
from outlast.run import RunStatus
from outlast.step_key import StepKey

from .programs import Call, Gather, Node, Race, Sequence, Show, Sight, nodes, program
from .replay_world import EPOCH, World, stage

MISMATCH = type_name(HistoryMismatchError)
EXAMPLES = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))


class Trial:
    """One run of one program, whose executions are compared with each other."""

    def __init__(self, node: Node, seed: int, *, checks_order: bool = True) -> None:
        self.checks_order = checks_order
        self.show = Show(node, random.Random(seed))
        self.world = World(program, chance=random.Random(seed), services=self.show)
        self.seen = Sight()

    async def execute(self, *, limit: int | None = None, drains_after: int | None = None) -> None:
        """Execute once; what it sees begins with what executions before it have seen."""
        kept = self.world.kept
        before = (kept.attempts, kept.retired_seq)
        if kept.status is RunStatus.WAITING and kept.due_at is not None:
            self.world.loop.seconds = max(self.world.loop.seconds, (kept.due_at - EPOCH).total_seconds())
        sight = self.show.sight = Sight()
        has_crashed = await self.world.execute(limit=limit, drains_after=drains_after)
        if kept.error is not None:
            assert kept.error.type != MISMATCH, kept.error
        if self.checks_order:
            _check_agreement(self.seen.delivered, sight.delivered, has_crashed)
        for path, seen in self.seen.branches.items():
            now = sight.branches[path]
            _check_agreement(*((seen, now) if self.checks_order else (_timeless(seen), _timeless(now))), has_crashed)
        if (kept.attempts, kept.retired_seq) != before:
            self.seen = Sight()
        elif not has_crashed:
            self.seen = sight
        else:
            self.seen.extend(sight)


def _check_agreement(before: list[Any], now: list[Any], has_crashed: bool) -> None:
    """What one execution saw is what the other saw too; only one that crashed may have seen less."""
    both = min(len(before), len(now))
    assert before[:both] == now[:both]
    assert has_crashed or both == len(before)


def _timeless(notes: list[Any]) -> list[Any]:
    """Leave out instants: `now()` follows the order in which records are handed over in all branches."""
    return [[part for part in note if not isinstance(part, datetime)] for note in notes]


async def run_stopping(node: Node, seed: int, stops: list[int], *, checks_order: bool = True) -> int:
    """Execute a program to its end, and once more from all that was kept.

    Each stop ends one execution: by a crash after so many checkpoints, or, where it is negative, by a worker that begins
    to stop after so many loop turns.

    Returns how many checkpoints that took.
    """
    trial = Trial(node, seed, checks_order=checks_order)
    kept = trial.world.kept
    for number in stops:
        if kept.status.is_terminal:
            break
        await (trial.execute(limit=kept.count + number) if number > 0 else trial.execute(drains_after=-number))
    while not kept.status.is_terminal:
        await trial.execute()
    count, output = kept.count, kept.output
    if kept.status is RunStatus.SUCCEEDED:
        kept.status = RunStatus.PENDING
        await trial.execute()
        assert kept.output == output
    trial.world.performer.close()
    return count


@EXAMPLES
@given(nodes, st.integers(0, 1 << 20), st.lists(st.one_of(st.integers(1, 6), st.integers(-60, 0)), max_size=6))
def test_stopped_programs_are_handed_the_same_again(node, seed, stops):
    """Whatever crashes, stops and delays there are, no execution contradicts an earlier one, and none ends as changed code."""
    stage(lambda: run_stopping(node, seed, stops))


@settings(EXAMPLES, max_examples=30)
@given(nodes, st.integers(0, 1 << 20))
def test_each_crash_point(node, seed):
    """A program that is stopped after its first record, after its second, and so on, goes the same way each time."""
    count = stage(lambda: run_stopping(node, seed, []))
    for point in range(1, count + 1):
        stage(lambda point=point: run_stopping(node, seed, [point]))
    stage(lambda: run_stopping(node, seed, [1] * count))


# --- the gate can fail: what holds it up is taken away ----------------------------------------------------------------------
LINES = Gather(tuple(Sequence((Call("a"), Call("a"), Call("a"))) for _ in range(3)))
RACE = Sequence((Race((Call("a"), Call("b"), Call("c"))), Call("a")))


def contradictions(node: Node, *, checks_order: bool = True, seeds: int = 6) -> int:
    """Return in how many of a program's crashed runs an execution contradicts an earlier one."""
    found = 0
    for seed in range(seeds):
        for point in range(1, 9):
            try:
                stage(lambda seed=seed, point=point: run_stopping(node, seed, [point, 1, 1], checks_order=checks_order))
            except AssertionError:
                found += 1
    return found


@pytest.fixture
def without_order(monkeypatch):
    """Records are handed over in no order, as by an engine that answers whatever is asked."""

    def any_record(replay: Replay) -> Record | None:
        while replay._ready:
            _, record = replay._ready.pop()
            if record.key not in replay._withdrawn:
                return record
        return None

    monkeypatch.setattr(Replay, "next_record", any_record)


@pytest.fixture
def without_paths(monkeypatch):
    """Calls are numbered by name in the order in which the body makes them, whatever branch they are in."""
    numbers: WeakKeyDictionary[Context[Any], Counter[str]] = WeakKeyDictionary()

    def numbered(context: Context[Any], name: str) -> StepKey:
        counts = numbers.setdefault(context, Counter())
        counts[name] += 1
        return StepKey((), name, counts[name] - 1)

    monkeypatch.setattr(Context, "_key", numbered)


def test_nothing_contradicts_with_paths_and_order():
    """The programs of the tests below pass the gate."""
    assert contradictions(LINES) == contradictions(RACE) == 0


def test_numbering_by_call_order_gives_branches_the_results_of_others(without_paths, without_order):
    """Without paths the gate fails: a quicker branch takes what another one had been handed."""
    assert contradictions(LINES, checks_order=False) > 0


def test_paths_alone_give_each_branch_its_own_results(without_order):
    """Values do not depend on the order in which they are handed over."""
    assert contradictions(LINES, checks_order=False) == 0


def test_without_order_races_end_otherwise(without_order):
    """Without the order of records the gate fails: another branch wins at the replay."""
    assert contradictions(RACE, checks_order=False) > 0
