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

from outlast.blocking_context import BlockingContext
from outlast.body_thread import in_thread
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

    def __init__(self, body: Callable[..., Any], *, name: str, version: int, retry: RetryPolicy) -> None:
        input, output, self.takes_input = _checked_types(body, name)
        super().__init__(name, version, input, output)
        _check_policy(retry, name)
        self.body = body
        """The function as it was declared."""
        self.make_body: Callable[..., Coroutine[Any, Any, Any]] = body if inspect.iscoroutinefunction(body) else in_thread(body)
        """Makes the coroutine that an engine runs: of the function itself, or of what serves a `def` body in a thread. For engines."""
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
def task(body: Callable[[BlockingContext[S]], O], /) -> Task[None, O]: ...
@overload
def task(body: Callable[[BlockingContext[S], I], O], /) -> Task[I, O]: ...
@overload
def task(name: str | None = None, /, *, version: int = 1, retry: RetryPolicy = ONCE) -> TaskDecorator: ...
def task(body: Any = None, /, *, version: int = 1, retry: RetryPolicy = ONCE) -> Any:
    """Declare a function a task, with or without parentheses.

    An `async def` body takes a `Context`, a `def` body a `BlockingContext`, and either at most one input; more go into
    a dataclass. A body awaits (or, in a `def` body, makes) calls of its context and combinations of them and nothing
    else: what reaches the world is a step. Code between steps runs again at every replay, and `finally` runs at each
    park, so clean-up does not belong there. A `def` body runs in a thread of its own.

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
            raise UsageError(f"@task takes a function, not {function!r}")
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
    @overload
    def __call__(self, body: Callable[[BlockingContext[S]], N], /) -> Task[None, N]: ...
    @overload
    def __call__(self, body: Callable[[BlockingContext[S], I], N], /) -> Task[I, N]: ...


def _checked_types(body: Callable[..., Any], name: str) -> tuple[Any, Any, bool]:
    """Return the types of input and output, and whether there is an input."""
    is_async = inspect.iscoroutinefunction(body)
    if not is_async and not _is_plain_function(body):
        raise UsageError(f"task {name}: a body is a function made with `async def`, or with `def` and a name, and no generator")
    parameters = list(inspect.signature(body).parameters.values())
    if any(parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD) for parameter in parameters):
        raise UsageError(f"task {name}: a body takes a context and at most one input, by position; put more into a dataclass")
    if not parameters:
        raise UsageError(f"task {name}: the body has no context: write `{_heading(name, is_async)}`")
    if len(parameters) > 2:
        raise UsageError(f"task {name}: the body has {len(parameters) - 1} inputs: put them into one dataclass")
    if any(parameter.default is not parameter.empty for parameter in parameters):
        raise UsageError(f"task {name}: an input has no default, because what was enqueued is what the body gets; put it into a dataclass")
    hints = _hints(body, name)
    _check_context(parameters[0], hints, name, is_async)
    if len(parameters) == 1:
        return None, hints.get("return", Any), False
    return hints.get(parameters[1].name, Any), hints.get("return", Any), True


def _hints(body: Callable[..., Any], name: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(body, include_extras=True)
    except (NameError, TypeError, AttributeError, SyntaxError) as error:
        raise UsageError(f"task {name}: an annotation cannot be resolved ({error}): import its type at the top of the module") from None


def _is_plain_function(body: Any) -> bool:
    """Tell whether a body may run in a thread: a lambda has no annotations, and what is decorated otherwise is no function any more."""
    inner = body.func if isinstance(body, functools.partial) else body
    is_generator = inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner)
    return (inspect.isfunction(inner) or inspect.ismethod(inner)) and not is_generator and getattr(inner, "__name__", "") != "<lambda>"


def _check_context(parameter: inspect.Parameter, hints: dict[str, Any], name: str, is_async: bool) -> None:
    annotation = hints.get(parameter.name, Any)
    origin = typing.get_origin(annotation) or annotation
    right, other = (Context, BlockingContext) if is_async else (BlockingContext, Context)
    if origin is Any or (isinstance(origin, type) and issubclass(origin, right)):
        return
    if isinstance(origin, type) and issubclass(origin, other):
        raise UsageError(f"task {name}: {_TAKES[is_async]}: write `{_heading(name, is_async)}`, or `{_heading(name, not is_async)}`")
    raise UsageError(f"task {name}: the first parameter is the context: write `{_heading(name, is_async)}`, then the input")


_TAKES = {True: "an `async def` body takes a Context", False: "a `def` body takes a BlockingContext"}


def _heading(name: str, is_async: bool) -> str:
    return f"async def {name}(ctx: Context, ...)" if is_async else f"def {name}(ctx: BlockingContext, ...)"


def _check_policy(retry: Any, name: str) -> None:
    if not isinstance(retry, RetryPolicy):
        raise UsageError(f"retry of {name} is {retry!r}: write a RetryPolicy(...)")
