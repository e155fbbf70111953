"""Runs as the caller sees them: the handle, the view, and the words for their states."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Generic, Protocol

from typing_extensions import TypedDict, TypeVar, Unpack

from outlast.duration import Duration, as_duration
from outlast.errors import ResultPrunedError, RunNotFoundError
from outlast.failure import Failure
from outlast.signal import SignalReceipt, topic_of_run

O = TypeVar("O", default=Any)


class RunStatus(StrEnum):
    """The states of a run. The words are persisted and never change."""

    PENDING = "pending"
    """Claimable now."""
    RUNNING = "running"
    """A worker holds it."""
    WAITING = "waiting"
    """It has a wake time, a topic, or both."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    """The body ended with an error."""
    CANCELED = "canceled"
    DEAD = "dead"
    """It took three workers down."""

    @property
    def is_terminal(self) -> bool:
        return self in _TERMINAL


_TERMINAL = frozenset({RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.CANCELED, RunStatus.DEAD})


class CancelOutcome(StrEnum):
    """What became of a request to cancel."""

    REQUESTED = "requested"
    """Accepted: the run never succeeds; whoever executes it is told."""
    CANCELED = "canceled"
    """It had never run, and is over."""
    ALREADY_OVER = "already_over"
    """Its end had come, or was fixed, before."""


@dataclass(frozen=True, slots=True)
class StepView:
    """One durable call in a run's history, or one in progress."""

    key: str
    kind: str
    status: str
    """`done`, `failed`, `resumed` (with a result that a person gave), `given_up`, `retrying`, `waiting` or `in_progress`."""
    attempts: int
    started_at: datetime | None
    finished_at: datetime | None
    result: str | None = None
    """JSON text."""
    error: Failure | None = None
    due_at: datetime | None = None
    progress: Progress | None = None
    topic: str | None = None
    """What it waits for by name."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What a step last reported."""

    done: float
    total: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class RunView:
    """What is known of a run at one moment. Everything in it is data; the task's code is not needed to read it."""

    id: str
    kind: str
    version: int
    queue: str
    status: RunStatus
    why: str
    """Why it is in this state and not moving, in words for a person."""
    generation: int
    priority: int
    attempts: int
    """How often the body ended with an error."""
    recoveries: int
    """How often it was taken from a dead or silent worker."""
    strikes: int
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    due_at: datetime | None
    deadline_at: datetime | None
    idempotency_key: str | None
    worker: str | None
    input: str
    """JSON text."""
    output: str | None
    """JSON text, once it succeeded."""
    error: Failure | None
    cancel_reason: str | None
    verdict: str | None
    """What a told body did: `acknowledged`, `ignored` or `killed`."""
    warnings: tuple[str, ...]
    tags: tuple[str, ...]
    headers: dict[str, str]
    current_step: str | None
    """The key of the step in progress, of the retry, or of the wait."""
    progress: Progress | None


class SignalOptions(TypedDict, total=False):
    """What may be said of a signal when it is sent. All of it is optional."""

    idempotency_key: str | None
    """The same key, the same signal, for as long as that is kept; per topic."""
    ttl: Duration
    """How long it is kept for runs that have not seen it; 7 days by default."""
    headers: Mapping[str, str] | None
    """Kept with it, for people and tools."""


class RunSource(Protocol):
    """What a handle needs from the engine that gave it."""

    async def get(self, run_id: str, /) -> RunView: ...
    async def cancel(self, run_id: str, /, *, reason: str) -> CancelOutcome: ...
    async def signal(self, topic: str, payload: Any = None, /, **options: Unpack[SignalOptions]) -> SignalReceipt: ...
    async def wait_for_end(self, run_id: str, timeout: float | None, /) -> RunView: ...


class Run(Generic[O]):
    """A handle on one run. It holds no connection and may be kept, dropped or made again from the id."""

    def __init__(self, source: RunSource, run_id: str, decode: Callable[[RunView], O], *, created: bool, was_accepted: bool = False) -> None:
        self._source = source
        self._decode = decode
        self._was_accepted = was_accepted  # an engine has said so: what is not there any more was pruned
        self.id = run_id
        self.created = created
        """False when the idempotency key was there already and this is the run that it belongs to."""

    def __repr__(self) -> str:
        return f"Run({self.id!r})"

    async def result(self, *, timeout: Duration | None = None) -> O:
        """Wait for the end and return what the body returned.

        Raises `RunFailedError`, `RunCanceledError`, `RunDeadError`, `ResultPrunedError`, and `TimeoutError` at the
        time-out. Cancelling the waiter never touches the run.
        """
        seconds = None if timeout is None else as_duration(timeout, "timeout").total_seconds()
        try:
            view = await self._source.wait_for_end(self.id, seconds)
        except RunNotFoundError:
            if not self._was_accepted:
                raise
            raise ResultPrunedError(f"run {self.id} is over, and what it returned was pruned", run_id=self.id) from None
        return self._decode(view)

    async def view(self) -> RunView:
        """Return what is known of the run now."""
        return await self._source.get(self.id)

    async def cancel(self, *, reason: str) -> CancelOutcome:
        """Ask for the run to end as `canceled`; see `TaskEngine.cancel`."""
        return await self._source.cancel(self.id, reason=reason)

    async def signal(self, name: str, payload: Any = None, /, **options: Unpack[SignalOptions]) -> SignalReceipt:
        """Send a signal to this run alone, which waits for it with `ctx.wait_for(ctx.topic(name))`; see `TaskEngine.signal`."""
        return await self._source.signal(topic_of_run(self.id, name), payload, **options)
