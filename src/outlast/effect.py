"""Effects: steps that touch the outside world, which are never repeated blindly.

An effect is a function `perform` and, beside it, how to find out afterwards whether it was done (`reconcile`) and how to
take it back (`undo`). This file holds what is declared and the words that these functions say; it performs nothing.
"""

from __future__ import annotations

import inspect
import logging
import unicodedata
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Concatenate, Generic, ParamSpec, overload

from typing_extensions import TypeVar

from outlast.duration import Duration, as_duration
from outlast.errors import OutlastError, UsageError
from outlast.limits import EFFECT_SETTLE, EFFECT_TIMEOUT, IDEMPOTENCY_KEY_CHARACTERS_MAX
from outlast.retry import STEP_DEFAULT, RetryPolicy
from outlast.run import Progress
from outlast.step import Step, StepOptions, step
from outlast.this_step import StepAttempt

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", default=Any)
R_co = TypeVar("R_co", covariant=True)


class Attempt(Generic[S]):
    """One attempt of an effect, as `perform`, `reconcile` and `undo` see it. Safe to use from any thread of the effect."""

    def __init__(self, step_attempt: StepAttempt[S], *, key: str, number: int, token: int, started_at: datetime | None = None) -> None:
        self._step = step_attempt
        self.key = key
        """Of the operation, the same for every attempt: hand it to a provider that remembers idempotency keys."""
        self.number = number
        """From 1. `reconcile` and `undo` get the attempt that they are about."""
        self.token = token
        """From one sequence for the whole store, so that a later attempt has a greater one, whoever makes it: hand it to a
        provider that can refuse an older one."""

        self.started_at = started_at
        """When it began, by the database's clock; for a reconciler that of the attempt which is asked about."""

    @property
    def run_id(self) -> str:
        """Of the run that makes the attempt; empty without an engine."""
        return self._step.run_id

    @property
    def services(self) -> S:
        return self._step.services

    @property
    def log(self) -> logging.Logger | logging.LoggerAdapter[Any]:
        return self._step.log

    @property
    def last_progress(self) -> Progress | None:
        """What the previous attempt last reported; None when it reported nothing."""
        return self._step.last_progress

    @property
    def canceled(self) -> bool:
        return self._step.canceled

    def raise_if_canceled(self) -> None:
        """Raise `CancelRequested` if `canceled`: how an effect in a thread ends early."""
        self._step.raise_if_canceled()

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Report how far the work is; see `StepAttempt.progress`."""
        self._step.progress(done, total, note)


@dataclass(frozen=True, slots=True)
class Done(Generic[R_co]):
    """The effect was done, and this is its result. Always believed."""

    result: R_co


class NotDone(OutlastError):  # noqa: N818 - named for what an effect says by raising or returning it, not for a fault
    """The effect was not done.

    Raised by `perform` it is a failed attempt, and another follows by the policy. Returned by `reconcile` it is believed only
    once nothing of the attempt can be under way any more: `timeout` and `settle` after it began, or `settle` after its
    worker was proven dead. `revoked=True` says more, and is believed at once: the reconciler has seen to it that the
    attempt cannot take effect any more, whoever still executes it (it took away the file that would be renamed, it
    voided the order at the provider).
    """

    def __init__(self, cause: BaseException | str | None = None, *, revoked: bool = False) -> None:
        super().__init__(str(cause) if cause is not None else "it was not done")
        self.cause = cause
        self.revoked = revoked
        if isinstance(cause, BaseException):
            self.__cause__ = cause


@dataclass(frozen=True, slots=True)
class Unsure:
    """Nobody can tell: a person is asked."""

    reason: str = ""


Verdict = Done[R] | NotDone | Unsure
"""What `reconcile` returns."""


@dataclass(frozen=True, slots=True)
class EffectOptions:
    """What may be said of an effect beside what is said of a step."""

    not_done: tuple[type[BaseException], ...] = ()
    """Raised by `perform`, these say that nothing was done."""
    settle: timedelta = EFFECT_SETTLE
    """How long what a dead or timed-out client has sent may still be served."""
    key: str | None = None
    """Names the operation, across runs; None for one of its own in each run."""


class Effect(Generic[P, R]):
    """A function that was declared an effect. Outside of a task it is called with an `Attempt`, in tests for one."""

    def __init__(self, perform: Step[..., Any], options: EffectOptions) -> None:
        self.base = self
        """Where reconciler and undoer are declared: options for one call change nothing about them."""
        self.step = perform
        """`perform`, with its name, policy and time-out; the engine gives it the attempt first."""
        self.options = options
        self._reconciler: Step[..., Any] | None = None
        self._undoer: Step[..., Any] | None = None
        self.__name__ = perform.__name__
        self.__doc__ = perform.__doc__
        self.__module__ = perform.function.__module__
        self.__qualname__ = getattr(perform.function, "__qualname__", perform.__name__)

    def __repr__(self) -> str:
        return f"<effect {self.step.options.name}>"

    @property
    def name(self) -> str:
        """What the history and the ledger call it."""
        return self.step.options.name

    @property
    def timeout(self) -> timedelta:
        """Of one attempt."""
        assert self.step.options.timeout is not None  # given by the decorator
        return self.step.options.timeout

    @property
    def reconciler(self) -> Step[..., Any] | None:
        """What finds out whether an attempt was done, if it was declared."""
        return self.base._reconciler

    @property
    def undoer(self) -> Step[..., Any] | None:
        """What takes it back, if that was declared."""
        return self.base._undoer

    @property
    def place(self) -> str:
        """`module:qualname`, by which a process that has imported it finds it."""
        return f"{self.__module__}:{self.__qualname__}"

    def reconcile(
        self, function: Callable[Concatenate[Attempt[Any], P], Awaitable[Done[R] | NotDone | Unsure] | Done[R] | NotDone | Unsure]
    ) -> Callable[Concatenate[Attempt[Any], P], Any]:
        """Declare how to find out whether an attempt was done: it gets that attempt and the arguments, and does nothing again.

        It may see to it that the attempt cannot take effect any more, and clear up what is left of it.
        Asked after an attempt whose outcome nobody knows, on another worker too. It may be asked again and again.
        """
        self.base._reconciler = _part_of(self, function, "reconcile", supplied=1)
        return function

    def undo(self, function: Callable[Concatenate[Attempt[Any], R, P], Any]) -> Callable[Concatenate[Attempt[Any], R, P], Any]:
        """Declare how to take it back: it gets the attempt that did it, its result and the arguments.

        It may run again after a crash, so what is gone already must be no error. Run when a run rolls back.
        """
        self.base._undoer = _part_of(self, function, "undo", supplied=2)
        return function

    def __call__(self, attempt: Attempt[Any], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call `perform` directly: in tests. In a task body it would run without the ledger, so it is refused there."""
        result: R = self.step(attempt, *args, **kwargs)
        return result

    def with_options(
        self,
        *,
        name: str | None = None,
        retry: RetryPolicy | None = None,
        timeout: Duration | None = None,
        settle: Duration | None = None,
        inserted: bool | None = None,
        key: str | None = None,
    ) -> Effect[P, R]:
        """Return the same effect with other options for one call.

        `key` names the operation for every run that uses it: whoever comes second gets the first one's result, and other
        arguments under one key are a conflict. 1 to 512 characters.
        """
        options = replace(self.options, settle=self.options.settle if settle is None else _checked_settle(settle), key=_checked_key(key) or self.options.key)
        perform = self.step.with_options(name=name, retry=retry, timeout=timeout, inserted=inserted)
        perform.supplied = 1
        changed: Effect[P, R] = Effect(perform, options)
        changed.base = self.base
        changed.__qualname__ = self.__qualname__
        return changed


