"""The kit that ships to users: time is skipped, what can move has moved, and a wait that fails names what it waited for."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from outlast import Attempt, CancelRequested, Context, Progress, RunStatus, effect, step, task
from outlast.testing import EventLog, SkippingClock, attempt_of, skipping_engine, temporary_engine, wait_for_event

DAY = timedelta(days=1)


@task
async def reminder(ctx: Context, days: int) -> list[str]:
    sent = []
    for _ in range(days):
        await ctx.sleep("1d")
        sent.append(await ctx.step(send))
    return sent


@step
async def send() -> str:
    return "sent"


@task
async def foreign(ctx: Context) -> None:
    await asyncio.Event().wait()


def test_a_week_passes_in_a_moment():
    """Sleeping runs go on when time is skipped, and not before."""

    async def scenario():
        async with temporary_engine(tasks=(reminder,)) as engine:
            run = await engine.enqueue(reminder, 3)
            for _ in range(3):
                (view,) = await engine.settle()
                assert view.status is RunStatus.WAITING
                await engine.advance("23h")
                assert len(await engine.settle()) == 1
                await engine.advance("1h")
                moved = await run.view()
                assert moved.status is not RunStatus.WAITING or moved.due_at > engine.now(), "it is claimable when `advance` returns"
            assert await engine.settle() == ()
            assert await run.result(timeout=1) == ["sent"] * 3

    asyncio.run(scenario())


def test_what_nobody_can_claim_is_settled():
    """A pending run of a queue or a version without a worker does not hold up `settle`; it is returned."""

    async def scenario():
        async with temporary_engine(tasks=(reminder,), queues=("day",)) as engine:
            run = await engine.enqueue(reminder, 0)
            (view,) = await engine.settle(timeout=5)
            assert (view.id, view.status) == (run.id, RunStatus.PENDING)

    asyncio.run(scenario())


def test_a_body_that_awaits_something_of_its_own_is_named():
    """`settle` cannot know when it goes on: the time-out names run, task, and the line."""

    async def scenario():
        async with temporary_engine(tasks=(foreign,)) as engine:
            run = await engine.enqueue(foreign)
            with pytest.raises(TimeoutError, match=f"foreign {run.id}: .* awaits something of its own in foreign, line [0-9]+ of .*test_testing_kit.py"):
                await engine.settle(timeout=0.5)
            await run.cancel(reason="the test is over")

    asyncio.run(scenario())


def test_a_skip_costs_no_lease(sqlite_url):
    """Neither its own engine nor another on the same clock takes a worker for silent when more than a lease is skipped."""

    async def scenario():
        clock = SkippingClock()
        options = {"tasks": (reminder,), "clock": clock}
        async with skipping_engine(sqlite_url, **options) as one, skipping_engine(sqlite_url, **options) as other:
            await one.start()
            await other.start()
            for _ in range(2):
                await one.advance("7d")
                assert all(worker.lease_until > clock.now() for worker in await one.inspector.list_workers(only_alive=True))
                count = len(one.log.find("after_store", call="list_workers")) + 1
                await wait_for_event(one, "after_store", call="list_workers", count=count)
            for engine in (one, other):
                assert engine.log.find("worker_ended") == engine.log.find("lease_lost") == []
            assert len(await other.inspector.list_workers(only_alive=True)) == 2

    asyncio.run(scenario())


def test_engines_of_one_clock_have_one_time(sqlite_url):
    """Advancing one moves the other: a run that it parked is due there."""

    async def scenario():
        clock = SkippingClock()
        async with skipping_engine(sqlite_url, tasks=(reminder,), clock=clock) as client, skipping_engine(sqlite_url, tasks=(reminder,), clock=clock) as worker:
            await worker.start()
            run = await client.enqueue(reminder, 1)
            await worker.settle()
            await client.advance(DAY)
            assert await run.result(timeout=20) == ["sent"]

    asyncio.run(scenario())


def test_only_instants_are_skipped():
    """What measures real work goes on at its own pace."""

    async def scenario():
        clock = SkippingClock()
        now, monotonic = clock.now(), clock.monotonic()
        await clock.advance(DAY)
        assert DAY <= clock.now() - now < 1.01 * DAY
        assert clock.monotonic() - monotonic < 60

    asyncio.run(scenario())


def test_an_event_that_happened_before_is_found():
    """Waiting for what has happened already returns at once, and the second time is another time."""

    async def scenario():
        async with temporary_engine(tasks=(reminder,)) as engine:
            first, second = await engine.enqueue(reminder, 0), await engine.enqueue(reminder, 0)
            assert await first.result(timeout=20) == await second.result(timeout=20) == []
            assert (await wait_for_event(engine, "run_ended", run=first.id, timeout=0.5)).facts["status"] == "succeeded"
            assert (await wait_for_event(engine, "run_ended", count=2, timeout=0.5)).facts["run"] in (first.id, second.id)

    asyncio.run(scenario())


def test_a_failed_wait_names_the_event():
    """The error says what was waited for, with its facts, and what was heard instead."""

    async def scenario():
        async with temporary_engine(tasks=(reminder,)) as engine:
            run = await engine.enqueue(reminder, 1)
            await engine.settle()
            with pytest.raises(TimeoutError, match=f"no event run_ended\\(run='{run.id}'\\) within 0.1; heard: .*run_parked x 1"):
                await wait_for_event(engine, "run_ended", run=run.id, timeout=0.1)
            with pytest.raises(ValueError, match="'run_end' is no event; there are .*run_ended"):
                await wait_for_event(engine, "run_end")

    asyncio.run(scenario())


def test_a_log_hears_no_more_after_its_stop():
    """Who stops a log is not told of later events."""

    async def scenario():
        async with temporary_engine(tasks=(reminder,)) as engine:
            log = EventLog(engine.events)
            log.stop()
            await (await engine.enqueue(reminder, 0)).result(timeout=20)
            assert log.find("run_ended") == []

    asyncio.run(scenario())


def test_the_file_goes_with_the_engine():
    """Nothing is left behind, also when the test in the block failed."""

    async def scenario():
        folder = None
        with pytest.raises(KeyError):
            async with temporary_engine(tasks=(reminder,)) as engine:
                folder = Path(engine.url.removeprefix("sqlite:///")).parent
                assert folder.is_dir()
                raise KeyError
        assert folder is not None
        assert not folder.exists()

    asyncio.run(scenario())


@effect
def send_letter(attempt: Attempt[list[str]], to: str) -> int:
    attempt.raise_if_canceled()
    attempt.progress(1, 2, "half of it")
    attempt.services.append(f"{to} {attempt.key} {attempt.number} {attempt.token}")
    return len(attempt.services)


def test_an_effect_is_called_with_an_attempt_of_the_tests_own():
    """It knows what it was made with, and what the effect reports goes nowhere."""
    sent = []
    assert send_letter(attempt_of(sent), "Ada") == 1
    assert send_letter(attempt_of(sent, key="k", number=2, token=7), "Bob") == 2
    assert sent == ["Ada test 1 1", "Bob k 2 7"]
    assert attempt_of(last_progress=Progress(1.0, None, "")).last_progress == Progress(1.0, None, "")


def test_an_effect_in_a_thread_is_seen_to_end_when_it_is_told():
    """An attempt that was told to end says so."""
    sent = []
    with pytest.raises(CancelRequested, match="too long"):
        send_letter(attempt_of(sent, canceled="too long"), "Ada")
    assert sent == []
