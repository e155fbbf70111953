"""Endings: how an execution leaves `running`, as the one checkpoint that it writes. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from outlast.errors import FinalError, RetryLater, StepFailedError
from outlast.failure import Failure, capture
from outlast.ids import jitter
from outlast.limits import ERROR_CAUSES_MAX
from outlast.retry import RetryPolicy
from outlast.run import RunStatus
from outlast.step_key import StepKey

from .history import Wait
from .store import ClaimedRun, RunCheckpoint


class Ending(msgspec.Struct, frozen=True):
    """What is written when an execution ends; nothing when the claim is not ours any more."""

    checkpoint: RunCheckpoint | None
    reason: str = ""


def succeeded(claim: ClaimedRun, output: str, warnings: Sequence[str], *, may_have_asked: bool = False) -> Ending:
    return _ending(claim, RunStatus.SUCCEEDED, output=None if output == "null" else output, warnings=warnings, may_have_asked=may_have_asked)


def parked(claim: ClaimedRun, due_at: datetime | None, waits: tuple[Wait, ...]) -> Ending:
    return _ending(claim, RunStatus.WAITING, due_at=due_at, waits=waits)


def released(claim: ClaimedRun) -> Ending:
    """Hand the run back as it is. It passes a cancel, which the next claim meets."""
    return _ending(claim, RunStatus.PENDING, passes_cancel=True)


def canceled(claim: ClaimedRun, reason: str, verdict: str | None) -> Ending:
    return _ending(claim, RunStatus.CANCELED, error=Failure("outlast.Canceled", reason), verdict=verdict, passes_cancel=True)


def overdue(claim: ClaimedRun, verdict: str | None) -> Ending:
    error = Failure("outlast.DeadlineExceeded", f"the deadline {claim.deadline_at} has passed")
    return _ending(claim, RunStatus.FAILED, error=error, verdict=verdict, passes_cancel=True)


def failed(claim: ClaimedRun, error: BaseException, warnings: Sequence[str] = (), failed_key: StepKey | None = None) -> Ending:
    """End it without counting an attempt: the code, or a stored value, does not fit."""
    return _ending(claim, RunStatus.FAILED, error=capture(error), failed_key=failed_key, warnings=warnings)


def ended_with(claim: ClaimedRun, policy: RetryPolicy, error: BaseException, keys: Mapping[str, StepKey], now: datetime, warnings: Sequence[str]) -> Ending:
    """The body raised: another attempt after a delay, or `failed`. Either way the step that failed it is named."""
    failure = capture(error, is_final=isinstance(error, FinalError))
    step = find_failed_step(error)
    key = keys.get(step.step) if step is not None else None
    attempts = claim.attempts + 1
    if policy.is_exhausted(attempts, failure):
        return _ending(claim, RunStatus.FAILED, attempts=attempts, error=failure, failed_key=key, warnings=warnings)
    delay = error.delay if isinstance(error, RetryLater) else policy.delay(attempts, jitter())
    return _ending(claim, RunStatus.WAITING, attempts=attempts, error=failure, due_at=now + delay, retire=key, warnings=warnings)


def find_failed_step(error: BaseException | None, budget: int = ERROR_CAUSES_MAX) -> StepFailedError | None:
    """Return the step failure behind an error: the error itself, a member of a group, or what it was raised from."""
    if error is None or budget == 0 or isinstance(error, StepFailedError):
        return error if isinstance(error, StepFailedError) else None
    members = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    for other in (*members, error.__cause__, error.__context__):
        found = find_failed_step(other, budget - 1)
        if found is not None:
            return found
    return None


def _ending(
    claim: ClaimedRun,
    status: RunStatus,
    *,
    due_at: datetime | None = None,
    waits: tuple[Wait, ...] = (),
    attempts: int | None = None,
    output: str | None = None,
    error: Failure | None = None,
    failed_key: StepKey | None = None,
    retire: StepKey | None = None,
    verdict: str | None = None,
    warnings: Sequence[str] = (),
    passes_cancel: bool = False,
    may_have_asked: bool = False,
) -> Ending:
    checkpoint = RunCheckpoint(
        hold=claim.hold,
        generation=claim.generation,
        status=status,
        due_at=due_at,
        waits=waits,
        attempts=claim.attempts if attempts is None else attempts,
        output=output,
        error=error,
        failed_key=failed_key,
        retire=retire,
        verdict=verdict,
        warnings=tuple(warnings),
        passes_cancel=passes_cancel,
        idempotency_key=claim.idempotency_key,
        may_have_asked=may_have_asked,
    )
    return Ending(checkpoint, error.message if error is not None else "")
