"""Races of whole engines: cancels beside ends, workers that were ended by others, claims without bodies, leases that lapse."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from outlast.connect import backends
from outlast.context import Context
from outlast.limits import FLAGS_POLL
from outlast.native import rounds
from outlast.native.backend import Backend
from outlast.native.engine import NativeEngine
from outlast.native.settings import Settings
from outlast.native.watch import Watch
from outlast.run import CancelOutcome, RunStatus
from outlast.task import task
from outlast.testing.engine_suite.stage import Gate
from outlast.this_step import this_step

from .engine_world import WAIT, Heard, engine_at, play, query, until
from .tcp_proxy import TcpProxy

FOR_LONG = "10m"
"""A lease within which nothing is noticed by a renewal."""


class Stranger:
    """Another process's way to the same database, used by hand."""

    def __init__(self, url: str) -> None:
        self.backend: Backend = backends(url, Settings({}))[0]

    def close(self) -> None:
        self.backend.database.close()

    def end(self, worker_id: int, how: str = "dead") -> bool:
        with self.backend.database.transaction() as tx:
            return self.backend.store.end_worker(tx, worker_id, how)

    async def recover(self, heard: Heard) -> None:
        """Let the runs of ended workers go on, as a watcher does."""
        runtime = await heard.engine._open()
        watch = Watch(runtime.calls, self.backend.store, self.backend.liveness, runtime.settings.clock, runtime.events, runtime.at)
        await watch.recover()


@pytest.fixture
def stranger(database_url: str) -> Any:
    stranger = Stranger(database_url)
    yield stranger
    stranger.close()


