"""Answers that are lost at a COMMIT: whatever was under way is there once, and whoever asked for it is told what is true."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta

import pytest

from outlast.context import Context
from outlast.native import rounds
from outlast.run import CancelOutcome, RunStatus
from outlast.task import Task, task
from outlast.testing.postgres_server import FAST_SETTINGS, PostgresServer

from .engine_world import WAIT, Heard, engine_at, play, query
from .tcp_proxy import Cut, TcpProxy, Where

CLAIM = ("outlast.fence(", "SET status = 'running'")
RECORD = ("outlast.fence(", "INSERT INTO outlast.step (")
END = ("outlast.fence(", '"status":"succeeded"')
PARK = ("outlast.fence(", '"status":"waiting"')
ENQUEUE = ("SELECT outlast.accept_runs(",)
CANCEL = ("SET cancel_requested_at",)
CUT_OFF = pytest.mark.parametrize("where", [Where.BEFORE, Where.AFTER], ids=["before", "after"])


@pytest.fixture(autouse=True)
def no_strays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is mended by the search for strays, unless a test says so."""
    monkeypatch.setattr(rounds, "STRAYS_EVERY", timedelta(hours=1))


@pytest.fixture
def proxy(postgres_url: str) -> Iterator[TcpProxy]:
    proxy = TcpProxy(postgres_url)
    yield proxy
    proxy.close()


class Told:
    """A task with one step, and how often its body and its step were begun for each run."""

    def __init__(self, name: str = "told", pause: str | None = None) -> None:
        self.bodies: Counter[str] = Counter()
        self.steps: Counter[str] = Counter()

        async def note(run_id: str) -> str:
            self.steps[run_id] += 1
            return "noted"

        @task(name)
        async def body(ctx: Context) -> str:
            self.bodies[ctx.run_id] += 1
            noted = await ctx.step(note, ctx.run_id)
            if pause is not None:
                await ctx.sleep(pause)
            return noted

        self.task: Task[None, str] = body


async def lost(cut: Cut) -> None:
    assert await asyncio.to_thread(cut.happened.wait, WAIT), "the wire was not cut: no such transaction came"


def assert_once(url: str, told: Told, run_ids: list[str], token: int = 1) -> None:
    """Every run succeeded in this claim, and its body and its step ran once."""
    rows = query(url, "SELECT id::text, status, token, attempts, recoveries FROM {run} ORDER BY id")
    assert rows == [(run_id, "succeeded", token, 0, 0) for run_id in sorted(run_ids)]
    assert told.bodies == told.steps == Counter(run_ids)
    records = query(url, "SELECT run::text, name, token, result::text FROM {step} ORDER BY run")
    assert records == [(run_id, "note", token, '"noted"') for run_id in sorted(run_ids)]


def tokens_spent(where: Where, fragments: tuple[str, ...]) -> int:
    return 2 if fragments is CLAIM and where is Where.AFTER else 1


async def all_succeed(heard: Heard, told: Told, run_ids: list[str]) -> None:
    for run_id in run_ids:
        assert await heard.engine.handle(told.task, run_id).result(timeout=WAIT) == "noted"


@CUT_OFF
@pytest.mark.parametrize("fragments", [CLAIM, RECORD, END], ids=["claim", "record", "end"])
def test_a_lost_answer_on_the_way_of_a_run_changes_nothing(where: Where, fragments: tuple[str, ...], proxy: TcpProxy, postgres_url: str) -> None:
    """Runs whose claim, record or end lost its answer succeed at once, with each body and step begun once; a lost claim is handed back."""
    told = Told()

    async def scenario() -> None:
        async with engine_at(postgres_url, told.task, starts=False) as client:
            run_ids = [run.id for run in await client.engine.enqueue_many(told.task, [None] * 3)]
        cut = proxy.cut(where, *fragments)
        async with engine_at(proxy.url, told.task) as heard:
            await all_succeed(heard, told, run_ids)
            await lost(cut)
            assert cut.committed.is_set() == (where is Where.AFTER)
            assert heard.log.find("commit_unknown")
            assert not heard.log.find("write_refused")
            assert not heard.worker.executions.registry
        assert_once(postgres_url, told, run_ids, token=tokens_spent(where, fragments))

    play(scenario())


