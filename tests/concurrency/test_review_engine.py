"""Races that a cold review of the engine looked for: what a body makes the engine begin, attempts that will not end, stops that are stopped."""

from __future__ import annotations

import asyncio
import dataclasses
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from outlast.context import Context
from outlast.errors import UsageError
from outlast.failure import Failure
from outlast.native.checkpoints import _size
from outlast.native.executions import Executions
from outlast.native.history import FailedAttempt, Outcome, Record, RecordKind
from outlast.native.store import FailureCheckpoint, Hold, RunCheckpoint, StepCheckpoint
from outlast.run import RunStatus
from outlast.step_key import StepKey
from outlast.task import task
from outlast.testing.engine_suite.stage import Gate

from .engine_world import WAIT, engine_at, play, query, until


def renewals() -> list[threading.Thread]:
    """Return the threads that renew a lease in this process."""
    return [thread for thread in threading.enumerate() if thread.name == "outlast-pulse"]


# --- what a body makes the engine begin ----------------------------------------------------------------------------------
def test_a_flush_that_a_body_begins_is_no_branch_of_it(sqlite_url: str) -> None:
    """A call given up begins a flush from within the body: it is the engine's, and goes on when the body is closed."""

    async def scenario() -> None:
        gate, names = Gate(), []

        async def quick() -> str:
            return "quick"

        @task
        async def giving_up(ctx: Context) -> str:
            slow = asyncio.create_task(ctx.step(gate.enter, ""))
            await ctx.step(quick)
            slow.cancel()
            await asyncio.wait({slow})
            names.extend(branch.path for branch in driver()._body._branches._alive)
            return "over"

        async with engine_at(sqlite_url, giving_up) as heard:

            def driver() -> Any:
                (only,) = heard.worker.executions.registry.values()
                return only

            run = await heard.engine.enqueue(giving_up)
            assert await run.result(timeout=WAIT) == "over"
            assert names == [()]
            assert not heard.log.find("write_refused")
            assert heard.transactions("claim_runs") >= 1
        assert query(sqlite_url, "SELECT token, recoveries FROM {run}") == [(1, 0)]

    play(scenario())


def test_an_enqueue_from_a_body_leaves_other_callers_theirs(sqlite_url: str) -> None:
    """A body that enqueues by the engine begins the engine's gathering of enqueues; closing the body ends it for nobody else."""

    async def scenario() -> None:
        held, opened = threading.Event(), threading.Event()

        @task
        async def plain(ctx: Context) -> str:
            return "done"

        @task
        async def undurable(ctx: Context) -> None:
            await heard.engine.enqueue(plain)

        async with engine_at(sqlite_url, plain, undurable) as heard:
            run = await heard.engine.enqueue(undurable)

            def hold(event: Any) -> None:
                if event.name == "before_store" and event.facts["call"] == "record_runs":
                    held.set()
                    opened.wait(WAIT)

            stop_holding = heard.engine.events.subscribe(hold)
            assert await asyncio.to_thread(held.wait, WAIT)
            other = asyncio.create_task(heard.engine.enqueue(plain))
            await asyncio.sleep(0)
            assert await run.cancel(reason="enough")
            await heard.log.wait("run_ended", run=run.id)
            stop_holding()
            opened.set()
            assert await (await other).result(timeout=WAIT) == "done"

    play(scenario())


# --- attempts that will not end --------------------------------------------------------------------------------------------
def test_a_coroutine_that_ignores_its_end_keeps_its_run_from_this_process(sqlite_url: str) -> None:
    """A step's coroutine that goes on although its lease was lost is an older body: no second attempt begins beside it."""

    async def scenario() -> None:
        begun, told, opened = asyncio.Event(), asyncio.Event(), asyncio.Event()
        going, most = [0], [0]

        async def stubborn() -> str:
            going[0] += 1
            most[0] = max(most[0], going[0])
            begun.set()
            try:
                await opened.wait()
            except asyncio.CancelledError:
                told.set()
                await opened.wait()
            finally:
                going[0] -= 1
            return "through"

        @task
        async def stepping(ctx: Context) -> str:
            return await ctx.step(stubborn)

        async with engine_at(sqlite_url, stepping) as heard:
            run = await heard.engine.enqueue(stepping)
            await begun.wait()
            heard.worker.executions.lose_all("a test says so")
            await asyncio.wait_for(told.wait(), WAIT)
            await heard.worker.claimer.compare_holds()
            assert run.id in heard.worker.executions.excluded
            looks = heard.transactions("look")
            await until("the claim loop looked again", lambda: heard.transactions("look") >= looks + 3)
            assert most == [1]
            opened.set()
            await until("the older one has ended", lambda: run.id not in heard.worker.executions.excluded)
            await heard.worker.claimer.compare_holds()
            assert await run.result(timeout=WAIT) == "through"
            assert most == [1]

    play(scenario())


