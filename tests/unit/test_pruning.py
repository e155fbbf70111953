"""Pruning: how a page is cut into transactions, and what is left when one of them fails in the middle."""

import asyncio
import contextlib
import sqlite3
from pathlib import Path

import pytest

from outlast import Context, connect, task
from outlast.errors import UnavailableError
from outlast.limits import PRUNE_RECORDS_MAX
from outlast.native import pruning
from outlast.native.pruning import batches
from outlast.native.upkeep import OldRun


def old(name: str, records: int = 0, *, is_prunable: bool = True) -> OldRun:
    return OldRun(name, True, is_prunable, False, records)


def test_a_transaction_has_a_bound_on_what_it_deletes():
    """Runs are grouped in their order until their records are too many; one that has more than all goes by itself; others are left out."""
    half = PRUNE_RECORDS_MAX // 2
    page = [old("a", half), old("b", half), old("c", 1), old("d", is_prunable=False), old("e", 3 * PRUNE_RECORDS_MAX), old("f"), old("g", 1)]
    assert batches(page) == [["a", "b"], ["c"], ["e"], ["f", "g"]]
    assert batches([old("a", is_prunable=False)]) == []
    assert batches([old("a"), old("b")]) == [["a", "b"]]


@task
async def nothing(ctx: Context) -> None:
    pass


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(pruning, "PRUNE_PAGE", 3)
    return 3


def test_a_prune_that_is_cut_off_has_counted_what_it_did(small_pages: int, tmp_path: Path) -> None:
    """The database goes away after the second transaction: six of ten runs are gone, the action says six, and the next prune does the rest."""

    async def use() -> None:
        async with connect(f"sqlite:///{tmp_path / 'x.db'}", tasks=[nothing]) as engine:
            await engine.start()
            runs = await engine.enqueue_many(nothing, [None] * 10, idempotency_keys=[f"k{number}" for number in range(10)])
            for run in runs:
                await run.result(timeout=60)
            store = engine._backend.store
            calls, delete = [], store.delete_runs

            def failing(*arguments, **options):
                calls.append(arguments)
                if len(calls) == 3:
                    delete(*arguments, **options)  # what it has done by then is undone
                    raise UnavailableError("gone")
                return delete(*arguments, **options)

            store.delete_runs = failing
            with pytest.raises(UnavailableError):
                await engine.operator.prune(0, actor="ann", reason="old")
            store.delete_runs = delete
            assert len((await engine.inspector.list_runs()).runs) == 4
            report = await engine.operator.prune(0, keys_older_than=0, actor="ann", reason="old")
            assert (report.runs, report.kept, report.keys) == (4, 0, 10)
            assert [action.affected for action in await engine.inspector.list_actions()] == [14, 6]

    asyncio.run(use())


def test_the_walk_ends_where_everything_is_young(small_pages: int, tmp_path: Path) -> None:
    """Of many runs of today a prune of what is older than a day reads one page."""

    async def use() -> None:
        async with connect(f"sqlite:///{tmp_path / 'x.db'}", tasks=[nothing]) as engine:
            await engine.enqueue_many(nothing, [None] * 20)
            pages = []
            engine.events.subscribe(lambda event: pages.append(event) if event.name == "before_store" and event.facts["call"] == "list_old_runs" else None)
            assert (await engine.operator.prune("1d", actor="ann", reason="old")).runs == 0
            assert len(pages) == 1
            assert (await engine.operator.prune(0, actor="ann", reason="old")).runs == 0
            assert len(pages) == 1 + 7

    asyncio.run(use())


def test_young_runs_of_a_clock_that_is_behind_hide_nothing(small_pages: int, tmp_path: Path) -> None:
    """Four runs that have just been accepted under ids of the year 2000 come first in the walk; what is behind them is pruned all the same."""

    async def use() -> None:
        async with connect(f"sqlite:///{tmp_path / 'x.db'}", tasks=[nothing]) as engine:
            await engine.start()
            runs = await engine.enqueue_many(nothing, [None] * 6)
            for run in runs:
                await run.result(timeout=60)
        with contextlib.closing(sqlite3.connect(tmp_path / "x.db")) as connection:
            for table, column in (("outlast_run", "id"), ("outlast_run_body", "run")):
                connection.execute(f"UPDATE {table} SET {column} = '00dc6acf' || substr({column}, 9) WHERE {column} <= ?", [sorted(run.id for run in runs)[3]])
            connection.execute("UPDATE outlast_run SET finished_at = finished_at - 40 * 86400 * 1000000 WHERE id NOT LIKE '00dc6acf%'")
            connection.commit()
        async with connect(f"sqlite:///{tmp_path / 'x.db'}", tasks=[nothing]) as engine:
            assert (await engine.operator.prune("30d", actor="ann", reason="old")).runs == 2

    asyncio.run(use())
