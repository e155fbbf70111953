"""What is wrong is refused at the door: the message names the field and the remedy, and nothing was written."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest

from outlast import (
    Context,
    LimitExceededError,
    PayloadError,
    RetryPolicy,
    RunFailedError,
    RunNotFoundError,
    UnknownTaskError,
    UsageError,
    connect,
    step,
    task,
    task_ref,
)
from outlast.native.engine import NativeEngine

ONCE = RetryPolicy(maximum_attempts=1)


@dataclass
class Order:
    path: str
    size: float = 0.0


@task
async def ship(ctx: Context, order: Order) -> str:
    return order.path


@task
async def plain(ctx: Context, value: Any) -> None: ...


@task
async def nothing(ctx: Context) -> None: ...


@task
async def unknown(ctx: Context) -> None: ...


def play(url: str, scenario: Callable[[NativeEngine], Awaitable[None]], *tasks: Any) -> None:
    """Play a scenario with an engine that has been opened; nothing may have been written by its end."""

    async def played() -> None:
        async with connect(url, tasks=tasks or (ship, plain, nothing)) as engine:
            await scenario(engine)
            assert (await engine.inspector.list_runs()).runs == (), "something was written"

    asyncio.run(played())


# --- declaring ------------------------------------------------------------------------------------------------------------
def without_context():
    @task
    async def broken() -> None: ...


def with_two_inputs():
    @task
    async def broken(ctx: Context, first: int, second: int) -> None: ...


def with_a_default():
    @task
    async def broken(ctx: Context, first: int = 3) -> None: ...


def with_an_unknown_name():
    @task
    async def broken(ctx: Context, first: "Nowhere") -> None: ...  # noqa: F821 - what is proven


def with_an_input_first():
    @task
    async def broken(order: Order, ctx: Context) -> None: ...


def that_is_not_async():
    @task  # type: ignore[call-overload]  # what is proven
    def broken(ctx: Context) -> None: ...


def that_is_a_generator():
    @task
    async def broken(ctx: Context):
        yield 1


def with_a_bad_version():
    @task(version=0)
    async def broken(ctx: Context) -> None: ...


def with_a_bad_policy():
    @task(retry=3)  # type: ignore[call-overload]  # what is proven
    async def broken(ctx: Context) -> None: ...


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (without_context, "no context: write `async def broken\\(ctx: Context"),
        (with_two_inputs, "has 2 inputs: put them into one dataclass"),
        (with_a_default, "has no default"),
        (with_an_unknown_name, "Nowhere.*import its type at the top of the module"),
        (with_an_input_first, "the first parameter is the context"),
        (that_is_not_async, "a `def` body takes a BlockingContext: write `def broken"),
        (that_is_a_generator, "and no generator"),
        (with_a_bad_version, "version"),
        (with_a_bad_policy, "write a RetryPolicy"),
    ],
)
def test_a_task_that_cannot_run_is_refused_where_it_is_declared(declare, message):
    """The message says what to write instead."""
    with pytest.raises(UsageError, match=message):
        declare()


# --- enqueueing -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("order", "message"),
    [
        ({"path": "a"}, "input: .*Order"),
        (Order(3), "input.path: .*str"),  # type: ignore[arg-type]  # what is proven
        (Order("a", float("nan")), "input.size: NaN"),
        (Order("a", float("inf")), "input.size: .*infinity"),
        (Order("a\0b"), "input.path: .*NUL"),
        (Order("a\ud800"), "input.path: .*surrogate"),
        (Order("a" * (2 << 20)), "input: .*bytes.*put it into a file"),
    ],
    ids=["type", "field", "nan", "infinity", "nul", "surrogate", "size"],
)
def test_a_wrong_input_names_its_field(sqlite_url, order, message):
    """A value that cannot be stored, or would not come back as it is."""

    async def scenario(engine):
        with pytest.raises(PayloadError, match=message) as refused:
            await engine.enqueue(ship, order)
        assert refused.value.field.startswith("input")

    play(sqlite_url, scenario)


@pytest.mark.parametrize(
    ("value", "message"),
    [(2**64, "input"), ({1: "a"}, "input"), (object(), "input.*object"), ({"a": [1, {2}]}, "input.*a"), ([0] * 300_000 + ["\0"], "300000|bytes")],
    ids=["integer", "key", "object", "set", "last"],
)
def test_what_is_no_json_is_refused_where_no_type_is_declared(sqlite_url, value, message):
    """Without an annotation plain JSON is what can be given."""

    async def scenario(engine):
        with pytest.raises(PayloadError, match=message):
            await engine.enqueue(plain, value)

    play(sqlite_url, scenario)


def test_depth_is_bounded(sqlite_url):
    """What is nested too deep to be read for certain is refused."""
    value: Any = []
    for _ in range(500):
        value = [value]

    async def scenario(engine):
        with pytest.raises(PayloadError, match="deep"):
            await engine.enqueue(plain, value)

    play(sqlite_url, scenario)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"idempotency_key": ""}, UsageError, "idempotency_key is ''"),
        ({"idempotency_key": "k" * 10_000}, LimitExceededError, "idempotency_key has 10,000 characters; at most 512.*digest"),
        ({"idempotency_key": "a\0b"}, UsageError, "idempotency_key.*control characters"),
        ({"idempotency_key": 7}, UsageError, "idempotency_key is 7"),
        ({"queue": ""}, UsageError, "queue is ''"),
        ({"priority": 101}, UsageError, "priority is 101: .*from -100 to 100"),
        ({"priority": True}, UsageError, "priority is True"),
        ({"delay": "soon"}, UsageError, "delay is 'soon'"),
        ({"delay": -1}, UsageError, "delay is -1"),
        ({"delay": "1h", "available_at": datetime.now().astimezone()}, UsageError, "available_at and delay are both given"),
        ({"available_at": datetime(2030, 1, 1)}, UsageError, "available_at has no time zone"),
        ({"deadline": datetime(2030, 1, 1)}, UsageError, "deadline has no time zone"),
        ({"deadline": "tomorrow"}, UsageError, "deadline is 'tomorrow'"),
        ({"tags": "nightly"}, UsageError, "tags is the text 'nightly'"),
        ({"tags": ["a"] * 33}, LimitExceededError, "33 tags"),
        ({"headers": {"trace": 7}}, PayloadError, "header 'trace'"),
        ({"headers": {"trace": "a\0"}}, PayloadError, "header 'trace'.*NUL"),
    ],
)
def test_a_wrong_option_is_named(sqlite_url, options, error, message):
    """Which option, what it is, and what to write."""

    async def scenario(engine):
        with pytest.raises(error, match=message):
            await engine.enqueue(nothing, **options)

    play(sqlite_url, scenario)


def test_a_wrong_call_of_enqueue_is_named(sqlite_url):
    """A task of another engine, no task at all, an input too many or too few, and keys that do not fit their inputs."""

    async def scenario(engine):
        with pytest.raises(UnknownTaskError, match="task unknown v1 .*connect\\(tasks=.*task_ref"):
            await engine.enqueue(unknown)
        with pytest.raises(UsageError, match="enqueue takes a task or a task_ref"):
            await engine.enqueue(nothing.body)
        with pytest.raises(UsageError, match="nothing takes no input"):
            await engine.enqueue(nothing, 3)
        with pytest.raises(UsageError, match="ship takes an input"):
            await engine.enqueue(ship)
        with pytest.raises(UsageError, match="2 inputs came with 1 idempotency keys"):
            await engine.enqueue_many(ship, [Order("a"), Order("b")], idempotency_keys=["k"])
        with pytest.raises(UsageError, match="version"):
            await engine.enqueue(task_ref("ship", 0))

    play(sqlite_url, scenario)


@pytest.mark.parametrize(
    "run_id", ["", "7", "not-a-run", "01a23098-0000-7000-8000-00000000000", "01A23098-0000-7000-8000-000000000000", "a\0b", "'; --", 7, None]
)
def test_a_bad_run_id_is_a_run_that_is_not_there(sqlite_url, run_id):
    """Everywhere a run id goes; only `find` of a text answers None."""

    async def scenario(engine):
        calls = [
            engine.get(run_id),
            engine.cancel(run_id, reason="x"),
            engine.inspector.get_history(run_id),
            engine.operator.retry(run_id, actor="ann", reason="x"),
        ]
        for call in calls:
            with pytest.raises(RunNotFoundError, match="no run"):
                await call
        with pytest.raises(RunNotFoundError, match="no run"):
            engine.handle(nothing, run_id)
        if isinstance(run_id, str):
            assert await engine.find(run_id) is None
        else:
            with pytest.raises(UsageError, match="a run id is text"):
                await engine.find(run_id)
        if run_id is not None:
            with pytest.raises(RunNotFoundError):
                await engine.inspector.list_runs(before=run_id)

    play(sqlite_url, scenario)


def test_a_wrong_call_of_a_port_is_named(sqlite_url):
    """Reasons, actors, pages and states are checked too."""

    async def scenario(engine):
        here = "01a23098-0000-7000-8000-000000000000"
        for call, message in [
            (engine.cancel(here, reason=""), "reason is ''"),
            (engine.cancel(here, reason="x" * 1001), "reason has 1,001 characters"),
            (engine.operator.retry(here, actor="", reason="x"), "actor is ''"),
            (engine.inspector.list_runs(limit=0), "limit is 0"),
            (engine.inspector.list_runs(limit=10**9), "limit is 1000000000"),
            (engine.inspector.list_runs(status="done"), "status is 'done': write one of pending"),
        ]:
            with pytest.raises(UsageError, match=message):
                await call

    play(sqlite_url, scenario)


# --- executing --------------------------------------------------------------------------------------------------------------
class UnpicklableError(Exception):
    """Has a constructor of its own and holds what cannot be copied."""

    def __init__(self, path: str, handle: Any) -> None:
        super().__init__(f"cannot read {path}")
        self.handle = handle


async def return_an_object() -> Any:
    return object()


async def raise_unpicklable() -> None:
    raise UnpicklableError("/a", sys.stdout)


async def raise_a_group() -> None:
    raise ExceptionGroup("several", [OSError("first"), ExceptionGroup("inner", [KeyError("second")])])


class HostileError(Exception):
    """Cannot even be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


