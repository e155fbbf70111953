"""The gate for a release: programs that are stopped after any record and replayed are handed the same things again."""

import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outlast.errors import HistoryMismatchError
from outlast.failure import type_name
from outlast.run import RunStatus
from outlast.step_key import StepKey

from .programs import Call, Gather, Node, Sequence, Show, Sight, nodes, program
from .replay_world import EPOCH, World, stage

MISMATCH = type_name(HistoryMismatchError)
EXAMPLES = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


class Trial:
    """One run of one program, whose executions are compared with each other."""

    def __init__(self, node: Node, seed: int) -> None:
        self.show = Show(node, random.Random(seed))
        self.world = World(program, chance=random.Random(seed), services=self.show)
        self.seen = Sight()

    async def execute(self, limit: int | None = None) -> bool:
        """Execute once; what it sees begins with what executions before it have seen."""
        kept = self.world.kept
        before = (kept.attempts, kept.retired_seq)
        if kept.status is RunStatus.WAITING:
            self.world.loop.seconds = max(self.world.loop.seconds, (kept.due_at - EPOCH).total_seconds())
        sight = self.show.sight = Sight()
        has_crashed = await self.world.execute(limit=limit)
        if kept.error is not None:
            assert kept.error.type != MISMATCH, kept.error
        _check_agreement(self.seen.delivered, sight.delivered, has_crashed)
        for path, seen in self.seen.branches.items():
            _check_agreement(seen, sight.branches[path], has_crashed)
        if (kept.attempts, kept.retired_seq) != before:
            self.seen = Sight()
        elif not has_crashed:
            self.seen = sight
        else:
            self.seen.extend(sight)
        return has_crashed


def _check_agreement(before: list[Any], now: list[Any], has_crashed: bool) -> None:
    """What one execution saw is what the other saw too; only one that crashed may have seen less."""
    both = min(len(before), len(now))
    assert before[:both] == now[:both]
    assert has_crashed or both == len(before)


async def run_crashing(node: Node, seed: int, crashes: list[int]) -> Any:
    """Execute a program to its end, with a crash after each of these numbers of checkpoints, and once more from all that was kept."""
    trial = Trial(node, seed)
    kept = trial.world.kept
    for number in crashes:
        if kept.status.is_terminal:
            break
        await trial.execute(limit=kept.count + number)
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
@given(nodes, st.integers(0, 1 << 20), st.lists(st.integers(1, 6), max_size=6))
def test_crashed_programs_are_handed_the_same_again(node, seed, crashes):
    """Whatever crashes and delays there are, no execution contradicts an earlier one, and none ends as changed code."""
    stage(lambda: run_crashing(node, seed, crashes))


@EXAMPLES
@given(nodes, st.integers(0, 1 << 20))
def test_each_crash_point(node, seed):
    """A program that is stopped after its first record, after its second, and so on, goes the same way each time."""
    count = stage(lambda: run_crashing(node, seed, []))
    for point in range(1, count + 1):
        stage(lambda point=point: run_crashing(node, seed, [point]))
    stage(lambda: run_crashing(node, seed, [1] * count))
