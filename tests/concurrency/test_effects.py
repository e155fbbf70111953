"""Races of effects with the database in the middle: lost answers, older attempts, older claims, stops, and branches at once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from outlast import Attempt, Context, Done, EffectFailedError, NotDone, RetryPolicy, Unsure, effect, task
from outlast.effect import Effect

from .engine_world import WAIT, Heard, engine_at, play, query, until
from .tcp_proxy import TcpProxy, Where

TAKE = ("nextval('outlast.attempt_token')",)
RECORD = ("UPDATE outlast.operation o", "INSERT INTO outlast.step (")
ONE_RUN = "SELECT status, token FROM {run}"


class Shop:
    """What is outside: orders that are executed, each as often as it comes, and may be held until the test says so."""

    def __init__(self, *, holds: bool = False) -> None:
        self.executed: list[tuple[str, int]] = []
        """The name of each order, and the attempt that brought it."""
        self.looks: list[int] = []
        """The attempt of each."""
        self.let_go = asyncio.Event()
        self.arrived = asyncio.Event()
        if not holds:
            self.let_go.set()

    async def order(self, attempt: Attempt[Any], name: str) -> int:
        self.executed.append((name, attempt.number))
        self.arrived.set()
        await self.let_go.wait()
        return len(self.executed)

    def look(self, attempt: Attempt[Any], name: str) -> Done[int] | NotDone | Unsure:
        self.looks.append(attempt.number)
        count = sum(ordered == name for ordered, _ in self.executed)
        return Done(count) if count else NotDone()


def ordering(shop: Shop, **options: Any) -> Effect[[str], int]:
    """An effect that orders from the shop."""

    @effect(**{"timeout": "60s", "settle": 0, **options})
    async def order(attempt: Attempt[Any], name: str) -> int:
        return await shop.order(attempt, name)

    @order.reconcile
    async def has_been_ordered(attempt: Attempt[Any], name: str) -> Done[int] | NotDone | Unsure:
        return shop.look(attempt, name)

    return order


def operations(url: str) -> list[tuple[Any, ...]]:
    return query(url, "SELECT status, attempt FROM {operation}")


# --- answers that are lost ---------------------------------------------------------------------------------------------------
@pytest.fixture
def proxy(postgres_url: str) -> Iterator[TcpProxy]:
    """A wire to a database that has its tables already: what makes them has every fragment of SQL in it."""

    async def migrate() -> None:
        async with engine_at(postgres_url, starts=False) as heard:
            await heard.engine.migrate()

    asyncio.run(migrate())
    proxy = TcpProxy(postgres_url)
    yield proxy
    proxy.close()


@pytest.mark.parametrize("where", [Where.BEFORE, Where.AFTER], ids=["before", "after"])
@pytest.mark.parametrize("fragments", [TAKE, RECORD], ids=["attempt", "result"])
def test_a_lost_answer_on_the_way_of_an_effect_changes_nothing(where: Where, fragments: tuple[str, ...], proxy: TcpProxy, postgres_url: str) -> None:
    """Whether the commit of an attempt or of a result was done or not, its answer is lost: the order is executed once, by one attempt."""

    async def scenario() -> None:
        shop = Shop()
        order = ordering(shop)

        @task
        async def buy(ctx: Context) -> int:
            return await ctx.effect(order, "bread")

        cut = proxy.cut(where, *fragments)
        async with engine_at(proxy.url, buy) as heard:
            assert await (await heard.engine.enqueue(buy)).result(timeout=WAIT) == 1
            assert await asyncio.to_thread(cut.happened.wait, WAIT), "the wire was not cut: no such transaction came"
            assert cut.committed.is_set() == (where is Where.AFTER)
        assert shop.executed == [("bread", 1)]
        assert shop.looks == [], "an attempt that nobody has performed is performed, and a result that is there is read"
        assert operations(postgres_url) == [("done", 1)]
        assert query(postgres_url, ONE_RUN) == [("succeeded", 1)]

    play(scenario())


def test_an_attempt_whose_commit_comes_late_is_performed_once(proxy: TcpProxy, postgres_url: str) -> None:
    """The wire breaks at the commit that begins an attempt, and the server commits afterwards: the next try finds it, and it is performed."""

    async def scenario() -> None:
        shop = Shop()
        order = ordering(shop)

        @task
        async def buy(ctx: Context) -> int:
            return await ctx.effect(order, "bread")

        cut = proxy.cut(Where.HELD, *TAKE)
        async with engine_at(proxy.url, buy) as heard:
            run = await heard.engine.enqueue(buy)
            assert await asyncio.to_thread(cut.happened.wait, WAIT), "the wire was not cut: no such transaction came"
            cut.let_go.set()
            assert await run.result(timeout=WAIT) == 1
        assert shop.executed == [("bread", 1)]
        assert operations(postgres_url) == [("done", 1)]

    play(scenario())


# --- who may record ------------------------------------------------------------------------------------------------------------
def test_the_attempt_is_committed_when_perform_begins(database_url: str) -> None:
    """What another connection sees while `perform` runs: the plan, and the attempt with the number and the token that it was given."""

    async def scenario() -> None:
        seen: list[tuple[Any, ...]] = []

        @effect
        async def order(attempt: Attempt[Any]) -> None:
            found = query(database_url, "SELECT o.status, o.attempt, a.token FROM {operation} AS o JOIN {operation_attempt} AS a ON a.key = o.key")
            seen.append((*found, attempt.number, attempt.token))

        @task
        async def buy(ctx: Context) -> None:
            await ctx.effect(order)

        async with engine_at(database_url, buy) as heard:
            await (await heard.engine.enqueue(buy)).result(timeout=WAIT)
        ((row, number, token),) = seen
        assert row == ("attempting", number, token)

    play(scenario())


def test_an_attempt_that_is_not_current_records_nothing(database_url: str) -> None:
    """While attempt 1 is under way the operation gets another attempt of the same claim: the first one's result is refused by its number."""

    async def scenario() -> None:
        shop = Shop(holds=True)
        order = ordering(shop)

        @task
        async def buy(ctx: Context) -> int:
            return await ctx.effect(order, "bread")

        async with engine_at(database_url, buy) as heard:
            run = await heard.engine.enqueue(buy)
            await shop.arrived.wait()
            query(database_url, ANOTHER_ATTEMPT)
            query(database_url, "UPDATE {operation} SET attempt = 2")
            shop.let_go.set()
            assert await run.result(timeout=WAIT) == 1
        assert shop.looks == [2], "the second attempt is asked about, whose outcome nobody knows"
        assert query(database_url, "SELECT number, outcome FROM {operation_attempt} ORDER BY number") == [(1, None), (2, "done")]
        assert shop.executed == [("bread", 1)]

    play(scenario())


