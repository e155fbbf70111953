"""RunDriver: the small port between Context and an engine.

`Context` checks, names and numbers calls; a driver remembers them. Every engine implements this, and nothing else of a
body's life is an engine's business.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

import msgspec

from outlast.effect import Effect
from outlast.step import Step
from outlast.step_key import StepKey
from outlast.transaction import OwnDatabase


class RunFacts(msgspec.Struct, frozen=True):
    """What does not change while a run is executed."""

    run_id: str
    kind: str
    version: int
    generation: int
    seed: int
    deadline: datetime | None
    headers: dict[str, str]


class StepCall(msgspec.Struct, frozen=True, gc=False):
    """A step to be performed: what it is and what it was given."""

    step: Step[..., Any]
    arguments: str
    """JSON text, empty for none."""
    digest: str
    on: Any = None
    """What to begin a transaction on, in which the step runs; None for a step that is no transaction."""
    effect: Effect[..., Any] | None = None
    """What the step is the `perform` of; None for a step that is no effect."""


@dataclass(frozen=True, slots=True)
class Timer:
    """A wait until an instant; `is_timeout` when it ends a block instead of being awaited."""

    due_at: datetime
    is_timeout: bool = False


class Handed(asyncio.Future[Any]):
    """What a body awaits for a durable call: done when the call's record is handed over, in its turn."""


class RunDriver(Protocol):
    """One execution of one run. All methods are called on the loop that runs the body.

    After the run was canceled every method raises `CancelRequested`; while the body is being closed every method
    raises an exception that is no `Exception`. A key is used once.
    """

    @property
    def facts(self) -> RunFacts: ...

    @property
    def services(self) -> Any: ...

    @property
    def database(self) -> OwnDatabase:
        """The engine's own database, for transactional steps."""
        ...

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """Silent while the body replays."""
        ...

    def now(self) -> datetime:
        """Return the time of the record that was handed over last."""
        ...

    def perform(self, key: StepKey, call: StepCall) -> asyncio.Future[Any]:
        """Perform a step, once it has not been performed before; the future holds its decoded result or `StepFailedError`."""
        ...

    def wait(self, key: StepKey, timer: Timer) -> asyncio.Future[Any]:
        """Wait until an instant. Parks the run when it is far and nothing else goes on."""
        ...

    def give_up(self, key: StepKey) -> None:
        """Withdraw from a call whose future was canceled: it replays as given up."""
        ...
