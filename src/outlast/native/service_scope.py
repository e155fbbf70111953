"""ServiceScope: the application's services, entered once in a worker process and left after its last body."""

from __future__ import annotations

import inspect
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

from outlast.errors import UsageError


class ServiceScope:
    """An object as it is, or what a factory of an asynchronous context manager yields."""

    def __init__(self, services: Any) -> None:
        self._given = services
        self._stack = AsyncExitStack()

    async def enter(self) -> Any:
        """Return the services. Called on the engine's loop before the first claim; what it raises stops the start."""
        if not (inspect.isfunction(self._given) or inspect.ismethod(self._given) or inspect.isclass(self._given)):
            return self._given
        made = self._given()
        if isinstance(made, AbstractAsyncContextManager):
            return await self._stack.enter_async_context(made)
        if inspect.isclass(self._given):
            return made
        if inspect.iscoroutine(made):
            made.close()
        raise UsageError("services is a function that returns no asynchronous context manager: decorate it with @asynccontextmanager, or give an object")

    async def leave(self) -> None:
        await self._stack.aclose()
        self._stack = AsyncExitStack()
