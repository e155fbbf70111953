"""Tasks: named, versioned functions that can run durably.

What is declared here is checked here, at import: a task that cannot run is refused before anything was enqueued.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Coroutine
from typing import Any, overload

from typing_extensions import TypeVar

from outlast.context import Context
from outlast.errors import UsageError
from outlast.retry import ONCE, RetryPolicy
from outlast.task_ref import TaskRef

I = TypeVar("I", default=Any)
O = TypeVar("O", default=Any)
S = TypeVar("S", default=Any)
N = TypeVar("N", default=Any)


class Task(TaskRef[I, O]):
    """A task with its body. Make one with `@task`."""

    def __init__(self, body: Callable[..., Coroutine[Any, Any, O]], *, name: str, version: int, retry: RetryPolicy) -> None:
        input, output, self.takes_input = _checked_types(body, name)
        super().__init__(name, version, input, output)
        _check_policy(retry, name)
        self.body = body
        self.retry = retry
        self.__doc__ = body.__doc__
        self.__module__ = body.__module__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise UsageError(f"{self.name} is a task: `await engine.enqueue({self.name}, ...)` runs it durably")


@overload
def task(body: Callable[[Context[S]], Coroutine[Any, Any, O]], /) -> Task[None, O]: ...
@overload
def task(body: Callable[[Context[S], I], Coroutine[Any, Any, O]], /) -> Task[I, O]: ...
@overload
def task(name: str | None = None, /, *, version: int = 1, retry: RetryPolicy = ONCE) -> TaskDecorator: ...
def task(body: Any = None, /, *, version: int = 1, retry: RetryPolicy = ONCE) -> Any:
    """Declare an `async def` function a task, with or without parentheses.

    The body takes a `Context` and at most one input; more go into a dataclass. It awaits `Context` calls and
    combinations of them and nothing else: what reaches the world is a step. Code between steps runs again at every
    replay, and `finally` runs at each park, so clean-up does not belong there.

    Args:
        body: The name of the task, its kind; the function's own name by default. Frozen once runs exist.
        version: A run keeps the version it was enqueued with, and only workers that have it execute the run.
        retry: When the body ends with an error: 1 attempt by default, because steps have their own policy. A retried
            body keeps its finished steps; the step that failed it has fresh attempts.

    Raises `UsageError` for a body without a context, with a second input, with a default for it, or with an annotation
    that cannot be resolved.
    """

    def declare(function: Callable[..., Any], name: str | None = None) -> Task[Any, Any]:
        if not callable(function):
            raise UsageError(f"@task takes an async function, not {function!r}")
        own_name = getattr(function, "__name__", "")
        return Task(function, name=own_name if name is None else name, version=version, retry=retry)

    if body is None or isinstance(body, str):
        return functools.partial(declare, name=body)
    return declare(body)


class TaskDecorator(typing.Protocol):
    """What `@task(...)` with parentheses returns."""

    @overload
    def __call__(self, body: Callable[[Context[S]], Coroutine[Any, Any, N]], /) -> Task[None, N]: ...
    @overload
    def __call__(self, body: Callable[[Context[S], I], Coroutine[Any, Any, N]], /) -> Task[I, N]: ...


def _checked_types(body: Callable[..., Any], name: str) -> tuple[Any, Any, bool]:
    """Return the types of input and output, and whether there is an input."""
    if not inspect.iscoroutinefunction(body):
        raise UsageError(f"task {name}: a body is an `async def` function; blocking work goes into steps, which may be plain functions")
    parameters = list(inspect.signature(body).parameters.values())
    if any(parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD) for parameter in parameters):
        raise UsageError(f"task {name}: a body takes a context and at most one input, by position; put more into a dataclass")
    if not parameters:
        raise UsageError(f"task {name}: the body has no context: write `async def {name}(ctx: Context, ...)`")
    if len(parameters) > 2:
        raise UsageError(f"task {name}: the body has {len(parameters) - 1} inputs: put them into one dataclass")
    if any(parameter.default is not parameter.empty for parameter in parameters):
        raise UsageError(f"task {name}: an input has no default, because what was enqueued is what the body gets; put it into a dataclass")
    hints = _hints(body, name)
    _check_context(parameters[0], hints, name)
    if len(parameters) == 1:
        return None, hints.get("return", Any), False
    return hints.get(parameters[1].name, Any), hints.get("return", Any), True


def _hints(body: Callable[..., Any], name: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(body, include_extras=True)
    except (NameError, TypeError, AttributeError, SyntaxError) as error:
        raise UsageError(f"task {name}: an annotation cannot be resolved ({error}): import its type at the top of the module") from None


def _check_context(parameter: inspect.Parameter, hints: dict[str, Any], name: str) -> None:
    annotation = hints.get(parameter.name, Any)
    origin = typing.get_origin(annotation) or annotation
    if origin is not Any and not (isinstance(origin, type) and issubclass(origin, Context)):
        raise UsageError(f"task {name}: the first parameter is the context: write `async def {name}(ctx: Context, ...)`, then the input")


def _check_policy(retry: Any, name: str) -> None:
    if not isinstance(retry, RetryPolicy):
        raise UsageError(f"retry of {name} is {retry!r}: write a RetryPolicy(...)")
