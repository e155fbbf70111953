"""A stage for bodies: a real event loop with the task factory, on which a body is driven by hand and nothing is left over."""

import asyncio
import gc
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from outlast.branch import BODY, Branches, TaskFactory, current_branch
from outlast.driver import Handed
from outlast.stillness import Stillness

WAIT_SECONDS_MAX = 20.0
"""How long a scenario may take on a loaded machine before it has failed."""


class Stage:
    """One loop and its bodies. A body awaits `durable(name)`; the scenario hands a value over with `hand(name)`."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.stillness = Stillness(self.loop)
        self.branches = Branches(self.loop)
        self.awaited: dict[str, Handed] = {}
        self.said: list[str] = []

    def durable(self, name: str) -> Handed:
        """What `Context` does for a call: named by the running branch, done when it is handed over."""
        future = self.awaited[name] = Handed(loop=self.loop)
        return future

    async def call(self, name: str) -> Any:
        return await self.durable(name)

    def here(self, name: str) -> str:
        """Return the text form of the key that a call of this name would have now."""
        branch = current_branch()
        assert branch is not None
        number = branch.number(name)
        return f"{'.'.join(map(str, branch.path))}/{name}:{number}"

    def hand(self, name: str, value: Any = None) -> None:
        self.awaited.pop(name).set_result(value)

    def start(self, body: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        return self.branches.start(body)

    async def still(self, branches: Branches | None = None) -> None:
        """Wait until the body stands still."""
        reached = self.loop.create_future()
        self.stillness.when_still(branches or self.branches, lambda: reached.set_result(None))
        await asyncio.wait_for(reached, WAIT_SECONDS_MAX)

    async def close(self) -> None:
        """Close the body and wait until its tasks have ended."""
        tasks = self.branches.tasks
        self.branches.close()
        while tasks or (tasks := self.branches.tasks):
            _, pending = await asyncio.wait(tasks, timeout=WAIT_SECONDS_MAX)
            assert not pending, pending
            tasks = []


@pytest.fixture
def play() -> Callable[[Callable[[Stage], Awaitable[None]]], None]:
    """Play a scenario on a stage of its own; whatever asyncio complains about, during it or after it, is a failure."""

    def play(scenario: Callable[[Stage], Awaitable[None]]) -> None:
        complaints: list[dict[str, Any]] = []

        async def staged() -> None:
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _, complaint: complaints.append(complaint))
            factory = TaskFactory(loop)
            factory.install()
            try:
                await scenario(Stage())
            finally:
                factory.uninstall()
            assert BODY.get() is None
            await asyncio.sleep(0)
            assert asyncio.all_tasks() == {asyncio.current_task()}, "tasks are left over"

        asyncio.run(staged())
        gc.collect()
        assert complaints == []

    return play
