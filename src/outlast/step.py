"""Steps: units of work inside a run whose results are remembered.

A step is any function; `@step` gives it a name, a retry policy and a time-out of its own. This file holds what is
declared. It never runs a step.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from outlast.duration import Duration, as_duration
from outlast.errors import UsageError
from outlast.limits import NAME_CHARACTERS_MAX
from outlast.retry import STEP_DEFAULT, RetryPolicy
from outlast.scope import inside_body
from outlast.signature import Signature, signature_of

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StepOptions:
    """What may be said of a step, at its declaration and again at a call."""

    name: str
    retry: RetryPolicy = STEP_DEFAULT
    timeout: timedelta | None = None
    """Of one attempt; None for none."""
    process: bool = False
    """Run in a process of its own, which can be killed."""
    inserted: bool = False
    """This call was added in front of calls that runs in flight have recorded already."""


class Step(Generic[P, R]):
    """A function that was declared a step. Outside of a task body it is called as the function that it is."""

    def __init__(self, function: Callable[P, R], options: StepOptions, supplied: int = 0) -> None:
        """The engine itself gives the first `supplied` arguments."""
        if options.process and not getattr(function, "__qualname__", "").isidentifier():  # with a dot in it, or none at all, it is nested
            raise UsageError(f"step {options.name}: process=True takes a module-level function, because another process must find it")
        self.function = function
        self.options = options
        self.supplied = supplied
        functools.update_wrapper(self, function, updated=())  # what has no name of its own, a partial for one, is called as in the history
        self.__name__ = getattr(function, "__name__", options.name)

    def __repr__(self) -> str:
        return f"<step {self.options.name}>"

    @functools.cached_property
    def signature(self) -> Signature:
        """How its arguments and its result travel. `UsageError` for an annotation that cannot be resolved."""
        return signature_of(self.function, supplied=self.supplied)

    @functools.cached_property
    def with_connection(self) -> Step[..., Any]:
        """The same as a transactional step, whose first argument is the connection."""
        if self.options.process:
            raise UsageError(f"step {self.options.name}: a transaction belongs to this process: leave process=True out")
        return Step(self.function, self.options, supplied=1)

    @functools.cached_property
    def is_async(self) -> bool:
        call = getattr(type(self.function), "__call__", None)  # noqa: B004 - not whether it can be called, but how
        return inspect.iscoroutinefunction(self.function) or inspect.iscoroutinefunction(call)

    @functools.cached_property
    def is_plain(self) -> bool:
        """A coroutine and nothing more: no time-out, no process of its own."""
        return self.is_async and self.options.timeout is None and not self.options.process and not self.supplied

    @functools.cached_property
    def arguments_field(self) -> str:
        """What an error about its arguments names; made once, because every call passes it."""
        return f"arguments of step {self.options.name}"

    @functools.cached_property
    def result_field(self) -> str:
        return f"result of step {self.options.name}"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function directly: in tests and inside other steps. In a task body it would run undurably, so it is refused there."""
        if inside_body():
            raise UsageError(f"{self.options.name}(...) inside a task body would not be remembered: write `await ctx.step({self.__name__}, ...)`")
        return self.function(*args, **kwargs)

    @overload
    def __get__(self, instance: None, owner: type[Any]) -> Step[P, R]: ...
    @overload
    def __get__(self: Step[Concatenate[Any, Q], T], instance: object, owner: type[Any]) -> Step[Q, T]: ...
    def __get__(self, instance: object | None, owner: type[Any]) -> Any:
        if instance is None:
            return self
        if self.options.process:
            raise UsageError(f"step {self.options.name}: process=True takes a module-level function, not a method")
        binding = getattr(self.function, "__get__", None)
        if binding is None:
            return self  # a partial or another object in a class is no method of it
        bound: Step[..., Any] = Step(binding(instance, owner), self.options)
        bound.__dict__["is_async"] = self.is_async  # computed once for the method; only the instance differs
        return bound

    def with_options(
        self,
        *,
        name: str | None = None,
        retry: RetryPolicy | None = None,
        timeout: Duration | None = None,
        inserted: bool | None = None,
    ) -> Step[P, R]:
        """Return the same step with other options for one call. `inserted=True` marks a call added in front of recorded ones."""
        options = self.options
        options = replace(
            options,
            name=options.name if name is None else _checked_name(name),
            retry=options.retry if retry is None else _checked_retry(retry),
            timeout=options.timeout if timeout is None else _checked_timeout(timeout),
            inserted=options.inserted if inserted is None else inserted,
        )
        changed: Step[P, R] = Step(self.function, options)
        for computed in ("signature", "is_async"):
            if computed in self.__dict__:
                changed.__dict__[computed] = self.__dict__[computed]
        return changed


@overload
def step(function: Callable[P, R], /) -> Step[P, R]: ...
@overload
def step(
    *, name: str | None = None, retry: RetryPolicy = STEP_DEFAULT, timeout: Duration | None = None, process: bool = False
) -> Callable[[Callable[P, R]], Step[P, R]]: ...
def step(
    function: Callable[P, R] | None = None,
    /,
    *,
    name: str | None = None,
    retry: RetryPolicy = STEP_DEFAULT,
    timeout: Duration | None = None,
    process: bool = False,
) -> Any:
    """Declare a function or method a step, with or without options.

    Args:
        name: What the history calls it; the function's own name by default. Frozen once runs have recorded it.
        retry: How often an attempt that raises is followed by another; 3 attempts by default.
        timeout: Of one attempt. A coroutine is canceled at it, a process killed; a thread cannot be, so it is told
            through `this_step().canceled` and waited for as long again, then the step fails with `StepStuckError`.
        process: Run each attempt in a process of its own, which is killed at its time-out or at a cancel. It has no
            services, and its function must be at the level of a module.

    A crash in the middle of an attempt leaves no record of it: the step runs again on another worker, with the same
    `this_step().attempt`.
    """
    _checked_retry(retry)
    limit = None if timeout is None else _checked_timeout(timeout)

    def declare(function: Callable[P, R]) -> Step[P, R]:
        if not callable(function):
            raise UsageError(f"@step takes a function, not {function!r}")
        if isinstance(function, staticmethod):
            raise UsageError(f"write @staticmethod above @step at {function_name(function)}, so that the step is the function itself")
        return Step(function, StepOptions(_checked_name(function_name(function) if name is None else name), retry, limit, process))

    return declare if function is None else declare(function)


def function_name(function: Callable[..., Any]) -> str:
    """Return what the history calls a function that has no name given."""
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__name__", type(function).__name__)
    if name == "<lambda>":
        raise UsageError('a lambda has no name for the history: write step(name="...")(function), or a function with a name')
    return str(name)


def _checked_name(name: Any) -> str:
    if not isinstance(name, str) or not 0 < len(name) <= NAME_CHARACTERS_MAX or not name.isprintable() or set(name) & set("/:$"):
        raise UsageError(f"step name {name!r}: write 1 to {NAME_CHARACTERS_MAX} printable characters without '/', ':' and '$'")
    return name


def _checked_retry(retry: Any) -> RetryPolicy:
    if not isinstance(retry, RetryPolicy):
        raise UsageError(f"retry is {retry!r}: write a RetryPolicy(...)")
    return retry


def _checked_timeout(timeout: Duration) -> timedelta:
    try:
        limit = as_duration(timeout, "timeout")
    except ValueError as error:
        raise UsageError(str(error)) from None
    if not limit:
        raise UsageError("timeout is 0: leave it out for no limit")
    return limit