@CUT_OFF
@pytest.mark.parametrize("key", [None, "a key"])
def test_an_enqueue_whose_answer_is_lost_is_one_run(where: Where, key: str | None, proxy: TcpProxy, postgres_url: str) -> None:
    """The caller gets the run that it made, and there is exactly one."""
    told = Told()

    async def scenario() -> None:
        cut = proxy.cut(where, *ENQUEUE)
        async with engine_at(proxy.url, told.task, starts=False) as heard:
            run = await heard.engine.enqueue(told.task, idempotency_key=key)
            await lost(cut)
            assert run.created
            assert query(postgres_url, "SELECT id::text, status FROM {run}") == [(run.id, "pending")]

    play(scenario())


@CUT_OFF
@pytest.mark.parametrize("key", [None, "a key"])
def test_a_send_whose_answer_is_lost_is_one_signal(where: Where, key: str | None, proxy: TcpProxy, postgres_url: str) -> None:
    """The sender is told of the signal that it made, and there is exactly one."""

    async def scenario() -> None:
        cut = proxy.cut(where, "INSERT INTO outlast.signal (")
        async with engine_at(proxy.url, starts=False) as heard:
            receipt = await heard.engine.signal("news", 7, idempotency_key=key)
            await lost(cut)
            assert receipt.created
            assert query(postgres_url, "SELECT id::text, payload::text, idempotency_key FROM {signal}") == [(receipt.id, "7", key)]

    play(scenario())


@CUT_OFF
def test_a_first_enqueue_whose_lane_lost_its_answer_is_accepted(where: Where, proxy: TcpProxy, postgres_url: str) -> None:
    """What an enqueue needs beside the run's own row is tried again like the row."""
    told = Told()

    async def scenario() -> None:
        cut = proxy.cut(where, "INSERT INTO outlast.lane")
        async with engine_at(proxy.url, told.task, starts=False) as heard:
            run = await heard.engine.enqueue(told.task)
            await lost(cut)
            assert query(postgres_url, "SELECT id::text, status FROM {run}") == [(run.id, "pending")]

    play(scenario())


@CUT_OFF
def test_a_cancel_whose_answer_is_lost_is_told_as_it_was(where: Where, proxy: TcpProxy, postgres_url: str) -> None:
    """A run that never ran is canceled on the spot and a parked one is told, and the answers say so."""
    told = Told(pause="7d")

    async def scenario() -> None:
        async with engine_at(proxy.url, told.task) as heard:
            parked = await heard.engine.enqueue(told.task)
            await heard.log.wait("run_parked", run=parked.id)
            later = await heard.engine.enqueue(told.task, delay="7d")
            cuts = [proxy.cut(where, *CANCEL), proxy.cut(where, *CANCEL)]
            assert await later.cancel(reason="enough") is CancelOutcome.CANCELED
            await lost(cuts[0])
            assert await parked.cancel(reason="enough") is CancelOutcome.REQUESTED
            await lost(cuts[1])
            assert await later.cancel(reason="once more") is CancelOutcome.ALREADY_OVER
            await heard.log.wait("run_ended", run=parked.id)
            assert {(await run.view()).status for run in (parked, later)} == {RunStatus.CANCELED}

    play(scenario())


@CUT_OFF
def test_a_park_whose_answer_is_lost_stands(where: Where, proxy: TcpProxy, postgres_url: str) -> None:
    """The run waits for its timer once, and its body is not begun again before it."""
    told = Told(pause="7d")

    async def scenario() -> None:
        cut = proxy.cut(where, *PARK)
        async with engine_at(proxy.url, told.task) as heard:
            run = await heard.engine.enqueue(told.task)
            await heard.log.wait("run_parked", run=run.id)
            await lost(cut)
            assert not heard.worker.executions.registry
            assert query(postgres_url, "SELECT status, token, due_at > now() + interval '6 days' FROM {run}") == [("waiting", 1, True)]
            assert query(postgres_url, "SELECT count(*) FROM {wait}") == [(1,)]
        assert told.bodies == told.steps == Counter([run.id])

    play(scenario())