# --- slots and timers --------------------------------------------------------------------------------------------------------
def test_a_full_worker_does_not_spin_when_a_timer_comes_due(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker without a free slot waits for one, however many timers have come due meanwhile."""

    async def scenario() -> None:
        gate = Gate()

        @task
        async def gated(ctx: Context) -> str:
            return await ctx.step(gate.enter, "")

        asked = [0]
        free_slots = Executions.free_slots.fget

        def counted(self: Executions) -> int:
            asked[0] += 1
            return free_slots(self)  # type: ignore[misc]  # a property has a getter

        async with engine_at(sqlite_url, gated, concurrency=1) as heard:
            await heard.engine.enqueue(gated)
            await gate.begun.wait()
            runtime = await heard.engine._open()
            heard.worker.claimer.delivery._next_due_at = runtime.time.now()  # as an idle look sets it just before a claim
            heard.worker.claimer._nudge.set()
            monkeypatch.setattr(Executions, "free_slots", property(counted))
            await asyncio.sleep(0.5)  # nothing happens, which no event tells
            assert asked[0] < 20
            gate.opened.set()

    play(scenario())


# --- stops ------------------------------------------------------------------------------------------------------------------
def test_a_stop_with_a_wrong_timeout_changes_nothing(sqlite_url: str) -> None:
    """What is no duration is refused before anything is stopped."""

    async def scenario() -> None:
        @task
        async def plain(ctx: Context) -> str:
            return "done"

        async with engine_at(sqlite_url, plain) as heard:
            with pytest.raises(UsageError):
                await heard.engine.stop(timeout="for ever")
            assert await (await heard.engine.enqueue(plain)).result(timeout=WAIT) == "done"

    play(scenario())


def test_a_stop_while_the_worker_begins_again_leaves_no_worker(sqlite_url: str) -> None:
    """A lease lost just before a stop: the new identity that was being announced is not left renewing."""

    async def scenario() -> None:
        held, opened = threading.Event(), threading.Event()

        @task
        async def plain(ctx: Context) -> str:
            return "done"

        def hold(event: Any) -> None:
            if event.name == "before_store" and event.facts["call"] == "record_worker":
                held.set()
                opened.wait(WAIT)

        async with engine_at(sqlite_url, plain) as heard:
            heard.engine.events.subscribe(hold)
            worker = heard.worker
            worker.incarnation.lose("a test says so")
            assert await asyncio.to_thread(held.wait, WAIT)
            stopping = asyncio.create_task(heard.engine.stop(timeout=3))
            await asyncio.sleep(0)
            await stopping
            opened.set()
            await asyncio.wait({worker._beginning_again})
            assert not renewals()

    play(scenario())


def test_a_stop_that_is_interrupted_lets_everything_go(sqlite_url: str) -> None:
    """A stop that is canceled drops the bodies at once: nothing renews, nothing is begun, and the lease takes care of the run."""

    async def scenario() -> None:
        gate = Gate()

        @task
        async def gated(ctx: Context) -> str:
            return await ctx.step(gate.enter, "")

        async with engine_at(sqlite_url, gated) as heard:
            run = await heard.engine.enqueue(gated)
            await gate.begun.wait()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(heard.engine.stop(timeout=30), 0.2)
            await asyncio.wait_for(gate.was_canceled.wait(), WAIT)
            await until("nothing renews", lambda: not renewals())
            assert (await run.view()).status is RunStatus.RUNNING

    play(scenario())


# --- loops that end ----------------------------------------------------------------------------------------------------------
_CHILD = """
import asyncio, sys
from outlast import Context, RetryPolicy, connect, step, task

@step(retry=RetryPolicy(maximum_attempts=1))
async def stuck() -> str:
    begun.release()
    await asyncio.Event().wait()
    return ""

@task
async def stepping(ctx: Context) -> str:
    return await ctx.step(stuck)

@task
async def sleeping(ctx: Context) -> str:
    begun.release()
    await asyncio.gather(ctx.sleep(1.5), ctx.sleep(1.6))
    return ""

@task
async def catching(ctx: Context) -> str:
    try:
        await ctx.step(stuck)
    except asyncio.CancelledError:
        return "canceled"
    return ""

async def main() -> None:
    global begun
    begun = asyncio.Semaphore(0)
    engine = connect(sys.argv[1], tasks=(stepping, sleeping, catching))
    await engine.start()
    for task in (stepping, sleeping, catching):
        await engine.enqueue(task)
        await begun.acquire()

asyncio.run(main())
"""


def test_a_loop_that_ends_without_a_stop_is_a_crash(database_url: str, tmp_path: Path) -> None:
    """`asyncio.run` cancels all tasks at its end: no run takes that for its own failure, and no call for given up."""
    program = tmp_path / "child.py"
    program.write_text(_CHILD)
    subprocess.run([sys.executable, str(program), database_url], check=True, timeout=WAIT)
    assert query(database_url, "SELECT status, attempts FROM {run}") == [("running", 0)] * 3
    assert query(database_url, "SELECT * FROM {step}") == []


# --- groups ------------------------------------------------------------------------------------------------------------------
def test_a_group_is_bounded_by_the_errors_in_it() -> None:
    """Recorded errors with their causes count towards a group's bytes as results do, whichever kind of checkpoint holds them."""
    cause = Failure("builtins.OSError", "m" * 8_000, traceback="t" * 16_000)
    failure = dataclasses.replace(cause, cause=cause)
    now, hold, key = datetime.now(UTC), Hold("run", 1), StepKey((), "step")
    record = Record(key, 0, RecordKind.STEP, Outcome.ERROR, "", 1, now, None, failure)
    checkpoints = (
        StepCheckpoint(hold, 0, record),
        FailureCheckpoint(hold, 0, FailedAttempt(key, 1, failure, now, now, now)),
        RunCheckpoint(hold, 0, RunStatus.FAILED, error=failure),
    )
    assert all(_size(checkpoint) >= 48_000 for checkpoint in checkpoints)
