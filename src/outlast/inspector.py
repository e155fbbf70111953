"""Inspector: the port that reads. Nothing here changes anything or needs the tasks' code."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from outlast.decision import DecisionView
from outlast.decisions.attention import AttentionPage
from outlast.failure import Failure
from outlast.run import RunStatus, RunView, StepView


@dataclass(frozen=True, slots=True)
class RunPage:
    """A page of runs, newest first, and where the next one begins."""

    runs: tuple[RunView, ...]
    next: str | None
    """Give it as `before` for the next page; None at the end."""


@dataclass(frozen=True, slots=True)
class WorkerView:
    """A worker incarnation."""

    id: str
    name: str
    """Host and process, a label and no identity."""
    is_alive: bool
    end: str | None
    """`stopped`, `dead` (its process was proven to be gone) or `silent` (its lease ran out)."""
    started_at: datetime
    ended_at: datetime | None
    lease_until: datetime
    running: int
    """Runs that it holds."""
    queues: tuple[str, ...]
    concurrency: int
    tasks: tuple[str, ...]
    """`kind v1`, ..."""


@dataclass(frozen=True, slots=True)
class BoundedCount:
    """How many there are, counted up to a bound, so that it costs the same however many there are."""

    number: int
    has_more: bool = False
    """There are more than `number`, or there may be."""

    def __str__(self) -> str:
        return f"{self.number}+" if self.has_more else str(self.number)


@dataclass(frozen=True, slots=True)
class LaneView:
    """A lane: the runs of one queue, kind and version that are not over, and whether anybody executes them."""

    queue: str
    kind: str
    version: int
    paused_at: datetime | None
    """Since when its queue is paused."""
    is_served: bool
    """A worker that has this kind and version in this queue lives, or did a minute ago."""
    pending: BoundedCount
    running: BoundedCount
    waiting: BoundedCount


@dataclass(frozen=True, slots=True)
class StrandedView:
    """Runs that would go on, and that no worker executes."""

    queue: str
    kind: str
    version: int
    runs: BoundedCount
    """Those that are claimable, whose time has come, or whose worker is gone."""
    reason: str
    """Why nobody has them, in words for a person."""


@dataclass(frozen=True, slots=True)
class ActionView:
    """What somebody did through `Operator`."""

    at: datetime
    actor: str
    action: str
    """`retry`, `resume`, `discard`, `decide`, `pause_queue`, `unpause_queue` or `prune`."""
    run: str | None
    queue: str | None
    affected: int | None
    """How many runs and keys a prune removed."""
    reason: str


@dataclass(frozen=True, slots=True)
class OperationAttemptView:
    """One attempt of an effect."""

    number: int
    token: int
    """What was handed outside: a later attempt, of whatever effect, has a greater one."""
    started_at: datetime
    ended_at: datetime | None
    outcome: str | None
    """`done`, `not_done` or `unknown`; None while it is under way, or since a crash cut it off."""
    error: Failure | None
    late: str | None
    """JSON text of a result that came when it was not wanted any more, and was refused."""


@dataclass(frozen=True, slots=True)
class OperationView:
    """What the ledger has of one effect: plan, attempts, result."""

    effect: str
    key: str
    """Of the call of one run, or what the user gave."""
    status: str
    """`planned`, `attempting`, `unknown` (nobody knows yet), `asked` (a person is), `done` or `failed`."""
    arguments: str
    """JSON text; empty for none."""
    result: str | None
    """JSON text."""
    error: Failure | None
    """Of the last attempt that failed, or why it failed for good."""
    decision: str | None
    """The id of the question, while it is `asked`."""
    planned_at: datetime
    changed_at: datetime
    attempts: tuple[OperationAttemptView, ...]


class Inspector(Protocol):
    """Reads for people: the command line and the web page stand on it."""

    async def list_runs(
        self, *, status: RunStatus | None = None, kind: str | None = None, queue: str | None = None, limit: int = 100, before: str | None = None
    ) -> RunPage:
        """Return a page of runs. Costs one index walk; a rare filter over many runs may return a short page."""
        ...

    async def get_history(self, run_id: str, /) -> tuple[StepView, ...]:
        """Return the durable calls of a run's generation in their order, then what is open. Raises `RunNotFoundError`."""
        ...

    async def list_operations(self, run_id: str, /) -> tuple[OperationView, ...]:
        """Return the effects that a run has planned, in that order, with every attempt. Raises `RunNotFoundError`.

        One whose key the user gave is shown with the run that acted for it last.
        """
        ...

    async def list_workers(self, *, only_alive: bool = False) -> tuple[WorkerView, ...]: ...

    async def list_lanes(self) -> tuple[LaneView, ...]:
        """Return the lanes in which something is going on, or that a worker executes. What an old version still has to do shows here.

        Counts end at a bound, which is said: the cost does not grow with the number of runs.
        """
        ...

    async def list_stranded(self) -> tuple[StrandedView, ...]:
        """Return the lanes whose runs would go on if a worker had them, each with the reason why none does.

        A lane is stranded when no worker that has its kind and version in its queue has lived for a minute. Runs that
        sleep, and those of a paused queue, would not go on anyhow and are not stranded.
        """
        ...

    async def list_attention(self, *, limit: int = 100, before: str | None = None) -> AttentionPage:
        """Return what waits for a person, the latest first: open decisions, and failed and dead runs, each with what to do about it.

        At most 500 at once. Costs two short index walks, however many runs there are.
        """
        ...

    async def get_decision(self, decision_id: str, /) -> DecisionView:
        """Return a question and what has become of it. Raises `UsageError` when there is none of this id."""
        ...

    async def list_decisions(self, run_id: str, /) -> tuple[DecisionView, ...]:
        """Return all that a run has asked, in order. Raises `RunNotFoundError`."""
        ...

    async def list_actions(self, *, run_id: str | None = None, limit: int = 100) -> tuple[ActionView, ...]:
        """Return what was done through `Operator`, the latest first: to one run, or at all."""
        ...
