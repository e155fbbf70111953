"""The exceptions, one tree whose branches are the reader's possible reactions.

    OutlastError
    |-- UsageError                    fix the code or the call
    |   |-- UnknownTaskError
    |   |-- PayloadError
    |   |-- LimitExceededError
    |   |-- HistoryMismatchError
    |   |-- IdempotencyConflictError
    |   |   `-- SignalConflictError
    |   |-- OperationConflictError
    |   `-- NotSupportedError
    |-- RunError                      it concerns one run
    |   |-- RunNotFoundError
    |   |-- RunFailedError
    |   |-- RunCanceledError
    |   |-- RunDeadError
    |   |-- ResultPrunedError
    |   |-- StepFailedError           inside a body
    |   |   |-- StepStuckError
    |   |   `-- EffectFailedError
    |   `-- WaitTimeoutError          inside a body
    |-- LeaseLostError                stop quietly: somebody else has the run
    |-- UnavailableError              try again: the database did not answer
    |   `-- CommitUnknownError        the same, and it may have been done
    |-- EffectError                   somebody may have to look
    |   |-- OperationInProgressError
    |   `-- OperationUnsureError
    |-- SchemaError                   run the migrations, or deploy the code that fits
    `-- (raised by steps on purpose)  FinalError, RetryLater

`CancelRequested` is an `asyncio.CancelledError`, so that code which catches `Exception` lets it pass.
"""

import asyncio
from datetime import timedelta
from typing import Any, ClassVar

from outlast.duration import Duration, as_duration
from outlast.failure import Failure


class OutlastError(Exception):
    """Something went wrong in outlast."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").strip())

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle by what was set: the constructors below take facts, not the message that they make of them."""
        return _restored, (type(self), self.args, self.__dict__)


def _restored(cls: type[OutlastError], args: tuple[Any, ...], facts: dict[str, Any]) -> OutlastError:
    error = cls.__new__(cls, *args)
    error.__dict__.update(facts)
    return error


class UsageError(OutlastError):
    """The library was called in a way that cannot work; the message says what to write instead."""


class UnknownTaskError(UsageError):
    """The engine was not given this task: add it to `connect(tasks=...)`, or enqueue by `task_ref(...)`."""


class PayloadError(UsageError):
    """A value cannot be stored or read as its type; the message names the field."""

    def __init__(self, message: str, *, field: str = "") -> None:
        super().__init__(message)
        self.field = field


class LimitExceededError(UsageError):
    """Something is larger than a bound; the message names the number and the remedy."""


class HistoryMismatchError(UsageError):
    """The code asks for something else than what this run's history holds, so nothing was performed.

    Deploy code that fits the history and retry the run, or mark an added step with `with_options(inserted=True)`.
    """

    def __init__(self, expected: str, got: str) -> None:
        super().__init__(f"the history has {expected}, but the code asked for {got}; nothing was performed. Deploy code that fits and retry the run")
        self.expected = expected
        self.got = got


class IdempotencyConflictError(UsageError):
    """The idempotency key was used before with another input."""

    def __init__(self, kind: str, key: str, run_id: str) -> None:
        super().__init__(f"key {key!r} of {kind} belongs to run {run_id}, which has another input; use another key, or the same input")
        self.kind = kind
        self.key = key
        self.run_id = run_id


class SignalConflictError(IdempotencyConflictError):
    """The idempotency key was used before on this topic with another payload, and nothing was sent."""

    def __init__(self, topic: str, key: str, signal_id: str) -> None:
        message = f"key {key!r} of topic {topic!r} belongs to signal {signal_id}, which has another payload; use another key, or the same payload"
        UsageError.__init__(self, message)
        self.topic = topic
        self.key = key
        self.signal_id = signal_id


class OperationConflictError(UsageError):
    """The key of an effect's operation was used before with other arguments."""

    def __init__(self, effect: str, key: str) -> None:
        super().__init__(f"key {key!r} of effect {effect} belongs to an operation with other arguments; use another key, or the same arguments")
        self.effect = effect
        self.key = key


class NotSupportedError(UsageError):
    """This engine cannot do that; the message names the alternative."""