@pytest.mark.parametrize("fragments", [RECORD, END], ids=["record", "end"])
def test_a_commit_that_comes_late_is_taken_for_what_it_is(fragments: tuple[str, ...], proxy: TcpProxy, postgres_url: str) -> None:
    """The connection breaks and the server commits only after the rows were read back and written again: nothing is refused to its own writer."""
    told = Told()

    async def scenario() -> None:
        async with engine_at(proxy.url, told.task) as heard:
            cut = proxy.cut(Where.HELD, *fragments)
            run = await heard.engine.enqueue(told.task)
            await lost(cut)
            await heard.log.wait("after_store", call="find_kept")
            written = heard.transactions("commit_checkpoints")
            await heard.log.wait("before_store", call="commit_checkpoints", count=written + 1)
            cut.let_go.set()
            assert await run.result(timeout=WAIT) == "noted"
            assert cut.committed.is_set()
            await heard.log.wait("run_ended", run=run.id, status="succeeded")
            assert not heard.log.find("write_refused")
        assert_once(postgres_url, told, [run.id])

    play(scenario())


def test_a_claim_that_comes_late_is_let_go_and_claimed_again(proxy: TcpProxy, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim that was committed after its worker had looked for it is a stray: it is released, and the run is executed once."""
    monkeypatch.setattr(rounds, "STRAYS_EVERY", rounds.FLAGS_POLL)
    told = Told()

    async def scenario() -> None:
        async with engine_at(postgres_url, told.task, starts=False) as client:
            run = await client.engine.enqueue(told.task)
        cut = proxy.cut(Where.HELD, *CLAIM)
        async with engine_at(proxy.url, told.task) as heard:
            await lost(cut)
            await heard.log.wait("after_store", call="list_held")
            cut.let_go.set()
            assert await heard.engine.handle(told.task, run.id).result(timeout=WAIT) == "noted"
            assert cut.committed.is_set()
        assert told.bodies == told.steps == Counter([run.id])
        assert query(postgres_url, "SELECT status, token, recoveries FROM {run}") == [("succeeded", 2, 0)]

    play(scenario())


@CUT_OFF
@pytest.mark.parametrize("fragments", [CLAIM, RECORD, END], ids=["claim", "record", "end"])
def test_a_lost_answer_of_a_server_that_crashes_then_is_resolved_when_it_is_back(where: Where, fragments: tuple[str, ...]) -> None:
    """The server is down for seconds after a lost answer, as after a crash; then everything goes on in its claim, once."""
    told = Told()

    async def scenario(server: PostgresServer, proxy: TcpProxy, url: str) -> None:
        async with engine_at(url, told.task, starts=False) as client:
            run_ids = [run.id for run in await client.engine.enqueue_many(told.task, [None] * 3)]
        cut = proxy.cut(where, *fragments)
        async with engine_at(proxy.url, told.task) as heard:
            await lost(cut)
            proxy.is_refusing = True
            proxy.reset()
            await asyncio.to_thread(server.restart, "immediate")
            await heard.log.wait("store_unavailable")
            await asyncio.sleep(1.5)  # the outage has to last beyond the first tries
            proxy.is_refusing = False
            await all_succeed(heard, told, run_ids)
            assert not heard.log.find("lease_lost")
        assert_once(url, told, run_ids, token=tokens_spent(where, fragments))

    with PostgresServer(is_private=True, settings=FAST_SETTINGS) as server:
        url = server.url("postgres")
        proxy = TcpProxy(url)
        try:
            play(scenario(server, proxy, url))
        finally:
            proxy.close()


def test_an_enqueue_rides_out_a_short_outage_after_a_lost_answer(proxy: TcpProxy, postgres_url: str) -> None:
    """The caller waits, and gets its run when the database is back within the time-out."""
    told = Told()

    async def scenario() -> None:
        async with engine_at(proxy.url, told.task, starts=False) as heard:
            await heard.engine.enqueue(told.task)
            cut = proxy.cut(Where.AFTER, *ENQUEUE)
            asked = asyncio.create_task(heard.engine.enqueue(told.task, idempotency_key="a key"))
            await lost(cut)
            proxy.is_refusing = True
            proxy.reset()
            await heard.log.wait("store_unavailable", count=1)
            proxy.is_refusing = False
            run = await asked
            assert run.created
            assert query(postgres_url, "SELECT count(*) FROM {run}") == [(2,)]

    play(scenario())
