"""Effects without an engine: two ledgers on real connections, one key and many callers, an engine beside them, and wrong use."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from outlast import (
    Context,
    EffectFailedError,
    OperationConflictError,
    OperationInProgressError,
    RetryPolicy,
    UsageError,
    connect,
    connect_ledger,
    effect,
    step,
    task,
)
from outlast.effect import Unsure

from .ledger_world import PATIENCE, Provider, found, happens, lease_of, paying, two_ledgers


@pytest.mark.parametrize("plain", [False, True], ids=["coroutine", "function"])
def test_twenty_callers_at_once_do_it_once(database_url, plain):
    """Whoever comes second waits, and all get the one result."""
    provider = Provider()
    pays = paying(provider, plain=plain)

    async def main() -> None:
        async with two_ledgers(database_url) as (first, second):
            results = await asyncio.gather(*((first, second)[number % 2].run(pays, 5, key="key") for number in range(20)))
            assert results == [6] * 20
            view = await found(first)
            assert [(attempt.number, attempt.outcome) for attempt in view.attempts] == [(1, "done")]
            assert provider.done == [("key", 1, view.attempts[0].token)]

    asyncio.run(main())


def test_what_was_done_is_returned_and_not_done_again(database_url):
    """Later, elsewhere, by whomever; another key is another operation, with a greater token."""
    provider = Provider()
    pays = paying(provider)

    async def main() -> None:
        async with connect_ledger(database_url) as ledger:
            assert await ledger.run(pays, 5, key="key") == 6
        async with connect_ledger(database_url) as ledger:
            assert await ledger.run(pays, 5, key="key", wait=0) == 6
            assert await ledger.run(pays, 5, key="another") == 6
            view = await found(ledger)
            assert (view.status, view.arguments, view.result, view.error, view.decision) == ("done", "[5]", "6", None, None)
            assert await ledger.find(pays, "unknown") is None
        assert [key for key, _, _ in provider.done] == ["key", "another"]
        assert provider.done[0][2] < provider.done[1][2]

    asyncio.run(main())


def test_other_arguments_under_one_key_are_a_conflict(database_url):
    """They are refused with the key named, and nothing is done."""
    provider = Provider()
    pays = paying(provider)

    async def main() -> None:
        async with two_ledgers(database_url) as (first, second):
            await first.run(pays, 5, key="key")
            with pytest.raises(OperationConflictError, match="key 'key' of effect pay belongs to an operation with other arguments"):
                await second.run(pays, 6, key="key")
        assert len(provider.done) == 1

    asyncio.run(main())


@pytest.mark.parametrize("wait", [0, "50ms"])
def test_who_does_not_wait_is_told_who_acts(database_url, wait):
    """While another caller acts the second one gets an error within its time, and the first goes on undisturbed."""
    provider, served = Provider(), asyncio.Event()
    provider.before = lambda attempt: served.wait()
    pays = paying(provider)

    async def main() -> None:
        async with two_ledgers(database_url) as (first, second):
            acting = asyncio.create_task(first.run(pays, 5, key="key"))
            await happens("the attempt began", lambda: second.find(pays, "key"))
            with pytest.raises(OperationInProgressError, match="another caller acts for it"):
                await second.run(pays, 5, key="key", wait=wait)
            waiting = asyncio.create_task(second.run(pays, 5, key="key"))
            served.set()
            assert await asyncio.gather(acting, waiting) == [6, 6]
        assert len(provider.done) == 1

    asyncio.run(main())


def test_the_lease_of_who_acts_is_renewed(database_url, monkeypatch):
    """Again and again while the attempt lasts; the second caller is told that it goes on, and asks nobody."""
    monkeypatch.setattr("outlast.ledger.lease.LEDGER_RENEWALS_PER_LEASE", 1_000)
    provider, served = Provider(), asyncio.Event()
    provider.before = lambda attempt: served.wait()
    provider.verdicts = [Unsure("it was asked")]
    pays = paying(provider)

    async def main() -> None:
        async with two_ledgers(database_url, lease="1m") as (first, second):
            acting = asyncio.create_task(first.run(pays, 5, key="key"))
            await happens("the attempt began", lambda: second.find(pays, "key"))
            seen = set()

            async def renewed() -> bool:
                seen.add(await lease_of(second))
                return len(seen) == 4

            await happens("three renewals", renewed)
            with pytest.raises(OperationInProgressError):
                await second.run(pays, 5, key="key", wait=0)
            served.set()
            assert await acting == 6
        assert (len(provider.done), provider.asked) == (1, [])

    asyncio.run(main())


# --- with an engine beside it ---------------------------------------------------------------------------------------------------
def test_a_run_and_a_ledger_share_a_key(database_url):
    """What the run has done the ledger returns, and the other way round."""
    provider = Provider()
    pays = paying(provider)

    @task
    async def shop(ctx: Context, key: str) -> int:
        return await ctx.effect(pays.with_options(key=key), 5)

    async def main() -> None:
        async with connect(database_url, tasks=(shop,)) as engine, connect_ledger(database_url) as ledger:
            await engine.start()
            assert await ledger.run(pays, 5, key="first") == 6
            for key in ("first", "second"):
                run = await engine.enqueue(shop, key)
                assert await run.result(timeout=PATIENCE) == 6
            assert await ledger.run(pays, 5, key="second") == 6
        assert [key for key, _, _ in provider.done] == ["first", "second"]

    asyncio.run(main())


def test_a_run_and_a_ledger_share_a_key_without_arguments(database_url):
    """No arguments are the same to both."""
    provider = Provider()

    @effect
    async def ring(attempt) -> int:
        return provider.serve(attempt, 1)

    @task
    async def visit(ctx: Context) -> int:
        return await ctx.effect(ring.with_options(key="key"))

    async def main() -> None:
        async with connect(database_url, tasks=(visit,)) as engine, connect_ledger(database_url) as ledger:
            await engine.start()
            assert await (await engine.enqueue(visit)).result(timeout=PATIENCE) == 2
            assert await ledger.run(ring, key="key") == 2
        assert len(provider.done) == 1

    asyncio.run(main())


def test_what_a_run_failed_at_is_tried_by_who_comes(database_url):
    """Though the run goes on with something else: what failed is nobody's."""
    provider, over = Provider(), asyncio.Event()
    errors = [ConnectionRefusedError("port 80")]

    def fail(attempt):
        if errors:
            raise errors.pop()

    provider.before = fail
    pays = paying(provider, retry=RetryPolicy(maximum_attempts=1))

    @step
    async def go_on() -> None:
        await over.wait()

    @task
    async def shop(ctx: Context) -> str:
        try:
            await ctx.effect(pays.with_options(key="key"), 5)
        except EffectFailedError:
            await ctx.step(go_on)
        return "over"

    async def main() -> None:
        async with connect(database_url, tasks=(shop,)) as engine, connect_ledger(database_url) as ledger:
            await engine.start()
            run = await engine.enqueue(shop)

            async def failed() -> bool:
                view = await ledger.find(pays, "key")
                return view is not None and view.status == "failed"

            await happens("the run failed at it", failed)
            assert await ledger.run(pays, 5, key="key", wait=0) == 6
            over.set()
            assert await run.result(timeout=PATIENCE) == "over"

    asyncio.run(main())