async def raise_hostile() -> None:
    raise HostileError


@step
async def declared() -> int:
    return 1


def body_of(how: str) -> Any:
    functions: dict[str, Any] = {"object": return_an_object, "unpicklable": raise_unpicklable, "group": raise_a_group, "hostile": raise_hostile}

    @task("bad")
    async def bad(ctx: Context) -> Any:
        if how == "undurable":
            return await declared()
        if how == "called":
            return await ctx.step(return_an_object())  # type: ignore[call-overload]  # what is proven
        if how == "arguments":
            return await ctx.step(plain_step, object())
        if how == "exit":
            raise SystemExit(3)
        return await ctx.step(step(functions[how]).with_options(retry=ONCE))

    return bad


async def plain_step(value: Any) -> None: ...


@pytest.mark.filterwarnings("ignore:coroutine 'return_an_object' was never awaited:RuntimeWarning")
@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("object", "result of step return_an_object: .*object"),
        ("unpicklable", "UnpicklableError: cannot read /a"),
        ("group", "several"),
        ("hostile", "HostileError: \\(the error's own text could not be made\\)"),
        ("undurable", "declared\\(...\\) inside a task body would not be remembered: write `await ctx.step\\(declared"),
        ("called", "ctx.step takes a function and its arguments.*without calling it"),
        ("arguments", "arguments of step plain_step.value: .*object"),
        ("exit", "SystemExit, which is for ending a process"),
    ],
)
def test_a_body_that_does_wrong_ends_its_own_run(sqlite_url, how, message):
    """The run fails with the reason, the worker goes on, and the next run of it succeeds."""
    bad = body_of(how)

    async def scenario() -> None:
        async with connect(sqlite_url, tasks=(bad, nothing)) as engine:
            await engine.start()
            run = await engine.enqueue(bad)
            with pytest.raises(RunFailedError, match=message):
                await run.result(timeout=20)
            await (await engine.enqueue(nothing)).result(timeout=20)
            if how == "group":
                (view,) = await engine.inspector.get_history(run.id)
                assert [str(member) for member in view.error.members] == ["OSError: first", "ExceptionGroup: inner (1 sub-exception)"]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"concurrency": 0}, "concurrency is 0: write a number from 1"),
        ({"concurrency": True}, "concurrency is True"),
        ({"concurrency": 10**9}, "concurrency is 1000000000"),
        ({"queues": "default"}, "queues is 'default': write a sequence"),
        ({"queues": ()}, "queues is \\(\\)"),
        ({"queues": ("",)}, "queue is ''"),
    ],
)
def test_a_wrong_start_is_named(sqlite_url, options, message):
    """And the engine can be started rightly afterwards."""

    async def scenario(engine):
        with pytest.raises(UsageError, match=message):
            await engine.start(**options)
        assert await engine.inspector.list_workers() == ()
        await engine.start()

    play(sqlite_url, scenario)


def test_a_second_start_is_refused(sqlite_url):
    """One worker an engine; without tasks none; after its close nothing."""

    async def scenario() -> None:
        engine = connect(sqlite_url, tasks=(nothing,))
        await engine.start()
        with pytest.raises(UsageError, match="has been started: stop it first"):
            await engine.start()
        await engine.close()
        for call in (engine.start(), engine.enqueue(nothing), engine.get("01a23098-0000-7000-8000-000000000000")):
            with pytest.raises(UsageError, match="closed: make another with connect"):
                await call
        async with connect(sqlite_url) as bare:
            with pytest.raises(UsageError, match="no tasks to execute: give them to connect"):
                await bare.start()

    asyncio.run(scenario())


def test_two_starts_at_once_are_one(sqlite_url):
    """Of two that meet one is refused, and one worker is there."""

    async def scenario() -> None:
        async with connect(sqlite_url, tasks=(nothing,)) as engine:
            answers = await asyncio.gather(engine.start(), engine.start(), return_exceptions=True)
            assert [type(answer) for answer in answers].count(UsageError) == 1, answers
            assert len(await engine.inspector.list_workers(only_alive=True)) == 1

    asyncio.run(scenario())
