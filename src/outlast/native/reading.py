"""NativeInspector and NativeOperator: the ports that read and that act, over the native engine's store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from outlast.database.transaction import Transaction
from outlast.errors import RunNotFoundError, UsageError
from outlast.ids import is_run_id
from outlast.inspector import RunPage, WorkerView
from outlast.limits import NAME_CHARACTERS_MAX, PAGE, PAGE_MAX, REASON_CHARACTERS_MAX
from outlast.run import RunStatus, RunView, StepView

from .new_run import checked_text
from .runtime import Runtime
from .store import RunFilter, WorkerRow
from .transitions import RETRYABLE


def checked_run_id(run_id: str) -> str:
    """Return a run id in its canonical form; what cannot be one is not found."""
    if not isinstance(run_id, str) or not is_run_id(run_id):
        raise RunNotFoundError(f"there is no run {run_id!r}: a run id is a UUID, as enqueue returns it", run_id=str(run_id))
    return run_id


class NativeInspector:
    """See `outlast.inspector.Inspector`."""

    def __init__(self, runtime: Callable[[], Awaitable[Runtime]]) -> None:
        self._runtime = runtime

    async def list_runs(
        self, *, status: RunStatus | None = None, kind: str | None = None, queue: str | None = None, limit: int = PAGE, before: str | None = None
    ) -> RunPage:
        if not 1 <= limit <= PAGE_MAX:
            raise UsageError(f"limit is {limit}: write a number from 1 to {PAGE_MAX}")
        wanted = RunFilter(_status(status), kind, queue)
        after = None if before is None else checked_run_id(before)
        runtime = await self._runtime()
        runs = await runtime.read("list_runs", lambda tx: runtime.store.list_runs(tx, wanted, limit, after))
        return RunPage(tuple(runs), runs[-1].id if len(runs) == limit else None)

    async def get_history(self, run_id: str, /) -> tuple[StepView, ...]:
        checked_run_id(run_id)
        runtime = await self._runtime()

        def read(tx: Transaction) -> list[StepView] | None:
            return None if runtime.store.find_run(tx, run_id) is None else runtime.store.list_steps(tx, run_id)

        steps = await runtime.read("list_steps", read)
        if steps is None:
            raise RunNotFoundError(f"there is no run {run_id}", run_id=run_id)
        return tuple(steps)

    async def list_workers(self, *, only_alive: bool = False) -> tuple[WorkerView, ...]:
        runtime = await self._runtime()
        rows = await runtime.read("list_workers", lambda tx: runtime.store.list_workers(tx, only_alive=only_alive, now=runtime.at()))
        return tuple(map(_worker_view, rows))


class NativeOperator:
    """See `outlast.operator.Operator`."""

    def __init__(self, runtime: Callable[[], Awaitable[Runtime]], wake: Callable[[set[int]], Awaitable[None]]) -> None:
        self._runtime = runtime
        self._wake = wake

    async def retry(self, run_id: str, /, *, actor: str, reason: str) -> RunView:
        checked_run_id(run_id)
        checked_text(actor, "actor", NAME_CHARACTERS_MAX)
        checked_text(reason, "reason", REASON_CHARACTERS_MAX)
        runtime = await self._runtime()

        def retry(tx: Transaction) -> tuple[tuple[RunStatus, int] | None, RunView | None]:
            return runtime.store.retry_run(tx, run_id, actor, reason, runtime.at()), runtime.store.find_run(tx, run_id)

        found, view = await runtime.calls.write("retry_run", retry)
        if found is None or view is None:
            raise RunNotFoundError(f"there is no run {run_id}", run_id=run_id)
        status, lane = found
        if status not in RETRYABLE:
            raise UsageError(f"run {run_id} is {status}: only a run that failed, is dead or was canceled can be retried")
        await self._wake({lane})
        return view


def _status(status: RunStatus | str | None) -> RunStatus | None:
    try:
        return None if status is None else RunStatus(status)
    except ValueError:
        raise UsageError(f"status is {status!r}: write one of {', '.join(RunStatus)}") from None


def _worker_view(row: WorkerRow) -> WorkerView:
    facts: dict[str, Any] = msgspec.json.decode(row.tasks)
    return WorkerView(
        id=f"{row.id:x}",
        name=row.name,
        is_alive=row.is_alive,
        end=row.end,
        started_at=row.started_at,
        ended_at=row.ended_at,
        lease_until=row.lease_until,
        running=row.running,
        queues=tuple(facts.get("queues", ())),
        concurrency=int(facts.get("concurrency", 0)),
        tasks=tuple(facts.get("tasks", ())),
    )
