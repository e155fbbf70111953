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
