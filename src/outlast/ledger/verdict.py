"""Verdict: what an attempt's end says, and what a reconciler's word is worth. Pure.

What it must never do is to take an error for "not done" that was not declared so, or to believe "not done" while something of
the attempt may still be under way.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from outlast.effect import Done, Effect, NotDone, Unsure, Verdict
from outlast.errors import OutlastError, PayloadError, RetryLater, UsageError
from outlast.failure import Failure, capture

from .operation import OperationAttempt, believable_at


class AttemptTimeoutError(OutlastError):
    """An attempt of an effect took longer than its time-out, so that nobody knows whether it was done."""


class AttemptCutOffError(OutlastError):
    """An attempt of an effect was cut off: its process ended, or was silent for too long."""


def timed_out(effect: Effect[..., Any]) -> AttemptTimeoutError:
    return AttemptTimeoutError(f"an attempt of effect {effect.name} took longer than {effect.timeout}")


def is_not_done(effect: Effect[..., Any], error: BaseException) -> bool:
    """Tell whether what `perform` raised says that nothing was done: `NotDone`, or a class that `not_done` names.

    The caller says by asking that the function itself raised it. A time-out, a thread that goes on, or a result that cannot be kept are
    the library's own errors and say nothing of the sort, whatever classes `not_done` names: of those it is not asked.
    """
    return isinstance(error, (NotDone, *effect.options.not_done))


def failure_of(error: BaseException) -> Failure:
    """Return what an attempt raised as data; of `NotDone` the cause, if it has one, because that is what policies and people ask for."""
    if isinstance(error, NotDone) and isinstance(error.cause, BaseException):
        error = error.cause
    return capture(error, is_final=isinstance(error, PayloadError))


def retry_in(effect: Effect[..., Any], error: BaseException, failure: Failure, attempts: int, random: float) -> timedelta | None:
    """Return how long to wait after the attempt number `attempts` that was not done; None when it was the last.

    `error` may be a `RetryLater`, or a `NotDone` whose cause is one: then its delay counts, as long as there are attempts left.
    """
    policy = effect.step.options.retry
    if policy.is_exhausted(attempts, failure):
        return None
    cause = error.cause if isinstance(error, NotDone) else error
    return cause.delay if isinstance(cause, RetryLater) else policy.delay(attempts, random)


def checked_verdict(effect: Effect[..., Any], verdict: Any) -> Verdict[Any]:
    """Return what a reconciler returned; UsageError for anything but the three words."""
    if isinstance(verdict, type) and issubclass(verdict, NotDone | Unsure):
        return verdict()  # written without parentheses, and clear all the same
    if not isinstance(verdict, Done | NotDone | Unsure):
        raise UsageError(f"{effect.name}.reconcile returned {type(verdict).__qualname__}: return Done(result), NotDone() or Unsure(reason)")
    return verdict


def disbelieved_for(verdict: NotDone, attempt: OperationAttempt, now: datetime, died_at: datetime | None = None) -> timedelta:
    """Return how long "not done" is not believed yet; zero when it is.

    Whoever waits asks the reconciler once more afterwards: what it saw before says nothing about what came since.
    """
    if verdict.revoked:
        return timedelta(0)
    return max(believable_at(attempt, died_at) - now, timedelta(0))


@dataclass(frozen=True, slots=True)
class Believed:
    """It was not done, and nothing of the attempt can be under way any more."""


@dataclass(frozen=True, slots=True)
class TooSoon:
    """Something of the attempt may be under way: ask the reconciler once more after this time, counted from when it was asked."""

    rest: timedelta


@dataclass(frozen=True, slots=True)
class Doubted:
    """No time makes it believable: ask a person, for this reason."""

    reason: str


def worth(verdict: NotDone, attempt: OperationAttempt, asked_at: datetime, died_at: datetime | None = None) -> Believed | TooSoon | Doubted:
    """Return what a reconciler's "not done" is worth.

    `asked_at` is the database's time before it looked. `died_at`: since when the attempt's worker is proven dead, and its threads with it;
    while it is not, a thread that nobody waits for any more may do at any time what it was to do, and only what was revoked is believed.
    """
    rest = disbelieved_for(verdict, attempt, asked_at, died_at)
    if rest:
        return TooSoon(rest)
    if attempt.lingers and died_at is None and not verdict.revoked:
        return Doubted("a thread of the attempt still runs")
    return Believed()
