"""Context: what a task body may ask for, over any engine's `RunDriver`.

It types, checks, names and numbers durable calls; what becomes of them is the driver's business. It keeps no state of
its own besides what tells calls apart.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import uuid as uuid_module
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import datetime
from types import MethodType, TracebackType
from typing import Any, Concatenate, Generic, Literal, ParamSpec, Self, cast, overload
from weakref import WeakKeyDictionary

from typing_extensions import TypeVar

from outlast.branch import current_branch
from outlast.clock import ensure_aware
from outlast.driver import Awaited, Condition, Message, Question, RunDriver, StepCall, Timer, TopicWait
from outlast.duration import Duration, as_duration
from outlast.effect import Effect
from outlast.errors import UsageError, WaitTimeoutError
from outlast.ids import derived_random, derived_uuid
from outlast.limits import SIGNAL_TTL, UNTIL_EVERY_MIN
from outlast.payload import codec_for, digest
from outlast.signal import Answer, Signal, checked_question, checked_topic, checked_ttl, encoded_payload, topic_of_run
from outlast.step import Step, StepOptions, function_name
from outlast.step_key import StepKey
from outlast.transaction import AsyncBeginning, AsyncConnecting, Beginning, Connecting, OwnDatabase

P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
T = TypeVar("T")
S = TypeVar("S", default=Any)


class Context(Generic[S]):
    """A body's way to durable work. It belongs to one execution of one run and is of no use outside of the body."""

    def __init__(self, driver: RunDriver) -> None:
        self._driver = driver

    def __repr__(self) -> str:
        return f"<context of run {self.run_id}>"

    # --- facts ---------------------------------------------------------------------------------------------------------
    @property
    def run_id(self) -> str:
        return self._driver.facts.run_id

    @property
    def kind(self) -> str:
        return self._driver.facts.kind

    @property
    def version(self) -> int:
        return self._driver.facts.version

    @property
    def deadline(self) -> datetime | None:
        """When the run is ended, if it was enqueued with a deadline."""
        return self._driver.facts.deadline

    @property
    def headers(self) -> dict[str, str]:
        """What the caller sent along with the input."""
        return dict(self._driver.facts.headers)

    @property
    def services(self) -> S:
        """The application's services, as given to `connect(services=...)`; a body hands them to no step, steps use `this_step`."""
        return cast("S", self._driver.services)

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger that is silent while the body replays, so that each line comes once."""
        return self._driver.log

    # --- values that are the same at every replay ------------------------------------------------------------------------
    def now(self) -> datetime:
        """Return the time of the record that the body was handed last, in UTC; the run's first claim before any. Writes nothing."""
        return self._driver.now()

    def uuid(self) -> uuid_module.UUID:
        """Return a UUID that is the same at every replay and in no other run, from the run's seed and this call's place."""
        return derived_uuid(self._driver.facts.seed, self._driver.facts.generation, str(self._key("$uuid")))

    def random(self) -> float:
        """Return a float in [0, 1) that is the same at every replay."""
        return derived_random(self._driver.facts.seed, self._driver.facts.generation, str(self._key("$random")))

    # --- steps -----------------------------------------------------------------------------------------------------------
    # `Coroutine[object, None, R]`, not `[Any, Any, R]`: with an Any in it mypy cannot choose among gather's overloads and says Any.
    @overload
    def step(self, function: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[object, None, R]: ...
    @overload
    def step(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[object, None, R]: ...
    def step(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
        """Run a function once and remember what it returned; at a replay return that without running it.

        The body goes on when the result is durable, and gets it decoded from its stored form. An attempt that raises
        is followed by another as the step's policy says; a delay of two seconds or more holds no slot. When attempts
        are used up the body gets `StepFailedError`, now and at every replay. A crash before the result was durable runs the
        step again, so what a step does outside should bear that, or be an effect.
        """
        return self._step(function, args, kwargs)

    async def _step(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        declared, args = (function, args) if type(function) is Step else as_step(function, args)
        arguments = declared.signature.encode_arguments(args, kwargs, declared.arguments_field)
        key = self._key(declared.options.name)
        future = self._driver.perform(key, StepCall(declared, arguments, digest(arguments) if arguments else ""))
        try:  # as `_handed`, without a coroutine in between
            return await future
        except asyncio.CancelledError:
            if future.cancelled():
                self._driver.give_up(key)
            raise

    # --- transactions ------------------------------------------------------------------------------------------------
    @property
    def database(self) -> OwnDatabase:
        """The engine's own database, to begin transactions on: `ctx.transaction(ctx.database, ...)`."""
        return self._driver.database

    @overload
    def transaction(
        self,
        on: AsyncBeginning[C] | AsyncConnecting[C] | Callable[[], Awaitable[C]],
        function: Callable[Concatenate[C, P], Awaitable[R]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Coroutine[object, None, R]: ...
    @overload
    def transaction(
        self, on: Beginning[C] | Connecting[C] | Callable[[], C], function: Callable[Concatenate[C, P], R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[object, None, R]: ...
    def transaction(self, on: Any, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
        """Run `function(connection, *args)` in one transaction, and commit what it wrote together with its record: exactly once.

        `on` is what the application begins transactions with: an SQLAlchemy 2 engine or sessionmaker (sync or async), a
        psycopg pool, a function that opens a psycopg or sqlite3 connection, or `ctx.database`. The function gets what
        `on.begin()` gives, and never commits or rolls back by itself. It may run again, wholly, when another transaction
        was in its way, and after an error by the step's policy; what an earlier run of it wrote is undone then.

        A crash leaves either both, the writes and the record, or neither. In a database that is not the engine's the
        step is remembered in two tables of ours (`outlast.transaction_tables`), with the same outcome.
        """
        return self._transaction(on, function, args, kwargs)

    async def _transaction(self, on: Any, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        declared, args = as_step(function, args)
        declared = declared.with_connection
        arguments = declared.signature.encode_arguments(args, kwargs, declared.arguments_field)
        key = self._key(declared.options.name)
        return await self._handed(key, self._driver.perform(key, StepCall(declared, arguments, digest(arguments) if arguments else "", on)))

    # --- effects -------------------------------------------------------------------------------------------------------
    def effect(self, effect: Effect[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[object, None, R]:
        """Perform an effect through the ledger: planned and attempted durably before it begins, and never repeated blindly.

        Returns its result, now and at every replay. An attempt of which nobody knows whether it was done, after a crash, a
        time-out or an error that was not declared, is reconciled before anything else; if nobody can tell, a person is
        asked, and the run waits without a slot. When it is known not to have been done and its attempts are used up, or
        a person says so, the body gets `EffectFailedError`.
        """
        return self._effect(effect, args, kwargs)

    async def _effect(self, effect: Effect[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not isinstance(effect, Effect):
            raise UsageError(f"ctx.effect takes what was declared with @effect, not {effect!r}; a function that is none is a step: ctx.step(...)")
        arguments = effect.step.signature.encode_arguments(args, kwargs, effect.step.arguments_field)
        key = self._key(effect.name)
        call = StepCall(effect.step, arguments, digest(arguments) if arguments else "", effect=effect)
        return await self._handed(key, self._driver.perform(key, call))

    # --- time --------------------------------------------------------------------------------------------------------------
    def sleep(self, duration: Duration) -> Coroutine[object, None, None]:
        """Sleep durably; from two seconds on the run holds no slot meanwhile. Counted from `now()`, so a crash does not prolong it."""
        return self._sleep(self.now() + self._duration(duration))

    def sleep_until(self, instant: datetime) -> Coroutine[object, None, None]:
        """Sleep durably until an instant, which must be aware; one in the past returns at once."""
        try:
            return self._sleep(ensure_aware(instant, "instant"))
        except ValueError as error:
            raise UsageError(str(error)) from None

    async def _sleep(self, due_at: datetime) -> None:
        key = self._key("sleep")
        await self._handed(key, self._driver.wait(key, Timer(due_at)))

    def timeout(self, duration: Duration) -> DurableTimeout:
        """Limit a block durably: `async with ctx.timeout("7d"):` raises `WaitTimeoutError` when the time is over.

        What the block awaits then is given up, as by a cancel. The time is counted from `now()` at its beginning and
        goes on while the run is parked or its worker is gone. `asyncio.timeout` around a durable call is a mistake:
        its clock begins anew at each replay.
        """
        return DurableTimeout(self, self._driver, self._duration(duration))

    # --- waiting ---------------------------------------------------------------------------------------------------------
    @overload
    def wait_for(self, topic: str, *, timeout: Duration | None = None) -> Coroutine[object, None, Signal[Any] | None]: ...
    @overload
    def wait_for(self, topic: str, *, timeout: Duration | None = None, of: type[T]) -> Coroutine[object, None, Signal[T] | None]: ...
    def wait_for(self, topic: str, *, timeout: Duration | None = None, of: Any = Any) -> Coroutine[Any, Any, Any]:
        """Wait for the next signal on a topic that this run has not seen, and return it; None at the time-out, and only then.

        A signal that was sent before counts too, as long as it is kept: before the wait, before the run. Each run sees each
        signal once, in the order that everybody sees. While it waits the run holds no slot, for as long as it takes. A crash
        loses no signal: what a run was given and that it was given are one commit.
        """
        return self._wait_for("wait_for", TopicWait(checked_topic(topic), codec_for(of), self._due(timeout)))

    @overload
    def until(
        self, check: Callable[..., Awaitable[R]], /, *args: Any, topic: str | None = None, every: Duration = "1m", timeout: Duration | None = None
    ) -> Coroutine[object, None, R]: ...
    @overload
    def until(
        self, check: Callable[..., R], /, *args: Any, topic: str | None = None, every: Duration = "1m", timeout: Duration | None = None
    ) -> Coroutine[object, None, R]: ...
    def until(
        self, check: Callable[..., Any], /, *args: Any, topic: str | None = None, every: Duration = "1m", timeout: Duration | None = None
    ) -> Coroutine[Any, Any, Any]:
        """Wait until a check returns something truthy, and return that: the application's own data is the truth.

        Asked now, whenever `topic` is signaled, and every so often; a check that raises is tried again as a step by its policy.
        However often it was asked, there is one record. Raises `WaitTimeoutError` at the time-out, after one last look.
        """
        return self._until(check, args, topic, every, timeout)

    async def _until(self, check: Callable[..., Any], args: tuple[Any, ...], topic: str | None, every: Duration, timeout: Duration | None) -> Any:
        declared, args = as_step(check, args)
        arguments = declared.signature.encode_arguments(args, {}, declared.arguments_field)
        pause = self._duration(every)
        if pause < UNTIL_EVERY_MIN:
            raise UsageError(f"every is {every!r}: write at least {UNTIL_EVERY_MIN.total_seconds():g} s, and name a topic to hear of a change at once")
        call = StepCall(declared, arguments, digest(arguments) if arguments else "")
        found = await self._wait_for("until", Condition(call, None if topic is None else checked_topic(topic), pause, self._due(timeout)))
        if found is None:
            raise WaitTimeoutError(f"{declared.options.name} was not so within {timeout}", run_id=self.run_id)
        return found[0]

    async def ask(self, question: str, options: Sequence[str], *, about: Any = None, timeout: Duration | None = None) -> Answer:
        """Ask a person and wait: the question is on the attention list until somebody answers with one of the options, once.

        `about` is shown beside it, as plain JSON. Raises `WaitTimeoutError` at the time-out, and the question is withdrawn. A
        crash asks nobody twice: the question has the call's own id.
        """
        asked = checked_question(question, options)
        text = codec_for(Any).encode(about, "about")
        answer = await self._wait_for("ask", Question(asked, tuple(options), text, self._due(timeout)))
        if answer is None:
            raise WaitTimeoutError(f"nobody answered within {timeout}: {question}", run_id=self.run_id)
        return cast("Answer", answer)

    def signal(self, topic: str, payload: Any = None, *, ttl: Duration = SIGNAL_TTL) -> Coroutine[object, None, None]:
        """Send a signal: sent once, in the transaction that records it. Whoever waits for the topic, in any run, is woken."""
        return self._wait_for("signal", Message(checked_topic(topic), encoded_payload(payload), checked_ttl(ttl)))

    def topic(self, name: str) -> str:
        """Return the name of a topic of this run alone, for `wait_for`; from outside it is `run.signal(name)`."""
        return topic_of_run(self.run_id, name)

    async def _wait_for(self, name: str, awaited: Awaited) -> Any:
        key = self._key(name)
        return await self._handed(key, self._driver.wait_for(key, awaited))

    @overload
    async def first(self, one: Awaitable[A], two: Awaitable[B], /) -> tuple[Literal[0], A] | tuple[Literal[1], B]: ...
    @overload
    async def first(
        self, one: Awaitable[A], two: Awaitable[B], three: Awaitable[D], /
    ) -> tuple[Literal[0], A] | tuple[Literal[1], B] | tuple[Literal[2], D]: ...
    @overload
    async def first(self, *waits: Awaitable[Any]) -> tuple[int, Any]: ...
    async def first(self, *waits: Any) -> tuple[int, Any]:
        """Wait for the first of several calls of `ctx`, and return its place and what it returned; the others are withdrawn.

        `match await ctx.first(ctx.wait_for("paid"), ctx.sleep("3d")): case 0, signal: ...`. The first that fails raises.
        """
        if len(waits) < 2 or not all(asyncio.iscoroutine(wait) for wait in waits):
            raise UsageError("ctx.first takes two or more calls, not awaited: ctx.first(ctx.wait_for(...), ctx.sleep(...))")
        tasks = [asyncio.ensure_future(wait) for wait in waits]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        place = next(place for place, task in enumerate(tasks) if task in done)
        return place, tasks[place].result()

    def _due(self, timeout: Duration | None) -> datetime | None:
        return None if timeout is None else self.now() + self._duration(timeout)

    def _duration(self, duration: Duration) -> Any:
        try:
            return as_duration(duration)
        except ValueError as error:
            raise UsageError(str(error)) from None

    # --- identity ------------------------------------------------------------------------------------------------------------
    def _key(self, name: str) -> StepKey:
        """Name the call that the running branch makes now."""
        branch = current_branch()
        if branch is None:
            raise UsageError(f"ctx.{name.lstrip('$')} was called outside of its body, or in a step: durable calls belong to the body's own code and its tasks")
        return StepKey(branch.path, name, branch.number(name))

    async def _handed(self, key: StepKey, future: asyncio.Future[Any]) -> Any:
        try:
            return await future
        except asyncio.CancelledError:
            if future.cancelled():
                self._driver.give_up(key)
            raise


class DurableTimeout:
    """The block of `ctx.timeout`."""

    def __init__(self, context: Context[Any], driver: RunDriver, duration: Any) -> None:
        self._context = context
        self._driver = driver
        self._duration = duration
        self._is_over = False

    async def __aenter__(self) -> Self:
        task = asyncio.current_task()
        self._key = self._context._key("timeout")
        if task is None:
            raise UsageError("ctx.timeout works in a task body")
        self._task = task
        self._cancels_before = task.cancelling()
        self._timer = self._driver.wait(self._key, Timer(self._driver.now() + self._duration, is_timeout=True))
        self._timer.add_done_callback(self._expire)
        return self

    def _expire(self, timer: asyncio.Future[Any]) -> None:
        if not timer.cancelled() and timer.exception() is None:
            self._is_over = True
            self._task.cancel()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not self._is_over:
            self._timer.cancel()
            self._driver.give_up(self._key)
            return
        if self._task.uncancel() <= self._cancels_before and kind is not None and issubclass(kind, asyncio.CancelledError):
            raise WaitTimeoutError(f"the block's time was over after {self._duration}", run_id=self._context.run_id) from error


def as_step(function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Step[..., Any], tuple[Any, ...]]:
    """Return what a body handed to `ctx.step` as a declared step and its arguments; a partial's arguments are the call's own."""
    if isinstance(function, Step):
        return function, args
    if isinstance(function, functools.partial):
        if function.keywords:
            raise UsageError("a partial with keywords is not one step's call: pass the keywords to ctx.step")
        return as_step(function.func, (*function.args, *args))
    if not callable(function):
        raise UsageError(f"ctx.step takes a function and its arguments, not {function!r}; write ctx.step(function, ...) without calling it")
    if isinstance(function, MethodType):
        declared = _declared(function.__func__)
        return declared.__get__(function.__self__, type(function.__self__)), args
    return _declared(function), args


def _declared(function: Callable[..., Any]) -> Step[..., Any]:
    """Return a plain function as a step with default options, made once as long as the function lives."""
    try:
        declared = _DECLARED.get(function)
    except TypeError:  # not hashable, or not weakly referable: made anew each time
        return Step(function, StepOptions(function_name(function)))
    if declared is None:
        declared = Step(function, StepOptions(function_name(function)))
        try:
            _DECLARED[function] = declared
        except TypeError:
            pass  # as above
    return declared


_DECLARED: WeakKeyDictionary[Callable[..., Any], Step[..., Any]] = WeakKeyDictionary()
