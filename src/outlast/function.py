"""A function as it is declared: its name, its parameters and result with their annotations resolved.

Knows functions, bound methods (without self), partial objects, classes and objects that can be called. Never calls one.
"""

import functools
import inspect
import types
import typing
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from inspect import Parameter
from typing import Any, get_args, get_origin

from outlast.errors import UsageError


def name_of(function: Callable[..., Any]) -> str:
    """Return `module.qualname`, for messages."""
    inner = function.func if isinstance(function, functools.partial) else function
    named = inner if hasattr(inner, "__qualname__") else type(inner)
    return f"{named.__module__}.{named.__qualname__}"


def parameters_of(function: Callable[..., Any], *, supplied: int = 0) -> Sequence[Parameter]:
    """Return the parameters that a caller gives, all but the first `supplied`; UsageError for an annotation that cannot be resolved."""
    parameters = list(_declared(function).parameters.values())[supplied:]
    return [parameter.replace(annotation=_resolved(function, parameter.name, parameter.annotation)) for parameter in parameters]


def result_of(function: Callable[..., Any]) -> Any:
    """Return the annotation of what the caller gets, after awaiting it where it can be awaited."""
    if inspect.isclass(function):
        return function
    annotation = _resolved(function, "return", _declared(function).return_annotation)
    arguments = get_args(annotation)
    if inspect.iscoroutinefunction(_inner(function)):
        return annotation
    if get_origin(annotation) in (Coroutine, Awaitable) and arguments:
        return arguments[-1]
    return Any if annotation in (Coroutine, Awaitable, typing.Coroutine, typing.Awaitable) else annotation


def _declared(function: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{name_of(function)} does not tell its parameters; wrap it in a function of your own") from error
    except NameError as error:
        raise UsageError(f"{name_of(function)}: {error}; import it at module level, not under TYPE_CHECKING") from error


def _resolved(function: Callable[..., Any], name: str, annotation: Any) -> Any:
    if annotation is Parameter.empty or isinstance(annotation, typing.ParamSpecArgs | typing.ParamSpecKwargs):
        return Any
    if annotation is typing.NoReturn or annotation is typing.Never:
        return Any
    # One at a time, so that the message can say which one it is, and a parameter that does not travel is never looked at.
    holder = types.SimpleNamespace(__annotations__={name: annotation})
    try:
        return typing.get_type_hints(holder, getattr(_inner(function), "__globals__", {}), include_extras=True)[name]
    except Exception as error:  # evaluating an annotation can raise anything; each means that nobody can tell the type
        place = "its result" if name == "return" else f"parameter {name!r}"
        raise UsageError(
            f"{name_of(function)}: the annotation of {place} cannot be resolved ({error}); import what it names at module level, not under TYPE_CHECKING"
        ) from error


def _inner(function: Any) -> Any:
    """Return the function in which the annotations were written."""
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isclass(function):
        return inspect.unwrap(function.__init__)
    if isinstance(function, types.MethodType):
        function = function.__func__
    if not hasattr(function, "__globals__") and not hasattr(function, "__wrapped__") and not inspect.isbuiltin(function):
        function = type(function).__call__
    return inspect.unwrap(function)
