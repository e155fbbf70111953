"""Enqueues of many callers at once: gathered, answered one by one, and never kept in memory for later."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace

from outlast.context import Context
from outlast.database.transaction import RefusedError
from outlast.errors import CommitUnknownError, UnavailableError
from outlast.native import claimer, delivery
from outlast.native.new_run import new_runs
from outlast.native.store import LaneName, NewRun
from outlast.task import task

from .engine_world import WAIT, Heard, engine_at, play, query, until
from .tcp_proxy import TcpProxy, Where

SHORTLY = timedelta(seconds=1)


@task
async def plain(ctx: Context, number: int) -> int:
    return number


async def some_run(heard: Heard, key: str | None = None, **changes: Any) -> NewRun:
    runtime, lane = await heard.engine._open(), await heard.engine._lane(LaneName("default", "plain", 1))
    (run,) = new_runs(plain, [1], lane, runtime.time, [key], {})
    return replace(run, **changes)


def enqueuer(heard: Heard) -> Any:
    assert heard.engine._enqueuer is not None
    return heard.engine._enqueuer


def test_fifty_callers_at_once_share_a_commit(database_url: str) -> None:
    """Calls that come while a transaction is under way are the next one, however many they are."""

    async def scenario() -> None:
        async with engine_at(database_url, plain, starts=False) as heard:
            await heard.engine.enqueue(plain, 0)
            before = heard.transactions("record_runs")
            runs = await asyncio.gather(*(heard.engine.enqueue(plain, number) for number in range(50)))
            assert heard.transactions("record_runs") - before <= 2
            assert len({run.id for run in runs}) == 50
            views = [await run.view() for run in runs]
            assert [view.input for view in views] == [str(number) for number in range(50)]

    play(scenario())


def test_an_idle_worker_elsewhere_is_woken_with_the_commit(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of many runs is begun long before a poll would find it, and the client makes no transaction for that."""
    for module in (claimer, delivery):
        monkeypatch.setattr(module, "IDLE_POLL", timedelta(seconds=4 * WAIT))

    async def scenario() -> None:
        async with engine_at(postgres_url, plain, name="worker") as worker, engine_at(postgres_url, plain, starts=False) as client:
            await until("it hears", lambda: not worker.engine._backend.wakes.is_deaf)
            for number in range(20):
                run = await client.engine.enqueue(plain, number)
                assert await run.result(timeout=WAIT) == number
            assert client.transactions("has_idle_worker") == 0

    play(scenario())


def test_one_key_of_many_callers_is_one_run(database_url: str) -> None:
    """Twenty callers with one key, in this process and in another engine, get one run, and one of them made it."""

    async def scenario() -> None:
        async with engine_at(database_url, plain, starts=False) as heard, engine_at(database_url, plain, starts=False) as other:
            calls = (each.engine.enqueue(plain, 1, idempotency_key="a key") for _ in range(10) for each in (heard, other))
            runs = await asyncio.gather(*calls)
            assert len({run.id for run in runs}) == 1
            assert [run.created for run in runs].count(True) == 1
        assert query(database_url, "SELECT count(*) FROM {run}") == [(1,)]

    play(scenario())


def test_a_run_that_cannot_be_stored_is_refused_alone(database_url: str) -> None:
    """The others of its group are accepted, and only its caller gets an error."""

    async def scenario() -> None:
        async with engine_at(database_url, plain, starts=False) as heard:
            good = [await some_run(heard) for _ in range(20)]
            bad = await some_run(heard, seed=1 << 70)
            calls = [enqueuer(heard).accept([run]) for run in (*good[:7], bad, *good[7:])]
            answers = await asyncio.gather(*calls, return_exceptions=True)
            assert isinstance(answers.pop(7), RefusedError)
            assert [answer[0].run_id for answer in answers if isinstance(answer, list)] == [run.id for run in good]
            with pytest.raises(RefusedError):
                await enqueuer(heard).accept([await some_run(heard, seed=1 << 70) for _ in range(3)])
        assert query(database_url, "SELECT count(*) FROM {run}") == [(20,)]

    play(scenario())


def test_an_enqueue_that_cannot_reach_the_database_says_so_and_keeps_nothing(postgres_url: str) -> None:
    """The error comes within the time-out, and what was refused is not written when the database is back."""
    proxy = TcpProxy(postgres_url)

    async def scenario() -> None:
        async with engine_at(proxy.url, plain, starts=False) as heard:
            runs = [await some_run(heard) for _ in range(5)]
            proxy.is_refusing = True
            proxy.reset()
            calls = [enqueuer(heard).accept([run], SHORTLY) for run in runs]
            answers = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), WAIT)
            assert [type(answer) for answer in answers] == [UnavailableError] * 5
            proxy.is_refusing = False
            await heard.engine.enqueue(plain, 1)
        assert query(postgres_url, "SELECT count(*) FROM {run}") == [(1,)]

    try:
        play(scenario())
    finally:
        proxy.close()


@pytest.mark.parametrize("where", [Where.BEFORE, Where.AFTER], ids=["before", "after"])
def test_an_outage_after_a_lost_answer_is_never_called_unwritten(where: Where, postgres_url: str) -> None:
    """Who cannot be told any more whether the run is there gets `CommitUnknownError`, and with a key may ask again."""
    proxy = TcpProxy(postgres_url)

    async def scenario() -> None:
        async with engine_at(proxy.url, plain, starts=False) as heard:
            run = await some_run(heard, key="a key")
            cut = proxy.cut(where, "SELECT outlast.accept_runs(")
            asked = asyncio.create_task(enqueuer(heard).accept([run], SHORTLY))
            await asyncio.to_thread(cut.happened.wait, WAIT)
            proxy.is_refusing = True
            proxy.reset()
            with pytest.raises(CommitUnknownError):
                await asked
            proxy.is_refusing = False
            again = await heard.engine.enqueue(plain, 1, idempotency_key="a key")
            assert again.created == (where is Where.BEFORE)
        assert query(postgres_url, "SELECT count(*) FROM {run}") == [(1,)]

    try:
        play(scenario())
    finally:
        proxy.close()


def test_a_stranger_with_the_same_key_is_waited_for_by_that_caller_alone(postgres_url: str) -> None:
    """Others' enqueues pass while somebody's open transaction has the key, and the caller gets the stranger's run when it is committed."""

    async def scenario() -> None:
        async with engine_at(postgres_url, plain, starts=False) as heard:
            await heard.engine.enqueue(plain, 0)
            with psycopg.connect(postgres_url) as stranger:
                stranger.execute("INSERT INTO outlast.run_key (kind, key, run, input_digest) SELECT 'plain', 'a key', id, 'other' FROM outlast.run")
                keyed = asyncio.create_task(enqueuer(heard).accept([await some_run(heard, key="a key")]))
                await heard.log.wait("before_store", call="record_runs", count=3)
                for number in range(5):
                    await asyncio.wait_for(heard.engine.enqueue(plain, number), WAIT)
                assert not keyed.done()
                stranger.commit()
            (answer,) = await keyed
            assert not answer.created
        assert query(postgres_url, "SELECT count(*) FROM {run}") == [(6,)]

    play(scenario())
