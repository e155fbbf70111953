"""Programs of one branch in `def` bodies: the history of their `async` twins, and the same again after a stop at any record."""

import asyncio
import random
from typing import Any
from weakref import WeakSet

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import outlast.body_thread
from outlast.blocking_context import BlockingContext
from outlast.body_thread import BodyThread
from outlast.errors import StepFailedError, WaitTimeoutError
from outlast.retry import RetryPolicy
from outlast.run import RunStatus
from outlast.task import task

from .programs import SECONDS, Call, Facts, Limit, Node, Sequence, Show, Sight, Sleep, Try, leaves, work
from .replay_world import VirtualLoop, World, stage
from .test_replay_gate import Trial

EXAMPLES = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


class NotedThread(BodyThread):
    """A body's thread of which the loop knows whether it moves."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        THREADS.add(self)

    @property
    def is_moving(self) -> bool:
        return self.request is not None or (self._is_closed and not self.ended.done())


THREADS: WeakSet[NotedThread] = WeakSet()


class ThreadedLoop(VirtualLoop):
    """Virtual time that stands still while a body's thread moves."""

    def _run_once(self) -> None:
        self.waits_for_threads = any(thread.is_moving for thread in THREADS)
        super()._run_once()


@pytest.fixture(autouse=True, scope="module")
def noted_threads():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outlast.body_thread, "BodyThread", NotedThread)
        yield


def plainly(ctx: BlockingContext[Show], node: Node, sight: Sight) -> Any:
    """Interpret a program of one branch; see `programs.perform`."""
    notes = sight.branches[()]
    match node:
        case Call():
            return called(ctx, node, sight)
        case Sleep(seconds):
            ctx.sleep(seconds)
            notes.append(("slept", ctx.now()))
            return None
        case Facts():
            facts = [str(ctx.now()), str(ctx.uuid()), ctx.random()]
            notes.append(tuple(facts))
            return facts
        case Sequence(parts):
            return [plainly(ctx, part, sight) for part in parts]
        case Limit(seconds, part, instead):
            try:
                with ctx.timeout(seconds):
                    return plainly(ctx, part, sight)
            except WaitTimeoutError:
                notes.append(("over", ctx.now()))
                return plainly(ctx, instead, sight)
        case Try(part, instead):
            try:
                return plainly(ctx, part, sight)
            except StepFailedError as error:
                notes.append(("caught", error.step, error.attempts, error.error))
                return plainly(ctx, instead, sight)
    raise AssertionError(f"{node} is no program of one branch")


def called(ctx: BlockingContext[Show], call: Call, sight: Sight) -> Any:
    retry = RetryPolicy(maximum_attempts=3, initial_delay=call.retry_seconds, factor=1, jitter=0)
    try:
        value = ctx.step(work.with_options(name=call.name, retry=retry), call.name, call.failures, call.is_final)
    except StepFailedError as error:
        sight.delivered.append((error.step, error.error))
        sight.branches[()].append(("failed", error.step, error.attempts, error.error, ctx.now()))
        raise
    sight.delivered.append((call.name, value))
    sight.branches[()].append(("got", call.name, value, ctx.now()))
    return value


@task("program", retry=RetryPolicy(maximum_attempts=3, initial_delay="5s", jitter=0))
def plain_program(ctx: BlockingContext[Show]) -> Any:
    """Interpret the program of the run's services."""
    return plainly(ctx, ctx.services.program, ctx.services.sight)


class PlainTrial(Trial):
    """One run of one program in a `def` body."""

    def __init__(self, node: Node, seed: int) -> None:
        super().__init__(node, seed)
        self.world = World(plain_program, chance=random.Random(seed), services=self.show)


async def run_stopping(trial: Trial, stops: list[int]) -> list[tuple[str, str]]:
    """Execute to the end with these stops, and once more from all that was kept; return the records' keys and outcomes."""
    kept = trial.world.kept
    for number in stops:
        if kept.status.is_terminal:
            break
        await (trial.execute(limit=kept.count + number) if number > 0 else trial.execute(drains_after=-number))
    while not kept.status.is_terminal:
        await trial.execute()
    output = kept.output
    if kept.status is RunStatus.SUCCEEDED:
        kept.status = RunStatus.PENDING
        await trial.execute()
        assert kept.output == output
    trial.world.performer.close()
    return [(str(record.key), record.outcome.value) for record in sorted(kept.records, key=lambda record: record.seq)]


def _larger(parts: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    several = st.lists(parts, min_size=1, max_size=4).map(tuple)
    return st.one_of(st.builds(Sequence, several), st.builds(Try, parts, parts))


def _larger_or_limited(parts: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    return st.one_of(_larger(parts), st.builds(Limit, SECONDS, parts, parts))


lines: st.SearchStrategy[Node] = st.recursive(leaves, _larger, max_leaves=10)
limited_lines: st.SearchStrategy[Node] = st.recursive(leaves, _larger_or_limited, max_leaves=10)


@EXAMPLES
@given(limited_lines, st.integers(0, 1 << 20), st.lists(st.one_of(st.integers(1, 6), st.integers(-60, 0)), max_size=6))
def test_stopped_def_bodies_are_handed_the_same_again(node, seed, stops):
    """Whatever crashes, stops and delays there are, no execution contradicts an earlier one, and none ends as changed code."""
    stage(lambda: run_stopping(PlainTrial(node, seed), stops), ThreadedLoop)


@EXAMPLES
@given(lines, st.integers(0, 1 << 20))
def test_a_def_body_records_what_its_async_twin_records(node, seed):
    """The same program has the same keys and outcomes, in the same order, in both kinds of body.

    Without time-outs: one that is due at once and a call that it limits race each other, also between two runs of one body.
    """
    plain = stage(lambda: run_stopping(PlainTrial(node, seed), []), ThreadedLoop)
    assert plain == stage(lambda: run_stopping(Trial(node, seed), []), ThreadedLoop)


def test_the_twins_comparison_can_fail():
    """Another order of calls is another list of records."""
    one, other = Sequence((Call("a"), Call("b"))), Sequence((Call("b"), Call("a")))
    plain = stage(lambda: run_stopping(PlainTrial(one, 1), []), ThreadedLoop)
    assert plain == [("a", "result"), ("b", "result")]
    assert plain != stage(lambda: run_stopping(Trial(other, 1), []), ThreadedLoop)
    assert asyncio.iscoroutinefunction(plain_program.make_body)
