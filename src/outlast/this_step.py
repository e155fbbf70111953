"""`this_step()`: what a running step may know of itself, and how it reaches the world."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any, Generic, Protocol, overload

from typing_extensions import TypeVar

from outlast.errors import CancelRequested, UsageError
from outlast.failure import storable_text
from outlast.limits import CANCEL_GRACE, REASON_CHARACTERS_MAX
from outlast.run import Progress
from outlast.scope import STEP
from outlast.step_key import StepKey

S = TypeVar("S", default=Any)


class ProgressListener(Protocol):
    """Who hears what a step reports; may be called on any thread."""

    def __call__(self, attempt: StepAttempt[Any], progress: Progress, /) -> None: ...


class StepAttempt(Generic[S]):
    """One attempt of one step, as the function that runs in it sees it. Safe to use from any thread of the step."""

    def __init__(
        self,
        *,
        run_id: str,
        key: StepKey | str,
        attempt: int,
        fencing_token: int,
        services: Callable[[], Any],
        log: Callable[[], logging.Logger | logging.LoggerAdapter[Any]],
        last_progress: Progress | None,
        on_progress: ProgressListener,
    ) -> None:
        self.run_id = run_id
        self.attempt = attempt
        """From 1; an attempt that a crash cut off is not counted."""
        self.fencing_token = fencing_token
        """Grows with every claim of the run: hand it to a third system that can refuse an older one."""
        self.last_progress = last_progress
        """What the previous attempt last reported, also when a crash cut it off; None when it reported nothing."""
        self._key = key
        self._log = log
        self._services = services
        self._on_progress = on_progress
        self.grace = CANCEL_GRACE
        """How long its process may take to end once it was told to. Set by the engine."""
        self.was_killed = False
        """Its process did not end when it was told to. Set by the engine."""
        self._canceled = False
        self._reason = ""

    @property
    def key(self) -> str:
        """The text form of the step's key."""
        return str(self._key)

    @property
    def log(self) -> logging.Logger | logging.LoggerAdapter[Any]:
        """A logger that names the run."""
        return self._log()

    @property
    def services(self) -> S:
        """The application's services, as given to `connect(services=...)`."""
        services: S = self._services()
        return services

    @property
    def canceled(self) -> bool:
        """True once the run was canceled, its lease was lost, this attempt timed out, or the body gave it up."""
        return self._canceled

    def raise_if_canceled(self) -> None:
        """Raise `CancelRequested` if `canceled`: how a step in a thread ends early."""
        if self._canceled:
            raise CancelRequested(self._reason)

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Report how far the work is. Kept at most once a second, for steps longer than that; cheap to call often.

        Raises `UsageError` for what is no finite number; what no database takes in `note` is escaped, and a long one cut.
        """
        _ensure_number(done, "done")
        if total is not None:
            _ensure_number(total, "total")
        self._on_progress(self, Progress(done, total, storable_text(str(note), REASON_CHARACTERS_MAX)))

    def tell(self, reason: str) -> None:
        """Tell the attempt to stop. Called by the engine."""
        self._reason = reason
        self._canceled = True


def _ensure_number(value: float, name: str) -> None:
    """One report that cannot be stored would take the reports of every other step with it."""
    if not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
        raise UsageError(f"progress was called with {name}={value!r:.80}: write a finite number")


@overload
def this_step() -> StepAttempt[Any]: ...
@overload
def this_step(services: type[S], /) -> StepAttempt[S]: ...
def this_step(services: type[Any] | None = None, /) -> StepAttempt[Any]:
    """Return the attempt that this code runs in; `services` is their type, for the type checker.

    Raises `UsageError` outside of a step.
    """
    see = STEP.get()
    if see is None:
        raise UsageError("this_step() works inside a step that a task runs; in a body use ctx, and in a plain call pass what is needed")
    return see()
