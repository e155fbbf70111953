"""Inspector: the port that reads. Nothing here changes anything or needs the tasks' code."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

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
    """`retry`, `discard`, `pause_queue`, `unpause_queue` or `prune`."""
    run: str | None
    queue: str | None
    affected: int | None
    """How many runs and keys a prune removed."""
    reason: str


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

    async def list_actions(self, *, run_id: str | None = None, limit: int = 100) -> tuple[ActionView, ...]:
        """Return what was done through `Operator`, the latest first: to one run, or at all."""
        ...