# --- cancels -----------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("is_cancel_first", [True, False], ids=["cancel first", "end first"])
def test_the_answer_to_a_cancel_is_how_the_run_ends(is_cancel_first: bool, database_url: str) -> None:
    """Of a cancel and an end at once either may win; who was told `requested` sees it canceled, who was told `already_over` succeeded."""

    async def scenario() -> None:
        answers: Counter[CancelOutcome] = Counter()
        gates: dict[str, asyncio.Event] = {}
        begun: Counter[str] = Counter()

        async def enter(run_id: str) -> None:
            begun[run_id] += 1
            await gates[run_id].wait()

        @task
        async def gated(ctx: Context) -> None:
            await ctx.step(enter, ctx.run_id)

        async with engine_at(database_url, gated) as heard:

            async def race(number: int) -> None:
                run = await heard.engine.enqueue(gated)
                gate = gates.setdefault(run.id, asyncio.Event())
                await heard.log.wait("run_started", run=run.id)
                if is_cancel_first:
                    answer = asyncio.create_task(run.cancel(reason="not wanted"))
                    await turns(number % 7)
                    gate.set()
                else:
                    gate.set()
                    await turns(number % 7)
                    answer = asyncio.create_task(run.cancel(reason="not wanted"))
                outcome = await answer
                answers[outcome] += 1
                await heard.log.wait("run_ended", run=run.id)
                view = await run.view()
                assert (outcome, view.status) in [
                    (CancelOutcome.REQUESTED, RunStatus.CANCELED),
                    (CancelOutcome.ALREADY_OVER, RunStatus.SUCCEEDED),
                ]
                assert len(heard.log.find("run_ended", run=run.id)) == 1

            def open_up(event: Any) -> None:
                if event.name == "run_started":
                    gates.setdefault(event.facts["run"], asyncio.Event())

            heard.engine.events.subscribe(open_up)
            for batch in range(4):
                await asyncio.gather(*(race(batch * 15 + number) for number in range(15)))
        assert sum(answers.values()) == 60

    play(scenario())


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_a_cancel_reaches_a_body_by_the_poll_alone(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With no wake-ups at all a busy worker tells a canceled run's body at its next look, which comes twice a second."""

    async def scenario() -> None:
        gate = Gate()

        @task
        async def gated(ctx: Context) -> str:
            return await ctx.step(gate.enter, "")

        monkeypatch.setattr(NativeEngine, "_listen", lambda self: None)
        async with engine_at(database_url, gated) as heard, engine_at(database_url, gated, starts=False) as client:
            run = await heard.engine.enqueue(gated)
            await gate.begun.wait()
            assert await client.engine.cancel(run.id, reason="enough") is CancelOutcome.REQUESTED
            looks = heard.transactions("list_flagged")
            await asyncio.wait_for(gate.was_canceled.wait(), WAIT)
            assert heard.transactions("list_flagged") <= looks + 2
            await heard.log.wait("run_ended", run=run.id, status=RunStatus.CANCELED)
            assert FLAGS_POLL.total_seconds() <= 0.5

    play(scenario())


# --- ended by others -----------------------------------------------------------------------------------------------------------
def test_a_worker_that_was_ended_claims_under_a_new_identity(database_url: str, stranger: Stranger) -> None:
    """The fence refuses its claim, it begins again at once and not at its next renewal, and the run is executed once."""

    async def scenario() -> None:
        bodies: Counter[str] = Counter()

        @task
        async def plain(ctx: Context) -> str:
            bodies[ctx.run_id] += 1
            return "done"

        async with engine_at(database_url, plain, lease=FOR_LONG) as heard:
            first = heard.worker.incarnation.id
            assert await asyncio.to_thread(stranger.end, first)
            run = await heard.engine.enqueue(plain)
            assert await run.result(timeout=WAIT) == "done"
            assert heard.log.find("lease_lost", worker=first)
            assert heard.worker.incarnation.id != first
            assert bodies == Counter([run.id])
        assert query(database_url, "SELECT token, recoveries FROM {run}") == [(1, 0)]

    play(scenario())


def test_one_process_never_runs_two_bodies_of_one_run(database_url: str, stranger: Stranger) -> None:
    """A thread that ignores that its lease was lost keeps its run from this process, whose new incarnation executes others meanwhile."""

    async def scenario() -> None:
        begun, opened, going, most = threading.Semaphore(0), threading.Event(), [0], [0]

        def stubborn() -> str:
            going[0] += 1
            most[0] = max(most[0], going[0])
            begun.release()
            opened.wait(WAIT)
            going[0] -= 1
            return "through"

        @task
        async def threaded(ctx: Context) -> str:
            return await ctx.step(stubborn)

        @task
        async def plain(ctx: Context) -> str:
            return "done"

        async with engine_at(database_url, threaded, plain, lease=FOR_LONG) as heard:
            run = await heard.engine.enqueue(threaded)
            assert await asyncio.to_thread(begun.acquire, timeout=WAIT)
            first = heard.worker.incarnation.id
            assert await asyncio.to_thread(stranger.end, first)
            await stranger.recover(heard)
            assert (await run.view()).status is RunStatus.PENDING
            for _ in range(3):
                assert await (await heard.engine.enqueue(plain)).result(timeout=WAIT) == "done"
            assert heard.worker.incarnation.id != first
            looks = heard.transactions("claim_runs")
            await asyncio.sleep(2)  # what is counted is a rate
            assert heard.transactions("claim_runs") - looks <= 12, "what cannot be claimed is asked for without a pause"
            assert (await run.view()).status is RunStatus.PENDING, "it was claimed while its older body was alive here"
            opened.set()
            assert await run.result(timeout=WAIT) == "through"
            assert most == [1]
        assert query(database_url, "SELECT token, recoveries FROM {run} WHERE kind = 'threaded'") == [(2, 1)]

    play(scenario())


def test_rescues_beside_ends_never_end_a_run_twice(database_url: str, stranger: Stranger) -> None:
    """A worker that is ended again and again while it executes loses claims and no run: each succeeds, and one end of each is accepted."""

    async def scenario() -> None:
        @task
        async def stepped(ctx: Context) -> int:
            return sum([await ctx.step(one) for _ in range(3)])

        async def one() -> int:
            await asyncio.sleep(0.002)
            return this_step().attempt

        async with engine_at(database_url, stepped, lease=FOR_LONG) as heard:
            runs = await heard.engine.enqueue_many(stepped, [None] * 120)
            for _ in range(8):
                await heard.log.wait("run_ended", count=len(heard.log.find("run_ended")) + 1)
                await asyncio.to_thread(stranger.end, heard.worker.incarnation.id)
                await stranger.recover(heard)
                if len(heard.log.find("run_ended")) >= len(runs):
                    break
            await until("the last are let go", lambda: not query(database_url, "SELECT id FROM {run} WHERE status = 'waiting'"))
            for run in runs:
                assert await run.result(timeout=WAIT) == 3
            assert Counter(event.facts["run"] for event in heard.log.find("run_ended")) == Counter(run.id for run in runs)
        assert query(database_url, "SELECT count(*) FROM {step}") == [(360,)]

    play(scenario())


@pytest.mark.parametrize("call", ["claim_runs", "read_contexts"])
def test_a_worker_that_was_ended_since_its_claim_begins_no_body(call: str, database_url: str, stranger: Stranger) -> None:
    """Between a claim, or the reading of its history, and the body's begin the lease may be lost: then nothing begins under it."""

    async def scenario() -> None:
        tokens: list[int] = []

        async def note() -> None:
            tokens.append(this_step().fencing_token)

        @task
        async def twice(ctx: Context) -> str:
            await ctx.step(note)
            await ctx.sleep("3s")
            await ctx.step(note)
            return "done"

        async with engine_at(database_url, twice, starts=False) as client:
            run = await client.engine.enqueue(twice)
        async with engine_at(database_url, twice, starts=False, lease=FOR_LONG) as heard:
            loop, ended = asyncio.get_running_loop(), threading.Event()

            def end(event: Any) -> None:
                is_due = event.name == "after_store" and event.facts["call"] == call and query(database_url, "SELECT id FROM {run} WHERE status = 'running'")
                if is_due and not ended.is_set():
                    ended.set()
                    incarnation = heard.worker.incarnation
                    stranger.end(incarnation.id)
                    loop.call_soon_threadsafe(incarnation.lose, "it was ended")

            unsubscribe = heard.engine.events.subscribe(end)
            await heard.engine.start()
            assert await asyncio.to_thread(ended.wait, WAIT)
            unsubscribe()
            await heard.log.wait("worker_started", count=2)
            await stranger.recover(heard)
            assert await heard.engine.handle(twice, run.id).result(timeout=WAIT) == "done"
            assert tokens == ([2, 3] if call == "claim_runs" else [1, 3])

    play(scenario())


@pytest.mark.parametrize("position", range(4))
def test_a_run_that_cannot_be_begun_holds_up_no_other(position: int, database_url: str) -> None:
    """Wherever it stands in a claimed batch, it fails with the reason and the others are executed at once."""

    async def scenario() -> None:
        @task
        async def plain(ctx: Context) -> str:
            return "done"

        async with engine_at(database_url, plain, starts=False) as client:
            runs = await client.engine.enqueue_many(plain, [None] * 4)
        query(database_url, f"UPDATE {{run_body}} SET headers = '[1]' WHERE run = '{runs[position].id}'")
        async with engine_at(database_url, plain) as heard:
            for run in runs[:position] + runs[position + 1 :]:
                assert await heard.engine.handle(plain, run.id).result(timeout=5) == "done"
            await until("it has failed", lambda: query(database_url, "SELECT count(*) FROM {run} WHERE status = 'failed'") == [(1,)])
        assert query(database_url, "SELECT max(token), sum(attempts) FROM {run}") == [(1, 0)]

    play(scenario())


# --- claims without bodies, leases ------------------------------------------------------------------------------------------------
def test_a_claim_whose_body_never_began_is_let_go(database_url: str, stranger: Stranger, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the database says is ours and nobody here executes is released without a penalty, and then executed once."""
    monkeypatch.setattr(rounds, "STRAYS_EVERY", rounds.FLAGS_POLL)

    async def scenario() -> None:
        bodies: Counter[str] = Counter()

        @task
        async def plain(ctx: Context) -> str:
            bodies[ctx.run_id] += 1
            return "done"

        async with engine_at(database_url, plain, starts=False) as client:
            runs = await client.engine.enqueue_many(plain, [None] * 3, delay="1h")

            def claim_for(worker_id: int) -> int:
                later = datetime.now(UTC) + timedelta(hours=2)
                with stranger.backend.database.transaction() as tx:
                    stranger.backend.store.fence(tx, worker_id)
                    stranger.backend.store.wake_due(tx, 10, later)
                    return len(stranger.backend.store.claim_runs(tx, worker_id, [run.id for run in runs], 10, later)())

            async with engine_at(database_url, plain) as heard:
                assert await asyncio.to_thread(claim_for, heard.worker.incarnation.id) == 3
                for run in runs:
                    assert await run.result(timeout=WAIT) == "done"
            assert bodies == Counter(run.id for run in runs)
        assert query(database_url, "SELECT DISTINCT token, recoveries, attempts FROM {run}") == [(2, 0, 0)]

    play(scenario())


def test_a_hand_over_repeats_no_step(database_url: str) -> None:
    """Two workers that stop and start in turn hand runs to each other, and no step of any of them is executed twice."""

    async def scenario() -> None:
        steps: Counter[tuple[str, int]] = Counter()

        async def one(run_id: str, number: int) -> int:
            steps[run_id, number] += 1
            await asyncio.sleep(0.01)
            return number

        @task
        async def long(ctx: Context) -> int:
            return sum([await ctx.step(one, ctx.run_id, number) for number in range(8)])

        async with engine_at(database_url, long, starts=False) as client:
            runs = await client.engine.enqueue_many(long, [None] * 30)
            for _ in range(12):
                async with engine_at(database_url, long) as heard:
                    await heard.log.wait("after_store", call="commit_checkpoints")
                if not query(database_url, "SELECT id FROM {run} WHERE finished_at IS NULL"):
                    break
            async with engine_at(database_url, long):
                assert [await run.result(timeout=WAIT) for run in runs] == [28] * 30
        assert set(steps.values()) == {1}
        assert len(steps) == 240
        assert query(database_url, "SELECT max(token) > 1, sum(recoveries) FROM {run}") in ([(True, 0)], [(1, 0)])

    play(scenario())


@pytest.mark.parametrize("is_stopped", [True, False], ids=["the thread is gone", "the network is a black hole"])
def test_bodies_are_told_before_a_lapsing_lease_ends(is_stopped: bool, postgres_url: str) -> None:
    """When renewals stop or hang, the bodies are told while the lease still holds; afterwards the worker goes on, and the run succeeds in a new claim."""
    proxy = TcpProxy(postgres_url)

    async def scenario() -> None:
        gate = Gate()

        @task
        async def gated(ctx: Context) -> str:
            return await ctx.step(gate.enter, "done")

        async with engine_at(postgres_url, gated, starts=False) as client, engine_at(proxy.url, gated, lease="4s") as heard:
            run = await client.engine.enqueue(gated)
            await asyncio.wait_for(gate.begun.wait(), WAIT)
            if is_stopped:
                heard.worker.incarnation._pulse._stop.set()
            else:
                proxy.passing.clear()
            await asyncio.wait_for(gate.was_canceled.wait(), WAIT)
            assert query(postgres_url, "SELECT lease_until > clock_timestamp() FROM {worker} WHERE ended_at IS NULL") == [(True,)]
            gate.opened.set()
            proxy.passing.set()
            async with engine_at(postgres_url, gated, lease="4s"):
                assert await run.result(timeout=WAIT) == "done"
            assert gate.count == 2

    try:
        play(scenario())
    finally:
        proxy.close()