_DECLARED: dict[str, Effect[..., Any]] = {}


def find_effect(place: str) -> Effect[..., Any] | None:
    """Return the effect that was declared at `module:qualname`, if this process has imported it. Nothing is imported for it."""
    return _DECLARED.get(place)


@overload
def effect(function: Callable[Concatenate[Attempt[Any], P], Awaitable[R]], /) -> Effect[P, R]: ...
@overload
def effect(function: Callable[Concatenate[Attempt[Any], P], R], /) -> Effect[P, R]: ...
@overload
def effect(
    *,
    name: str | None = None,
    retry: RetryPolicy = STEP_DEFAULT,
    timeout: Duration = EFFECT_TIMEOUT,
    not_done: type[BaseException] | tuple[type[BaseException], ...] = (),
    settle: Duration = EFFECT_SETTLE,
) -> _Declare: ...
def effect(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    retry: RetryPolicy = STEP_DEFAULT,
    timeout: Duration = EFFECT_TIMEOUT,
    not_done: type[BaseException] | tuple[type[BaseException], ...] = (),
    settle: Duration = EFFECT_SETTLE,
) -> Any:
    """Declare a function an effect; its first parameter is the `Attempt`. With or without options.

    Args:
        name: What the history and the ledger call it; the function's own name by default. Frozen once runs have used it.
        retry: How often an attempt that is known not to have been done is followed by another; 3 attempts by default.
        timeout: Of one attempt; 60 seconds by default. A coroutine is canceled at it, a thread is told. What it did by then is
            not known.
        not_done: Exceptions of `perform` that say that nothing was done, such as a refused connection.
        settle: How much longer what was sent may still be served, 10 seconds by default: until then a reconciler's "not done"
            is not believed.

    Any other exception, a time-out and a crash leave an attempt of which nobody knows whether it was done. The reconciler is
    asked then; without one, or when it is unsure, a person is. A result is recorded only by the attempt that is current.
    """
    errors = not_done if isinstance(not_done, tuple) else (not_done,)
    if not all(isinstance(error, type) and issubclass(error, BaseException) for error in errors):
        raise UsageError(f"not_done is {not_done!r}: write an exception class, or a tuple of them")
    options = EffectOptions(errors, _checked_settle(settle))
    if timeout is None:
        raise UsageError("timeout is None: every effect has one, because until then nobody believes that it was not done; write a long one, such as '1d'")
    declare_step = step(name=name, retry=retry, timeout=timeout)

    def declare(function: Callable[..., Any]) -> Effect[..., Any]:
        declared = declare_step(function)
        _check_first_parameter(function, declared.options.name)
        declared.supplied = 1
        made: Effect[..., Any] = Effect(declared, options)
        if "<locals>" not in made.place and made.__module__ != "__main__":  # neither what a function makes nor a program's main file is one place
            _DECLARED[made.place] = made
        return made

    return declare if function is None else declare(function)


