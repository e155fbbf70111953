"""Stage: one database, one clock, and engines on it that a test makes, moves and leaves. It asserts that nothing is left over."""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import pytest

from outlast.engine import Capabilities
from outlast.errors import CancelRequested
from outlast.run import Run, RunStatus, RunView
from outlast.task import Task
from outlast.testing.kit import SkippingEngine, wait_for_event
from outlast.this_step import this_step

R = TypeVar("R")
WAIT_SECONDS_MAX = 30.0
"""How long anything may take on a loaded machine before it has failed."""


class Stage:
    """What a test of the suite works with."""

    def __init__(self, make_engine: Callable[..., SkippingEngine]) -> None:
        self._make_engine = make_engine
        self.engines: list[SkippingEngine] = []
        self.complaints: list[dict[str, Any]] = []

    def play(self, scenario: Coroutine[Any, Any, None]) -> None:
        """Play a test on a loop of its own; whatever asyncio complains about, during it or after it, is a failure."""
        asyncio.run(self._played(scenario))
        gc.collect()
        assert not self.complaints, self.complaints

    async def _played(self, scenario: Coroutine[Any, Any, None]) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, complaint: self.complaints.append(complaint))
        try:
            await scenario
        finally:
            for engine in self.engines:
                await self.within(engine.close(timeout=5))
        gc.collect()
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}, "tasks are left over"

    def client(self, *tasks: Task[Any, Any], **options: Any) -> SkippingEngine:
        """Return another engine on the database that executes nothing."""
        engine = self._make_engine(tasks=tasks, **options)
        self.engines.append(engine)
        return engine

    async def worker(self, *tasks: Task[Any, Any], queues: tuple[str, ...] = ("default",), concurrency: int = 50, **options: Any) -> SkippingEngine:
        """Return another engine on the database, with its worker started."""
        engine = self.client(*tasks, **options)
        await engine.start(queues=queues, concurrency=concurrency)
        return engine

    async def within(self, awaited: Awaitable[R], seconds: float = WAIT_SECONDS_MAX) -> R:
        return await asyncio.wait_for(awaited, seconds)

    async def result(self, run: Run[R]) -> R:
        return await run.result(timeout=WAIT_SECONDS_MAX)

    async def ended(self, run: Run[Any]) -> RunView:
        """Wait until a run is over, however it ended, and return its view."""
        try:
            await run.result(timeout=WAIT_SECONDS_MAX)
        except TimeoutError:
            raise
        except Exception:
            return await run.view()
        return await run.view()

    async def parked(self, engine: SkippingEngine, run: Run[Any], count: int = 1) -> RunView:
        """Wait until a run has parked so many times."""
        await wait_for_event(engine, "run_parked", run=run.id, status=RunStatus.WAITING, count=count)
        return await run.view()


class Gate:
    """A step that says that it has begun, and ends when a test lets it."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.opened = asyncio.Event()
        self.count = 0
        self.was_canceled = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._pause = threading.Event()

    async def enter(self, name: str = "") -> str:
        self.count += 1
        self.begun.set()
        try:
            await self.opened.wait()
        except asyncio.CancelledError:
            self.was_canceled.set()
            raise
        return name

    def enter_thread(self) -> str:
        """The same in a thread, which looks again and again whether it is to end."""
        attempt, loop = this_step(), self._loop
        self.count += 1
        loop.call_soon_threadsafe(self.begun.set)
        while not self.opened.is_set():
            try:
                attempt.raise_if_canceled()
            except CancelRequested:
                loop.call_soon_threadsafe(self.was_canceled.set)
                raise
            self._pause.wait(0.01)
        return "through"

    def begin_in_thread(self) -> None:
        """Say that it has begun, and wait in a thread that listens to nobody, until it is released."""
        self._loop.call_soon_threadsafe(self.begun.set)
        self._pause.wait(60)

    def release(self) -> None:
        self._pause.set()


class Pause:
    """A place where a body's thread computes until a test lets it go on."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._opened = threading.Event()

    def compute(self) -> None:
        """Say that the thread is here, and stay until `go_on`."""
        self._loop.call_soon_threadsafe(self.begun.set)
        assert self._opened.wait(2 * WAIT_SECONDS_MAX), "nobody let the body go on"

    def go_on(self) -> None:
        self._opened.set()


class StageSuite:
    """What all parts of the suite share: coroutine tests are played on a stage."""

    def __init_subclass__(cls) -> None:
        for name, function in list(vars(cls).items()):
            if name.startswith("test_") and inspect.iscoroutinefunction(function):
                setattr(cls, name, _played(function))

    @pytest.fixture
    def stage(self, make_engine: Callable[..., SkippingEngine]) -> Stage:
        return Stage(make_engine)


def _played(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def play(self: StageSuite, stage: Stage, **fixtures: Any) -> None:
        stage.play(test(self, stage, **fixtures))

    return play


def needs(capabilities: Capabilities, name: str) -> None:
    """Skip a test of something that the engine says it cannot do."""
    if not getattr(capabilities, name):
        pytest.skip(f"capability: {capabilities.engine} has no {name}")
