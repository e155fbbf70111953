"""NativeInspector: the port that reads, over the native engine's store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from outlast.database.transaction import Transaction
from outlast.decision import DecisionState, DecisionView
from outlast.decisions.attention import AttentionPage, attention_page, place_from
from outlast.errors import RunNotFoundError, UsageError
from outlast.ids import is_run_id
from outlast.inspector import ActionView, BoundedCount, LaneView, OperationView, RunPage, StrandedView, WorkerView
from outlast.ledger.view import operation_view
from outlast.limits import ATTENTION_PAGE_MAX, NAME_CHARACTERS_MAX, PAGE, PAGE_MAX
from outlast.run import RunStatus, StepView

from .deciding import no_decision
from .lanes import Served, added, why_unserved
from .new_run import checked_text
from .runtime import Runtime
from .store import RunFilter, WorkerRow
from .upkeep import LaneRow


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
        _check_limit(limit)
        wanted = RunFilter(_status(status), kind, queue)
        after = None if before is None else checked_run_id(before)
        runtime = await self._runtime()
        runs = await runtime.read("list_runs", lambda tx: runtime.store.list_runs(tx, wanted, limit, after, runtime.at()))
        return RunPage(tuple(runs), runs[-1].id if len(runs) == limit else None)

    async def get_history(self, run_id: str, /) -> tuple[StepView, ...]:
        checked_run_id(run_id)
        runtime = await self._runtime()

        def read(tx: Transaction) -> list[StepView] | None:
            return None if runtime.store.find_run(tx, run_id, explains=False) is None else runtime.store.list_steps(tx, run_id)

        steps = await runtime.read("list_steps", read)
        if steps is None:
            raise RunNotFoundError(f"there is no run {run_id}", run_id=run_id)
        return tuple(steps)

    async def list_operations(self, run_id: str, /) -> tuple[OperationView, ...]:
        checked_run_id(run_id)
        runtime = await self._runtime()
        ledger = runtime.backend.ledger

        def read(tx: Transaction) -> tuple[OperationView, ...] | None:
            if runtime.store.find_run(tx, run_id, explains=False) is None:
                return None
            operations = ledger.list_operations(tx, run_id, runtime.at())
            attempts = ledger.list_attempts(tx, [operation.name for operation in operations])
            return tuple(operation_view(operation, attempts[operation.name]) for operation in operations)

        operations = await runtime.read("list_operations", read)
        if operations is None:
            raise RunNotFoundError(f"there is no run {run_id}", run_id=run_id)
        return operations

    async def list_attention(self, *, limit: int = PAGE, before: str | None = None) -> AttentionPage:
        _check_limit(limit, ATTENTION_PAGE_MAX)
        place, runtime = place_from(before), await self._runtime()

        def read(tx: Transaction) -> AttentionPage:
            decisions = runtime.backend.decisions.list_decisions(tx, DecisionState.OPEN, limit + 1, place.decision)
            return attention_page(decisions, runtime.store.list_dead_letters(tx, limit + 1, place.run, runtime.at()), limit, place)

        return await runtime.read("list_attention", read)

    async def get_decision(self, decision_id: str, /) -> DecisionView:
        checked_text(decision_id, "decision_id", NAME_CHARACTERS_MAX)
        runtime = await self._runtime()
        decision = await runtime.read("find_decision", lambda tx: runtime.backend.decisions.find_decision(tx, decision_id))
        if decision is None:
            raise no_decision(decision_id)
        return decision

    async def list_decisions(self, run_id: str, /) -> tuple[DecisionView, ...]:
        checked_run_id(run_id)
        runtime = await self._runtime()

        def read(tx: Transaction) -> list[DecisionView] | None:
            return None if runtime.store.find_run(tx, run_id, explains=False) is None else runtime.backend.decisions.list_of_run(tx, run_id)

        decisions = await runtime.read("list_decisions", read)
        if decisions is None:
            raise RunNotFoundError(f"there is no run {run_id}", run_id=run_id)
        return tuple(decisions)

    async def list_workers(self, *, only_alive: bool = False) -> tuple[WorkerView, ...]:
        runtime = await self._runtime()
        rows = await runtime.read("list_workers", lambda tx: runtime.store.list_workers(tx, only_alive=only_alive, now=runtime.at()))
        return tuple(map(_worker_view, rows))

    async def list_lanes(self) -> tuple[LaneView, ...]:
        rows = await self._lanes()
        return tuple(_lane_view(row) for row in rows if row.is_served or any(map(_is_some, (row.pending, row.running, row.waiting))))

    async def list_stranded(self) -> tuple[StrandedView, ...]:
        rows = await self._lanes()
        served = {Served(row.queue, row.kind, row.version) for row in rows if row.is_served}
        stranded = [(row, why_unserved(row.queue, row.kind, row.version, served)) for row in rows if row.paused_at is None]
        views = [StrandedView(row.queue, row.kind, row.version, added(row.pending, row.running, row.overdue), why) for row, why in stranded if why is not None]
        return tuple(view for view in views if view.runs.number > 0)

    async def _lanes(self) -> list[LaneRow]:
        runtime = await self._runtime()
        return await runtime.read("list_lanes", lambda tx: runtime.store.list_lanes(tx, runtime.at()))

    async def list_actions(self, *, run_id: str | None = None, limit: int = PAGE) -> tuple[ActionView, ...]:
        _check_limit(limit)
        if run_id is not None:
            checked_run_id(run_id)
        runtime = await self._runtime()
        return tuple(await runtime.read("list_actions", lambda tx: runtime.store.list_actions(tx, run_id, limit)))


def _check_limit(limit: int, most: int = PAGE_MAX) -> None:
    if not 1 <= limit <= most:
        raise UsageError(f"limit is {limit}: write a number from 1 to {most}")


def _is_some(count: BoundedCount) -> bool:
    return count.number > 0 or count.has_more


def _lane_view(row: LaneRow) -> LaneView:
    return LaneView(row.queue, row.kind, row.version, row.paused_at, row.is_served, row.pending, row.running, row.waiting)


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
