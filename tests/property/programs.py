"""Random programs of durable calls, and the body that interprets them and notes what each branch saw.

A program is data, so that hypothesis can make and shrink it. Nothing in it depends on anything but what the body is handed.
"""

import asyncio
import random
from collections import defaultdict
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from outlast.branch import current_branch
from outlast.context import Context
from outlast.errors import FinalError, StepFailedError, WaitTimeoutError
from outlast.retry import RetryPolicy
from outlast.step import step
from outlast.task import task
from outlast.this_step import this_step


@dataclass(frozen=True)
class Call:
    """A step; its first `failures` attempts fail, and with `is_final` the next one fails for good."""

    name: str
    failures: int = 0
    is_final: bool = False
    retry_seconds: float = 1.0
    is_inserted: bool = False


@dataclass(frozen=True)
class Sleep:
    seconds: float


@dataclass(frozen=True)
class Facts:
    """The values that need no record."""


@dataclass(frozen=True)
class Sequence:
    parts: tuple["Node", ...]


@dataclass(frozen=True)
class Gather:
    parts: tuple["Node", ...]
    returns_errors: bool = False


@dataclass(frozen=True)
class Group:
    """A TaskGroup; what it raises is caught."""

    parts: tuple["Node", ...]


@dataclass(frozen=True)
class Race:
    """asyncio.wait for the first; the others are canceled, and awaited or not."""

    parts: tuple["Node", ...]
    awaits_losers: bool = True


@dataclass(frozen=True)
class Completed:
    """as_completed over tasks."""

    parts: tuple["Node", ...]


@dataclass(frozen=True)
class Limit:
    """A block with a durable time-out; what is done instead when it is over."""

    seconds: float
    part: "Node"
    instead: "Node"


@dataclass(frozen=True)
class Try:
    """A caught step failure and what is done instead."""

    part: "Node"
    instead: "Node"


@dataclass(frozen=True)
class Cleaned:
    """A cancel is caught, answered by a durable call, and raised again."""

    part: "Node"
    cleaning: "Node"


@dataclass(frozen=True)
class Shielded:
    """A part that goes on when the branch which awaits it is canceled."""

    part: "Node"


Node = Call | Sleep | Facts | Sequence | Gather | Group | Race | Completed | Limit | Try | Cleaned | Shielded


@dataclass
class Sight:
    """What one execution of a body saw: in all, and in each branch."""

    delivered: list[tuple[str, Any]] = field(default_factory=list)
    branches: dict[tuple[int, ...], list[Any]] = field(default_factory=lambda: defaultdict(list))

    def note(self, *what: Any) -> None:
        branch = current_branch()
        assert branch is not None
        self.branches[branch.path].append(what)

    def extend(self, other: "Sight") -> None:
        """Take over what the other saw beyond this."""
        self.delivered += other.delivered[len(self.delivered) :]
        for path, seen in other.branches.items():
            self.branches[path] += seen[len(self.branches[path]) :]


@dataclass
class Show:
    """What the services of a program's run are: the program, the world that its steps change, and what was seen."""

    program: Node
    chance: random.Random
    sight: Sight = field(default_factory=Sight)
    performed: int = 0
    attempts: dict[str, int] = field(default_factory=lambda: defaultdict(int))


@step
async def work(label: str, failures: int, is_final: bool) -> list[Any]:
    """Take some turns, fail as told, and return something that no other performance returns."""
    attempt = this_step(Show)
    show = attempt.services
    for _ in range(show.chance.choice((0, 0, 0, 1, 2, 3, 7, 15))):
        await asyncio.sleep(0)
    if show.chance.random() < 0.1:
        await asyncio.sleep(show.chance.choice((0.5, 3.0)))
    show.performed += 1
    if attempt.attempt <= failures:
        raise LookupError(f"{label} {show.performed}")
    if is_final:
        raise FinalError(f"{label} {show.performed}")
    return [label, show.performed]


@task("program", retry=RetryPolicy(maximum_attempts=3, initial_delay="5s", jitter=0))
async def program(ctx: Context[Show]) -> Any:
    """Interpret the program of the run's services."""
    return await perform(ctx, ctx.services.program, ctx.services.sight)


