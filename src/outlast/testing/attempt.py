"""An attempt of an effect for tests that call its functions directly. Nothing of it is stored, and no engine knows of it."""

from __future__ import annotations

import logging
from typing import Any

from typing_extensions import TypeVar

from outlast.effect import Attempt
from outlast.run import Progress
from outlast.this_step import StepAttempt

S = TypeVar("S", default=None)


def attempt_of(
    services: S = None,  # type: ignore[assignment]  # the default of the type variable is None
    /,
    *,
    key: str = "test",
    number: int = 1,
    token: int | None = None,
    last_progress: Progress | None = None,
    canceled: str = "",
) -> Attempt[S]:
    """Return an attempt to call an effect, its reconciler or its undo with; without a token, that is its number.

    `canceled` is the reason for which it was told to end: then `attempt.canceled` is true, as it is for a thread after its
    time-out. What it reports with `progress` goes nowhere.
    """
    around: StepAttempt[S] = StepAttempt(
        run_id="",
        key="test",
        attempt=number,
        fencing_token=number,
        services=lambda: services,
        log=lambda: logging.getLogger("outlast"),
        last_progress=last_progress,
        on_progress=_forget,
    )
    if canceled:
        around.tell(canceled)
    return Attempt(around, key=key, number=number, token=number if token is None else token)


def _forget(attempt: StepAttempt[Any], progress: Progress, /) -> None:
    """Hear a report that nobody keeps."""