# --- wrong use --------------------------------------------------------------------------------------------------------------------
def test_wrong_use_is_named(sqlite_url):
    """What cannot work is refused before anything is planned, with what to write instead."""
    provider = Provider()
    pays, long = paying(provider), paying(provider, name="\u732b" * 200)

    async def main() -> None:
        closed = connect_ledger(sqlite_url)
        with pytest.raises(UsageError, match="the ledger is not open"):
            await closed.run(pays, 5, key="key")
        async with connect_ledger(sqlite_url) as ledger:
            for call, message in (
                (lambda: ledger.run(pays.step, 5, key="key"), "run takes an effect, not <step pay>"),
                (lambda: ledger.run(pays, 5, key=""), "key ''"),
                (lambda: ledger.run(pays, 5, key="a\0b"), "printable characters"),
                (lambda: ledger.run(long, 5, key="\U0002a000" * 512), "so shorten the key"),
                (lambda: ledger.run(pays, 5, key="key", wait="soon"), "wait is 'soon'"),
                (lambda: ledger.run(pays, key="key"), "missing a required argument: 'amount'"),
                (lambda: ledger.run(pays, "five", key="key"), "arguments of step pay"),
            ):
                with pytest.raises(UsageError, match=message):
                    await call()
            assert await ledger.find(pays, "key") is None
        with pytest.raises(UsageError, match="the ledger is not open"):
            await ledger.run(pays, 5, key="key")
        with pytest.raises(UsageError, match="lease is 0:00:00.500000"):
            connect_ledger(sqlite_url, lease="500ms")
        assert provider.done == []

    asyncio.run(main())


def test_services_are_entered_and_left_with_the_ledger(sqlite_url):
    """Effects reach the world through them."""
    seen = []

    @asynccontextmanager
    async def services():
        seen.append("entered")
        yield {"rate": 3}
        seen.append("left")

    @effect
    async def pay(attempt, amount: int) -> int:
        return amount * attempt.services["rate"]

    async def main() -> None:
        async with connect_ledger(sqlite_url, services=services) as ledger:
            assert await ledger.run(pay, 5, key="key") == 15
            assert seen == ["entered"]

    asyncio.run(main())
    assert seen == ["entered", "left"]