async def perform(ctx: Context[Show], node: Node, sight: Sight) -> Any:
    match node:
        case Call():
            return await _call(ctx, node, sight)
        case Sleep(seconds):
            await ctx.sleep(seconds)
            sight.note("slept", ctx.now())
            return None
        case Facts():
            facts = [str(ctx.now()), str(ctx.uuid()), ctx.random()]
            sight.note(*facts)
            return facts
        case Sequence(parts):
            return [await perform(ctx, part, sight) for part in parts]
        case Gather(parts, returns_errors):
            results = await asyncio.gather(*(perform(ctx, part, sight) for part in parts), return_exceptions=returns_errors)
            return [_told(result) for result in results]
        case Group(parts):
            return await _group(ctx, parts, sight)
        case Race(parts, awaits_losers):
            return await _race(ctx, parts, awaits_losers, sight)
        case Completed(parts):
            return [await one for one in asyncio.as_completed([_going_on(perform(ctx, part, sight)) for part in parts])]
        case Limit(seconds, part, instead):
            return await _limit(ctx, seconds, part, instead, sight)
        case Try(part, instead):
            try:
                return await perform(ctx, part, sight)
            except StepFailedError as error:
                sight.note("caught", error.step, error.attempts, error.error)
                return await perform(ctx, instead, sight)
        case Cleaned(part, cleaning):
            try:
                return await perform(ctx, part, sight)
            except asyncio.CancelledError:
                sight.note("canceled")
                await perform(ctx, cleaning, sight)
                raise
        case Shielded(part):
            return await asyncio.shield(_going_on(perform(ctx, part, sight)))


def _going_on(part: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """A task whose error may be forgotten: who awaits it may be canceled without it."""
    task = asyncio.create_task(part)
    task.add_done_callback(lambda task: task.cancelled() or task.exception())
    return task


async def _call(ctx: Context[Show], call: Call, sight: Sight) -> Any:
    retry = RetryPolicy(maximum_attempts=3, initial_delay=call.retry_seconds, factor=1, jitter=0)
    options = work.with_options(name=call.name, retry=retry, inserted=call.is_inserted)
    try:
        value = await ctx.step(options, call.name, call.failures, call.is_final)
    except StepFailedError as error:
        sight.delivered.append((error.step, error.error))
        sight.note("failed", error.step, error.attempts, error.error, ctx.now())
        raise
    sight.delivered.append((call.name, value))
    sight.note("got", call.name, value, ctx.now())
    return value


async def _group(ctx: Context[Show], parts: tuple[Node, ...], sight: Sight) -> Any:
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(perform(ctx, part, sight)) for part in parts]
    except ExceptionGroup as errors:
        sight.note("group failed", sorted(str(error) for error in errors.exceptions))
        return "failed"
    return [one.result() for one in tasks]


async def _race(ctx: Context[Show], parts: tuple[Node, ...], awaits_losers: bool, sight: Sight) -> Any:
    tasks = [_going_on(perform(ctx, part, sight)) for part in parts]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        winners = [index for index, one in enumerate(tasks) if one.done()]
        sight.note("won", winners)
    finally:
        for one in tasks:
            one.cancel()
    if awaits_losers:
        results = await asyncio.gather(*tasks, return_exceptions=True)
        sight.note("lost", [isinstance(result, asyncio.CancelledError) for result in results])
    return [_told(result) for result in await asyncio.gather(*(tasks[index] for index in winners), return_exceptions=True)]


async def _limit(ctx: Context[Show], seconds: float, part: Node, instead: Node, sight: Sight) -> Any:
    try:
        async with ctx.timeout(seconds):
            return await perform(ctx, part, sight)
    except WaitTimeoutError:
        sight.note("over", ctx.now())
        return await perform(ctx, instead, sight)


def _told(result: Any) -> Any:
    return f"{type(result).__name__}: {result}" if isinstance(result, BaseException) else result


NAMES = ("a", "b", "c")
SECONDS = st.sampled_from((0.0, 0.5, 1.5, 3.0, 60.0))

calls = st.builds(
    Call,
    st.sampled_from(NAMES),
    st.sampled_from((0, 0, 0, 1, 2, 3)),
    st.sampled_from((False, False, False, False, True)),
    st.sampled_from((0.0, 1.0, 5.0)),
)
leaves = st.one_of(calls, calls, calls, st.builds(Sleep, SECONDS), st.builds(Facts))


def _larger(parts: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    several = st.lists(parts, min_size=1, max_size=4).map(tuple)
    return st.one_of(
        st.builds(Sequence, several),
        st.builds(Gather, several, st.booleans()),
        st.builds(Group, several),
        st.builds(Race, several, st.booleans()),
        st.builds(Completed, several),
        st.builds(Limit, SECONDS, parts, parts),
        st.builds(Try, parts, parts),
        st.builds(Cleaned, parts, parts),
        st.builds(Shielded, parts),
    )


nodes: st.SearchStrategy[Node] = st.recursive(leaves, _larger, max_leaves=14)