class _Declare:
    """What `effect(...)` with options returns, for the type checker."""

    @overload
    def __call__(self, function: Callable[Concatenate[Attempt[Any], P], Awaitable[R]], /) -> Effect[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Attempt[Any], P], R], /) -> Effect[P, R]: ...
    def __call__(self, function: Any, /) -> Any: ...


def _part_of(whole: Effect[..., Any], function: Callable[..., Any], part: str, *, supplied: int) -> Step[..., Any]:
    if not callable(function):
        raise UsageError(f"@{whole.name}.{part} takes a function, not {function!r}")
    wanted = _shape(whole.step.function, 1)
    given = _shape(function, supplied)
    if wanted != given:
        raise UsageError(
            f"{whole.name}.{part} takes {given or 'nothing'} after what the engine gives, and {whole.name} takes {wanted or 'nothing'}: make them the same"
        )
    return Step(function, StepOptions(f"{whole.name}.{part}", whole.step.options.retry, whole.step.options.timeout), supplied)


def _shape(function: Callable[..., Any], supplied: int) -> str:
    """Return the parameters that a caller gives, by name and kind."""
    parameters = list(inspect.signature(function).parameters.values())[supplied:]
    return ", ".join(str(parameter.replace(annotation=parameter.empty, default=parameter.empty)) for parameter in parameters)


def _check_first_parameter(function: Callable[..., Any], name: str) -> None:
    first = next(iter(inspect.signature(function).parameters.values()), None)
    if first is None or first.kind not in (first.POSITIONAL_ONLY, first.POSITIONAL_OR_KEYWORD) or first.name in ("self", "cls"):
        raise UsageError(
            f"effect {name} must be a function whose first parameter is the attempt: write {name}(attempt: Attempt, ...); reach objects by attempt.services"
        )


def _checked_settle(settle: Duration) -> timedelta:
    try:
        return as_duration(settle, "settle")
    except ValueError as error:
        raise UsageError(str(error)) from None


def _checked_key(key: Any) -> str | None:
    if key is not None and (
        not isinstance(key, str) or not 0 < len(key) <= IDEMPOTENCY_KEY_CHARACTERS_MAX or not key.isprintable() or not unicodedata.is_normalized("NFC", key)
    ):
        raise UsageError(f"key {key!r:.80}: write 1 to {IDEMPOTENCY_KEY_CHARACTERS_MAX} printable characters in the Unicode form NFC")
    return key
