"""Changed code: it is stopped before anything is performed, named, and harms nothing; what is free to change passes."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outlast.errors import HistoryMismatchError
from outlast.failure import type_name
from outlast.run import RunStatus

from .programs import Call, Gather, Node, Race, Sequence, Show, Sleep, Try, program
from .replay_world import Kept, World, stage

MISMATCH = type_name(HistoryMismatchError)
EXAMPLES = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


class Trial:
    """A run of one program that crashed after some checkpoints, and what another program makes of its history."""

    def __init__(self, before: Node, records: int, after: Node, seed: int = 0) -> None:
        self.performed_before = self.performed = 0
        self.handed: list[tuple[str, object]] = []
        self.kept: Kept = stage(lambda: self._run(before, records, after, seed))

    async def _run(self, before: Node, records: int, after: Node, seed: int) -> Kept:
        show = Show(before, random.Random(seed))
        world = World(program, chance=random.Random(seed), services=show)
        await world.execute(limit=records)
        self.performed_before, show.program = show.performed, after
        show.sight.delivered.clear()
        kept = await world.finish()
        self.performed, self.handed = show.performed, show.sight.delivered
        world.performer.close()
        return kept

    @property
    def is_stopped(self) -> bool:
        """True when it ended as changed code and nothing was performed by the new program."""
        is_mismatch = self.kept.error is not None and self.kept.error.type == MISMATCH
        assert not is_mismatch or self.performed == self.performed_before, "something was performed by code that does not fit"
        assert not is_mismatch or (self.kept.status is RunStatus.FAILED and self.kept.attempts == 0)
        return is_mismatch

    @property
    def has_passed(self) -> bool:
        return self.kept.status is RunStatus.SUCCEEDED and not self.is_stopped


def line(*names: str) -> tuple[Call, ...]:
    return tuple(Call(name) for name in names)


LETTERS = "abcdef"
lines = st.integers(2, 6).map(lambda count: line(*LETTERS[:count]))
places = st.integers(0, 5)


def wrapped(parts: tuple[Node, ...], is_branch: bool) -> Node:
    """The same calls in the body itself, or in a branch beside another and with something behind."""
    sequence = Sequence(parts)
    return Sequence((Gather((Call("beside"), sequence)), Call("behind"))) if is_branch else sequence


def cut(calls: tuple[Call, ...], is_branch: bool, data: st.DataObject) -> tuple[int, int]:
    """Return after how many records to crash, so that at least that many calls of the line, less one in a branch, are recorded."""
    recorded = data.draw(st.integers(1, len(calls)))
    return recorded, recorded + is_branch


@EXAMPLES
@given(lines, st.booleans(), places, st.data())
def test_inserted_call_is_stopped(calls, is_branch, place, data):
    """A call in front of one that is recorded stops the run; declared as inserted it passes."""
    recorded, limit = cut(calls, is_branch, data)
    place %= recorded
    changed = (*calls[:place], Call("new"), *calls[place:])
    trial = Trial(wrapped(calls, is_branch), limit, wrapped(changed, is_branch), place)
    assert trial.is_stopped
    declared = (*calls[:place], Call("new", is_inserted=True), *calls[place:])
    assert Trial(wrapped(calls, is_branch), limit, wrapped(declared, is_branch), place).has_passed


@EXAMPLES
@given(lines, st.booleans(), places, st.data())
def test_removed_or_renamed_call_is_stopped(calls, is_branch, place, data):
    """A recorded call that the new code does not make stops the run, whatever it does instead."""
    recorded, limit = cut(calls, is_branch, data)
    place %= recorded
    removed, renamed = (*calls[:place], *calls[place + 1 :]), (*calls[:place], Call("other"), *calls[place + 1 :])
    for changed in (removed, renamed):
        assert Trial(wrapped(calls, is_branch), limit, wrapped(changed, is_branch), place).is_stopped


@EXAMPLES
@given(lines, places, places, st.data())
def test_moved_call_is_stopped_or_harmless(calls, first, second, data):
    """A recorded call behind one that is not recorded stops the run; two recorded ones that are swapped get their own results."""
    recorded, limit = cut(calls, False, data)
    first, second = sorted((first % len(calls), second % len(calls)))
    swapped = list(calls)
    swapped[first], swapped[second] = swapped[second], swapped[first]
    trial = Trial(Sequence(calls), limit, Sequence(tuple(swapped)))
    if first < recorded <= second:
        assert trial.is_stopped
    else:
        assert trial.has_passed
        assert [name for name, _ in trial.handed] == [call.name for call in swapped]
        assert all(name == value[0] for name, value in trial.handed)


@EXAMPLES
@given(lines, st.booleans(), st.data())
def test_appended_calls_are_free(calls, is_branch, data):
    """What is added at the end of a path needs no declaration, however much is recorded."""
    _, limit = cut(calls, is_branch, data)
    trial = Trial(wrapped(calls, is_branch), limit, wrapped((*calls, Call("new"), Call("newer")), is_branch))
    assert trial.has_passed


@EXAMPLES
@given(st.lists(st.integers(1, 3), min_size=2, max_size=4), st.integers(0, 3), st.integers(0, 1 << 10))
def test_removed_branch_is_stopped(sizes, gone, seed):
    """A branch with records that the new code does not begin stops the run before the code behind it performs anything."""
    branches = [Sequence(line(*"abc"[:size])) for size in sizes]
    gone %= len(branches)
    fewer = branches[:gone] + branches[gone + 1 :]
    before = Sequence((Gather(tuple(branches)), Call("behind")))
    after = Sequence((Gather(tuple(fewer)), Call("behind"), Call("further")))
    trial = Trial(before, sum(sizes), after, seed)
    if sizes[gone:] != [*sizes[gone + 1 :], 0]:
        assert trial.is_stopped


def test_removed_branch_is_stopped_although_nothing_is_awaited_behind_it():
    """The new code ends without asking for what a branch had recorded."""
    assert Trial(Gather(line("a", "b")), 2, Gather(line("a"))).is_stopped


def test_body_that_raises_before_it_asked_for_everything_is_stopped():
    """An error of changed code is no failure of the run: it counts no attempt, and both are named."""
    before, after = Sequence((Try(Call("a", is_final=True), Call("b")), Call("c"))), Sequence((Call("a", is_final=True), Call("c")))
    trial = Trial(before, 2, after)
    assert trial.is_stopped
    assert trial.kept.error is not None
    assert trial.kept.error.cause is not None
    assert trial.kept.error.cause.type.endswith("StepFailedError")


@pytest.mark.parametrize("between", [lambda calls: Sequence(calls), lambda calls: Gather(calls)])
def test_other_arguments_of_a_repeated_name_are_stopped(between: Callable[[tuple[Node, ...]], Node]):
    """Nobody can tell which of two calls of one name a record is of once the arguments differ."""
    calls = (Call("a"), Call("a"), Call("b"))
    changed = (Call("a"), Call("a", failures=1), Call("b"))
    assert Trial(between(calls), 3, between(changed)).is_stopped


def test_other_arguments_of_a_name_that_occurs_once_are_a_warning():
    """The recorded result is used, and the run says so."""
    trial = Trial(Sequence(line("a", "b")), 2, Sequence((Call("a", failures=1), Call("b"))))
    assert trial.has_passed
    assert trial.kept.warnings == ["step a was recorded with other arguments; its recorded result was used"]


def test_a_step_that_became_a_sleep_is_stopped():
    """What is found has to be of the same kind."""
    assert Trial(Sequence((Call("sleep"),)), 1, Sequence((Sleep(1.0),))).is_stopped


def test_withdrawn_call_that_is_awaited_now_is_stopped():
    """A call that the history has as given up is neither performed again nor awaited for ever."""
    slow = Call("slow", failures=1, retry_seconds=1.5)
    before = Sequence((Race((Call("quick"), slow)), Call("behind")))
    trial = Trial(before, 4, Sequence((Gather((Call("quick"), slow)), Call("behind"))))
    assert trial.is_stopped


def test_what_is_inserted_is_performed_before_the_rest_is_judged():
    """An inserted call that is not done keeps new calls of other branches waiting, because the code may still prove to be changed."""
    before = Gather((Sequence(line("a", "b")), Sequence(line("c"))))
    inserted = Call("new", failures=2, retry_seconds=3.0, is_inserted=True)
    after = Gather((Sequence((Call("a"), inserted, Call("b"))), Sequence(line("c", "d"))))
    assert Trial(before, 3, after).has_passed
    renamed = replace(after, parts=(Sequence((Call("a"), inserted, Call("other"))), Sequence(line("c", "d"))))
    trial = Trial(before, 3, renamed)
    assert trial.kept.error is not None
    assert trial.kept.error.type == MISMATCH
    assert trial.performed == trial.performed_before + 3, "only the inserted call was attempted"
