"""RunDriver: the small port between Context and an engine.

`Context` checks, names and numbers calls; a driver remembers them. Every engine implements this, and nothing else of a
body's life is an engine's business.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

import msgspec

from outlast.effect import Effect
from outlast.payload import Codec, digest
from outlast.signal import Answer, Signal
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


@dataclass(frozen=True, slots=True)
class TopicWait:
    """A wait for the next signal on a topic that this run has not seen."""

    topic: str
    payload: Codec
    due_at: datetime | None
    """When it ends without one."""

    @property
    def digest(self) -> str:
        return digest(self.topic)

    def decode(self, text: str) -> Signal[Any] | None:
        """Return the signal of a record, or None for one that ended without."""
        kept = msgspec.json.decode(text, type=KeptSignal | None)
        return None if kept is None else Signal(kept.id, self.payload.decode(bytes(kept.payload).decode(), f"signal on {self.topic}"), kept.sent_at)


class KeptSignal(msgspec.Struct, frozen=True):
    """A signal as a record has it."""

    id: str
    payload: msgspec.Raw
    sent_at: datetime


@dataclass(frozen=True, slots=True)
class Condition:
    """A wait for the first truthy value of a check, which is asked again and again."""

    check: StepCall
    topic: str | None
    """What hurries the next check."""
    every: timedelta
    due_at: datetime | None

    @property
    def digest(self) -> str:
        return self.check.digest

    def decode(self, text: str) -> tuple[Any] | None:
        """Return the value of a record in a tuple, or None for one that ended without."""
        kept = msgspec.json.decode(text, type=list[msgspec.Raw] | None)
        if kept is None:
            return None
        step = self.check.step
        return (step.signature.result.decode(bytes(kept[0]).decode(), step.result_field),)


@dataclass(frozen=True, slots=True)
class Question:
    """A question put to a person."""

    text: str
    options: tuple[str, ...]
    about: str
    """JSON text."""
    due_at: datetime | None

    @property
    def digest(self) -> str:
        return digest(self.text)

    def decode(self, text: str) -> Answer | None:
        """Return the answer of a record, or None for one that ended without."""
        return msgspec.json.decode(text, type=Answer | None)


@dataclass(frozen=True, slots=True)
class Message:
    """A signal to be sent, in the transaction that records it."""

    topic: str
    payload: str
    """JSON text."""
    ttl: timedelta
    due_at: datetime | None = None
    """It waits for nothing."""

    @property
    def digest(self) -> str:
        return digest(f"{self.topic} {self.payload}")

    def decode(self, text: str) -> None:
        """A send has no result."""


Awaited = TopicWait | Condition | Question | Message


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

    def wait_for(self, key: StepKey, awaited: Awaited) -> asyncio.Future[Any]:
        """Wait for a signal, a condition or an answer, or send a signal; the future holds what `awaited.decode` makes of the record."""
        ...

    def give_up(self, key: StepKey) -> None:
        """Withdraw from a call whose future was canceled: it replays as given up."""
        ...