ANOTHER_ATTEMPT = """
INSERT INTO {operation_attempt} (effect, key, number, token, run, run_token, worker, started_at, timeout, settle)
SELECT effect, key, 2, token + 1, run, run_token, worker, started_at, timeout, settle FROM {operation_attempt}
"""


def test_an_older_claim_records_nothing(database_url: str) -> None:
    """While an attempt is under way its run is claimed anew: the result is refused by the run's token, and the ledger still says attempting."""

    async def scenario() -> None:
        shop = Shop(holds=True)
        order = ordering(shop)

        @task
        async def buy(ctx: Context) -> int:
            return await ctx.effect(order, "bread")

        async with engine_at(database_url, buy) as heard:
            await heard.engine.enqueue(buy)
            await shop.arrived.wait()
            query(database_url, "UPDATE {run} SET token = token + 1")
            shop.let_go.set()
            assert not await is_recorded(heard)
            assert operations(database_url) == [("attempting", 1)]
            assert query(database_url, "SELECT count(*) FROM {step}") == [(0,)]

    play(scenario())


async def is_recorded(heard: Heard) -> bool:
    """Wait until the result was written, or refused."""
    await until("the result was to be written", lambda: heard.transactions("record_effect") > 0)
    await until("its body has ended or was told", lambda: not heard.worker.executions.registry or heard.log.find("effect_recorded"))
    return bool(heard.log.find("effect_recorded"))


# --- stops and branches ----------------------------------------------------------------------------------------------------------
def test_an_effect_that_a_stop_cuts_off_is_reconciled_by_the_next_worker(database_url: str) -> None:
    """A worker that is stopped in the middle of an attempt leaves it unknown; the next one asks, and does not repeat it."""

    async def scenario() -> None:
        shop = Shop(holds=True)
        order = ordering(shop)

        @task
        async def buy(ctx: Context) -> int:
            return await ctx.effect(order, "bread")

        async with engine_at(database_url, buy) as heard:
            run = await heard.engine.enqueue(buy)
            await shop.arrived.wait()
            await heard.engine.stop(timeout=0.2)
        assert operations(database_url)[0][0] in ("attempting", "unknown")
        async with engine_at(database_url, buy) as heard:
            assert await heard.engine.handle(buy, run.id).result(timeout=WAIT) == 1
        assert shop.executed == [("bread", 1)]
        assert shop.looks == [1]
        assert operations(database_url) == [("done", 1)]

    play(scenario())


def test_effects_of_one_run_at_once_are_operations_of_their_own(database_url: str) -> None:
    """Twelve branches perform one effect at once: twelve operations, each with one attempt and one token, and each branch gets its own result."""

    async def scenario() -> None:
        names = [f"loaf {number}" for number in range(12)]

        @effect
        async def bake(attempt: Attempt[Any], name: str) -> tuple[str, int]:
            await asyncio.sleep(0.01)
            return name, attempt.token

        @task
        async def bake_all(ctx: Context) -> list[tuple[str, int]]:
            return list(await asyncio.gather(*(ctx.effect(bake, name) for name in names)))

        async with engine_at(database_url, bake_all) as heard:
            baked = await (await heard.engine.enqueue(bake_all)).result(timeout=WAIT)
        assert [name for name, _ in baked] == names
        assert len({token for _, token in baked}) == 12
        assert query(database_url, "SELECT DISTINCT status, attempt FROM {operation}") == [("done", 1)]
        assert query(database_url, "SELECT count(*) FROM {operation}") == [(12,)]

    play(scenario())


def test_a_body_sees_why_an_effect_failed_at_each_replay(database_url: str) -> None:
    """An effect whose attempts are used up raises the recorded error, the same when the body is replayed after a park."""

    async def scenario() -> None:
        caught: list[tuple[bool, int]] = []

        @effect(retry=RetryPolicy(maximum_attempts=2, initial_delay=0), not_done=ConnectionRefusedError)
        async def order(attempt: Attempt[Any]) -> None:
            raise ConnectionRefusedError("closed on Mondays")

        @task
        async def buy(ctx: Context) -> str:
            try:
                await ctx.effect(order)
            except EffectFailedError as error:
                caught.append((error.is_a(ConnectionRefusedError), error.attempts))
            await ctx.sleep(2.1)  # parks
            return "without bread"

        async with engine_at(database_url, buy) as heard:
            assert await (await heard.engine.enqueue(buy)).result(timeout=WAIT) == "without bread"
        assert caught == [(True, 2), (True, 2)]
        assert operations(database_url) == [("failed", 2)]

    play(scenario())
