"""Pruning: deletes what has been over for long, in many short transactions.

Theory of operation. Ids are ordered by when they were made, so the oldest runs are at one end of the primary key, and no
index is kept for this. The walk reads a page of runs at a time, whatever their state, and deletes in a transaction of its
own those that may go; it ends at the first page on which every run is younger than the cutoff. A run that a computer with a
wrong clock made stands at a wrong place and is met later, never lost. Each deletion tests anew under the run's lock, and
counts into the operator's action in the same transaction, so that a crash between two leaves whole runs and a true count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from outlast.database.transaction import Transaction
from outlast.ids import first_run_id_at
from outlast.ledger.operation import OperationName
from outlast.limits import PRUNE_PAGE, PRUNE_RECORDS_MAX
from outlast.operator import PruneReport

from .runtime import Runtime
from .upkeep import NewAction, OldRun


@dataclass(frozen=True, slots=True)
class PruneOrder:
    """What is to be pruned, on whose behalf."""

    older_than: timedelta
    keys_older_than: timedelta | None
    dead_letters: bool
    actor: str
    reason: str


class Pruning:
    """One prune, from its first page to its last."""

    def __init__(self, runtime: Runtime, order: PruneOrder) -> None:
        self._runtime = runtime
        self._order = order
        self._action: int | None = None
        self._young = first_run_id_at(runtime.time.now() - order.older_than)
        self._runs = 0
        self._kept = 0
        self._keys = 0

    async def run(self) -> PruneReport:
        await self._prune_runs()
        if self._order.keys_older_than is not None:
            await self._prune_keys(self._order.keys_older_than)
        if self._action is None:  # nothing was to be deleted: that it was asked for is kept all the same
            await self._runtime.calls.write("record_action", lambda tx: self._noted(tx, 0))
        return PruneReport(self._runs, self._kept, self._keys)

    async def _prune_runs(self) -> None:
        """Walk over runs in the order of their ids, to the first page that is young by its ids too: a caller's clock may be behind."""
        after: str | None = None
        while True:
            page = await self._read(after)
            for batch in batches(page):
                await self._delete(batch)
            self._kept += sum(run.is_kept for run in page)
            if len(page) < PRUNE_PAGE or (not any(run.is_old for run in page) and page[-1].run_id >= self._young):
                return
            after = page[-1].run_id

    async def _read(self, after: str | None) -> list[OldRun]:
        runtime, order = self._runtime, self._order

        def read(tx: Transaction) -> list[OldRun]:
            return runtime.store.list_old_runs(tx, order.older_than, PRUNE_PAGE, after, dead_letters=order.dead_letters, now=runtime.at())

        return await runtime.read("list_old_runs", read)

    async def _delete(self, run_ids: Sequence[str]) -> None:
        runtime, order = self._runtime, self._order

        def delete(tx: Transaction) -> tuple[int, int]:
            count = runtime.store.delete_runs(tx, run_ids, order.older_than, dead_letters=order.dead_letters, now=runtime.at())
            return count, self._noted(tx, count)

        count, self._action = await runtime.calls.write("delete_runs", delete)
        self._runs += count

    async def _prune_keys(self, older_than: timedelta) -> None:
        place: tuple[str, str] | None = None
        while True:
            count, place = await self._delete_keys(older_than, place)
            self._keys += count
            if place is None:
                break
        name: OperationName | None = None
        while True:
            count, name = await self._delete_operations(older_than, name)
            self._keys += count
            if name is None:
                return

    async def _delete_keys(self, older_than: timedelta, after: tuple[str, str] | None) -> tuple[int, tuple[str, str] | None]:
        runtime = self._runtime

        def delete(tx: Transaction) -> tuple[int, tuple[str, str] | None, int | None]:
            count, following = runtime.store.delete_old_keys(tx, older_than, PRUNE_PAGE, after, runtime.at())
            return count, following, self._noted(tx, count) if count else self._action

        count, following, self._action = await runtime.calls.write("delete_old_keys", delete)
        return count, following

    async def _delete_operations(self, older_than: timedelta, after: OperationName | None) -> tuple[int, OperationName | None]:
        runtime = self._runtime

        def delete(tx: Transaction) -> tuple[int, OperationName | None, int | None]:
            count, following = runtime.backend.ledger.delete_old_operations(tx, older_than, PRUNE_PAGE, after, runtime.at())
            return count, following, self._noted(tx, count) if count else self._action

        count, following, self._action = await runtime.calls.write("delete_old_operations", delete)
        return count, following

    def _noted(self, tx: Transaction, count: int) -> int:
        """Count into the action what this transaction deletes, and return the action's number."""
        store, order = self._runtime.store, self._order
        if self._action is not None:
            store.add_to_action(tx, self._action, count)
            return self._action
        return store.record_action(tx, NewAction("prune", order.actor, order.reason, affected=count), self._runtime.at())


def batches(page: Sequence[OldRun]) -> list[list[str]]:
    """Return the prunable runs of a page in groups, none with more records than one transaction is to delete, unless one run has."""
    groups: list[list[str]] = []
    room = 0
    for run in page:
        if not run.is_prunable:
            continue
        if not groups or run.records > room:
            groups.append([])
            room = PRUNE_RECORDS_MAX
        groups[-1].append(run.run_id)
        room -= run.records
    return groups
