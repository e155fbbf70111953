"""TaskEngine: the port that applications depend on, and Capabilities: what an engine can and cannot do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, overload

from typing_extensions import TypedDict, TypeVar, Unpack

from outlast.duration import Duration
from outlast.run import CancelOutcome, Run, RunView, SignalOptions
from outlast.signal import SignalReceipt
from outlast.task_ref import TaskRef

I = TypeVar("I")
O = TypeVar("O")


@dataclass(frozen=True)
class Capabilities:
    """What an engine can do. It decides which conformance tests apply, and asking for the rest is a `NotSupportedError`."""

    engine: str
    """Its name, for people."""
    has_idempotency_keys: bool = True
    has_priorities: bool = True
    has_deadlines: bool = True
    has_delays: bool = True
    has_operator_retry: bool = True
    has_upkeep: bool = True
    """Queues are paused, dead letters discarded, old runs pruned, and stranded ones named."""
    has_process_steps: bool = True
    has_fencing_tokens: bool = True
    keeps_keys_for_ever: bool = True
    """An idempotency key holds as long as keys are kept, also after its run was pruned."""
    proves_death: bool = True
    """A killed worker's runs go on before its lease is over."""
    payload_bytes_max: int = 1 << 20


class EnqueueOptions(TypedDict, total=False):
    """What may be said of a run when it is enqueued. All of it is optional."""

    idempotency_key: str | None
    """The same key, the same run, for as long as keys are kept; per kind. `Run.created` tells."""
    available_at: datetime | None
    """Not before this instant, which must be aware."""
    delay: Duration | None
    """Not before this has passed; not together with `available_at`."""
    priority: int
    """-100 to 100, smaller first, 0 by default. One run in ten is taken by age alone, so none waits for ever."""
    queue: str
    """`default` by default."""
    deadline: datetime | None
    """A run that is not over by then ends `failed`."""
    tags: Sequence[str]
    """For people who filter."""
    headers: Mapping[str, str] | None
    """Sent along, and shown to the body as `ctx.headers`."""


class TaskEngine(Protocol):
    """Durable execution of tasks.

    Everything a caller gets an answer for has been committed. What could not be stored raises within ten seconds:
    `UnavailableError` when the database does not answer. Nothing is buffered in memory.
    """

    @property
    def capabilities(self) -> Capabilities: ...

    @overload
    async def enqueue(self, task: TaskRef[None, O], /, **options: Unpack[EnqueueOptions]) -> Run[O]: ...
    @overload
    async def enqueue(self, task: TaskRef[I, O], input: I, /, **options: Unpack[EnqueueOptions]) -> Run[O]:
        """Accept a run. When this returns, the run survives the loss of every process and a restart of the database.

        `input` is of the task's input type, and left out for a task without one; the rest is in `EnqueueOptions`.

        Raises:
            UnknownTaskError: A `Task` that this engine was not given. A `task_ref` is accepted from anywhere.
            PayloadError: The input is not of its type or cannot be stored; nothing was written.
            IdempotencyConflictError: The key was used with another input.
            UnavailableError: The database did not answer. The run may exist if the connection broke at the wrong
                moment; with an idempotency key the call can be repeated without harm.
        """
        ...

    async def signal(self, topic: str, payload: Any = None, /, **options: Unpack[SignalOptions]) -> SignalReceipt:
        """Send a signal to every run that waits for its topic, now or as long as the signal is kept.

        When this returns, the signal survives whatever happens: a run that begins to wait later, within `ttl`, is given it too,
        and each run is given it once. Of two sends one after the other every run sees the first one first. Who waits is woken
        at once as a rule, and within a worker's poll where its sender ends right after the commit.

        `payload` is anything that can be stored, at most 64 KiB as JSON; the rest is in `SignalOptions`. Also for
        a run that is over, or that is not there yet: a topic is a name, and names nobody.

        Raises:
            PayloadError: The payload cannot be stored; nothing was sent.
            SignalConflictError: The key was used on this topic with another payload; nothing was sent.
            UsageError: A topic that is none, a payload that is too large, or a time to live out of its bounds.
            UnavailableError: The database did not answer. The signal may be there if the connection broke at the wrong
                moment; with an idempotency key the call can be repeated without harm.
        """
        ...

    async def cancel(self, run_id: str, /, *, reason: str) -> CancelOutcome:
        """Ask for a run to end as `canceled`. Once accepted, the run never succeeds.

        What never ran is over at once; of the others the bodies are told within a second. Repeated, it changes nothing.
        Raises `RunNotFoundError`.
        """
        ...

    async def get(self, run_id: str, /) -> RunView:
        """Return what is known of a run. Raises `RunNotFoundError`."""
        ...

    async def find(self, run_id: str, /) -> RunView | None:
        """Return what is known of a run, or None when there is none."""
        ...

    async def start(self, *, queues: Sequence[str] = ("default",), concurrency: int = 50) -> None:
        """Begin to execute runs of this engine's tasks from these queues, at most `concurrency` bodies at once."""
        ...

    async def stop(self, *, timeout: Duration = 30.0) -> list[str]:
        """Stop within the time-out: claim nothing more, let bodies finish, tell and release the rest. May be called twice.

        Returns the ids of runs whose bodies did not end: they are left to the lease, and named in the log too.
        """
        ...