class RunError(OutlastError):
    """Something about one run."""

    def __init__(self, message: str, *, run_id: str = "") -> None:
        super().__init__(message)
        self.run_id = run_id


class RunNotFoundError(RunError):
    """There is no run with this id."""


class RunFailedError(RunError):
    """The run ended with an error, which is data in `error`."""

    def __init__(self, run_id: str, error: Failure) -> None:
        super().__init__(f"run {run_id} failed: {error}", run_id=run_id)
        self.error = error


class RunCanceledError(RunError):
    """The run was canceled."""

    def __init__(self, run_id: str, reason: str) -> None:
        super().__init__(f"run {run_id} was canceled: {reason}", run_id=run_id)
        self.reason = reason


class RunDeadError(RunError):
    """The run took three workers down and is not executed any more."""

    def __init__(self, run_id: str, error: Failure) -> None:
        super().__init__(f"run {run_id} is dead: {error}", run_id=run_id)
        self.error = error


class ResultPrunedError(RunError):
    """The run is over, and retention has removed what it returned."""


class StepFailedError(RunError):
    """A step failed for good inside a body; `error` is data, and `is_a` compares it with a class."""

    noun: ClassVar[str] = "step"

    def __init__(self, step: str, attempts: int, error: Failure) -> None:
        super().__init__(f"{self.noun} {step} failed after {attempts} attempt{'s' if attempts != 1 else ''}: {error}")
        self.step = step
        self.attempts = attempts
        self.error = error

    def is_a(self, error: type[BaseException]) -> bool:
        """Tell whether the step raised this class or one below it, by recorded names."""
        return self.error.is_a(error)


class StepStuckError(StepFailedError):
    """A step attempt timed out in a thread and did not end within one more time-out, so another must not begin beside it."""


class EffectFailedError(StepFailedError):
    """An effect is known not to have been done, and is not tried again; `outlast show` has its attempts."""

    noun = "effect"


class WaitTimeoutError(RunError):
    """A durable wait reached its time-out."""


class LeaseLostError(OutlastError):
    """Another worker holds this run now, or this worker was declared dead; what was to be written is refused."""


class UnavailableError(OutlastError):
    """The database did not answer; nothing is known to be wrong with the call, so try it again."""


class CommitUnknownError(UnavailableError):
    """The connection broke while a transaction was being committed: it is there or it is not, and reading tells."""


class EffectError(OutlastError):
    """Something about one operation of an effect, at which somebody may have to look."""

    def __init__(self, message: str, *, effect: str = "", key: str = "") -> None:
        super().__init__(message)
        self.effect = effect
        self.key = key


class OperationInProgressError(EffectError):
    """Somebody else acts for this operation and has not finished; nothing was done here, so call again later."""

    def __init__(self, effect: str, key: str, run: str = "") -> None:
        who = f"run {run}" if run else "another caller"
        super().__init__(f"effect {effect} with key {key!r} is in progress: {who} acts for it; call again later", effect=effect, key=key)
        self.run = run


class OperationUnsureError(EffectError):
    """Nobody can tell whether the effect was done: a person was asked, and it is called again after the answer."""

    def __init__(self, effect: str, key: str, decision: str) -> None:
        super().__init__(
            f"nobody can tell whether effect {effect} with key {key!r} was done: answer decision {decision}, and call again", effect=effect, key=key
        )
        self.decision = decision


class SchemaError(OutlastError):
    """The database's schema does not fit this code: run `outlast migrate`, or deploy the code that fits."""


class FinalError(OutlastError):
    """Raise it in a step, or in a body, to fail without another attempt."""


class RetryLater(OutlastError):  # noqa: N818 - named for what a step says by raising it, not for a fault
    """Raise it in a step to try again after a delay of your own choice, as long as the policy has attempts left."""

    def __init__(self, delay: Duration, message: str | None = None) -> None:
        self.delay: timedelta = as_duration(delay, "delay")
        super().__init__(message or f"try again in {delay}")


class CancelRequested(asyncio.CancelledError):
    """The run was canceled, reached its deadline or lost its lease; clean up and let it pass."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
