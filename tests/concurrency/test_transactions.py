"""Transactional steps on real databases: what a function writes and its record are there together, or neither is, with each driver."""

import asyncio
import sqlite3
from typing import Any

import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from outlast import Context, RetryPolicy, RunFailedError, connect, step, task, transaction_tables

from .transaction_ways import EVERYWHERE, ON_POSTGRESQL, add_by_psycopg, alchemical, execute, names, records, skip_where_there_is_no_such, way_to

ONCE = RetryPolicy(maximum_attempts=1)
TWICE = RetryPolicy(maximum_attempts=2, initial_delay=0)
SECONDS_MAX = 60.0


@pytest.fixture
def application_url(database_url: str) -> str:
    """The engine's own database, with a table of the application's beside the engine's."""
    execute(database_url, "CREATE TABLE item (name text PRIMARY KEY)")
    return database_url


@pytest.mark.parametrize("way", EVERYWHERE + ON_POSTGRESQL)
def test_what_is_written_and_its_record_commit_together(application_url: str, way: str) -> None:
    """A function adds a row and returns; the row, the record and the result are there once. One that raises leaves neither row nor record."""
    skip_where_there_is_no_such(way, application_url)

    async def play() -> None:
        async with way_to(way, application_url) as opened:
            tries: list[str] = []

            @task
            async def order(ctx: Context, name: str) -> str:
                return await ctx.transaction(opened.on or ctx.database, opened.add, name)

            async def fail_async(connection: Any, name: str) -> str:
                tries.append(await opened.add(connection, name))
                raise ValueError("after the row was added")

            def fail(connection: Any, name: str) -> str:
                tries.append(opened.add(connection, name))
                raise ValueError("after the row was added")

            failing = step(fail_async if asyncio.iscoroutinefunction(opened.add) else fail).with_options(name="fail", retry=TWICE)

            @task
            async def order_in_vain(ctx: Context, name: str) -> str:
                return await ctx.transaction(opened.on or ctx.database, failing, name)

            async with connect(application_url, tasks=(order, order_in_vain)) as engine:
                await engine.start()
                assert await (await engine.enqueue(order, "bread")).result(timeout=SECONDS_MAX) == "bread"
                with pytest.raises(RunFailedError, match="after the row was added"):
                    await (await engine.enqueue(order_in_vain, "salt")).result(timeout=SECONDS_MAX)
            assert tries == ["salt", "salt"]

    asyncio.run(play())
    assert names(application_url) == ["bread"]
    assert (opened_name(way, application_url), "transaction") in records(application_url)


def opened_name(way: str, url: str) -> str:
    prefix = "async_" if way.startswith("async") else ""
    driver = "sqlalchemy" if "engine" in way or "session" in way else "sqlite3" if url.startswith("sqlite") else "psycopg"
    return f"add_by_{prefix}{driver}"


@pytest.mark.parametrize("way", ["function", "engine", "async sessionmaker"])
def test_a_step_in_another_database_is_remembered_there(application_url: str, tmp_path: Any, way: str) -> None:
    """With the engine in a file of its own: committed once over there, and what is there already is not run again."""

    async def play() -> None:
        async with way_to(way, application_url) as opened:
            calls: list[str] = []

            async def add_async(connection: Any, name: str) -> str:
                calls.append(name)
                return await opened.add(connection, name)

            def add(connection: Any, name: str) -> str:
                calls.append(name)
                return opened.add(connection, name)

            adding = step(add_async if asyncio.iscoroutinefunction(opened.add) else add).with_options(name="add", retry=ONCE)

            @task
            async def order(ctx: Context, name: str) -> str:
                return await ctx.transaction(opened.on, adding, name)

            async with connect(f"sqlite:///{tmp_path / 'engine.db'}", tasks=(order,)) as engine:
                await engine.start()
                with pytest.raises(RunFailedError, match="transaction_tables"):
                    await (await engine.enqueue(order, "too early")).result(timeout=SECONDS_MAX)
                for statement in transaction_tables("sqlite" if application_url.startswith("sqlite") else "postgresql").split(";"):
                    if statement.strip():
                        execute(application_url, statement)
                run = await engine.enqueue(order, "bread")
                assert await run.result(timeout=SECONDS_MAX) == "bread"
                forget_record(f"sqlite:///{tmp_path / 'engine.db'}", run.id)  # as if the engine had lost power before its own commit
                assert await run.result(timeout=SECONDS_MAX) == "bread"
            assert calls == ["bread"]

    asyncio.run(play())
    assert names(application_url) == ["bread"]
    assert execute(application_url, "SELECT key FROM outlast_step") == [("add",)]


def forget_record(url: str, run_id: str) -> None:
    """Undo the engine's own last writes of a run: its record and its end."""
    execute(url, f"DELETE FROM outlast_run_step WHERE run = '{run_id}'")
    execute(url, f"UPDATE outlast_run SET status = 'pending', worker = NULL, finished_at = NULL, due_at = created_at WHERE id = '{run_id}'")


def test_an_older_claim_is_refused_in_another_database(application_url: str, tmp_path: Any) -> None:
    """Once a newer token has committed there, an older one leaves nothing."""

    async def play() -> None:
        async with way_to("function", application_url) as opened:

            @task
            async def order(ctx: Context, name: str) -> str:
                return await ctx.transaction(opened.on, step(opened.add).with_options(name="add", retry=ONCE), name)

            for statement in transaction_tables("sqlite" if application_url.startswith("sqlite") else "postgresql").split(";"):
                if statement.strip():
                    execute(application_url, statement)
            async with connect(f"sqlite:///{tmp_path / 'engine.db'}", tasks=(order,)) as engine:
                run = await engine.enqueue(order, "bread")
                execute(application_url, f"INSERT INTO outlast_fence (run, token) VALUES ('{run.id}', 7)")
                await engine.start()
                with pytest.raises(RunFailedError, match="newer claim"):
                    await run.result(timeout=SECONDS_MAX)

    asyncio.run(play())
    assert names(application_url) == []


@pytest.mark.parametrize("misuse", ["commit", "rollback"])
def test_a_function_that_ends_its_transaction_is_found_out(application_url: str, misuse: str) -> None:
    """Whatever it does then, there is no record: the run fails and says what to leave out."""

    async def play() -> None:
        async with way_to("function", application_url) as opened:

            def end(connection: Any) -> None:
                opened.add(connection, "bread")
                if application_url.startswith("sqlite"):
                    getattr(connection, misuse)()
                else:
                    connection.execute(misuse.upper())
                opened.add(connection, "salt")

            @task
            async def order(ctx: Context) -> None:
                await ctx.transaction(opened.on, step(end).with_options(retry=ONCE))

            async with connect(application_url, tasks=(order,)) as engine:
                await engine.start()
                with pytest.raises(RunFailedError):
                    await (await engine.enqueue(order)).result(timeout=SECONDS_MAX)

    asyncio.run(play())
    assert results(application_url) == []
    assert "salt" not in names(application_url)


def results(url: str) -> list[tuple[Any, ...]]:
    """The records of steps that have a result."""
    table = "outlast_run_step" if url.startswith("sqlite") else "outlast.step"
    return execute(url, f"SELECT name FROM {table} WHERE outcome = 'result'")


def test_a_claim_that_is_not_current_any_more_leaves_nothing(application_url: str) -> None:
    """The token was raised while the function ran: what it wrote is undone, and the run's next claim does it once."""

    async def play() -> None:
        async with way_to("function", application_url) as opened:
            inside, go_on, calls = asyncio.Event(), asyncio.Event(), []

            @task
            async def order(ctx: Context) -> str:
                await ctx.step(hold)
                return await ctx.transaction(opened.on, step(add).with_options(retry=ONCE))

            async def hold() -> None:
                pass

            loop = asyncio.get_running_loop()

            def add(connection: Any) -> str:
                calls.append(1)
                if len(calls) == 1:
                    loop.call_soon_threadsafe(inside.set)
                    asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result(SECONDS_MAX)
                return opened.add(connection, f"bread {len(calls)}")

            async with connect(application_url, tasks=(order,)) as engine:
                await engine.start()
                run = await engine.enqueue(order)
                await inside.wait()
                # SQLite has one writer, and the function has the file: the claim is taken away before it writes
                if not application_url.startswith("sqlite"):
                    execute(application_url, "UPDATE outlast.run SET token = token + 1, status = 'pending', worker = NULL, due_at = now()")
                go_on.set()
                assert await run.result(timeout=SECONDS_MAX) == ("bread 1" if application_url.startswith("sqlite") else "bread 2")

    asyncio.run(play())
    assert names(application_url) == (["bread 1"] if application_url.startswith("sqlite") else ["bread 2"])


def test_another_transactions_victim_runs_again_as_a_whole(postgres_url: str) -> None:
    """Twenty serializable transfers at once: each is repeated until it commits, no attempt is counted, and the sum stays."""
    execute(postgres_url, "CREATE TABLE account (id int PRIMARY KEY, amount int NOT NULL)")
    execute(postgres_url, "INSERT INTO account SELECT number, 100 FROM generate_series(1, 4) AS number")
    tries: list[int] = []

    async def move(connection: AsyncConnection, number: int) -> int:
        tries.append(number)
        giver, taker = number % 4 + 1, (number + 1) % 4 + 1
        rows = await connection.execute(sqlalchemy.text("SELECT sum(amount) FROM account"))  # reads all, so that every other transfer conflicts
        assert rows.scalar() == 400
        await connection.execute(sqlalchemy.text("UPDATE account SET amount = amount - 1 WHERE id = :id"), {"id": giver})
        await connection.execute(sqlalchemy.text("UPDATE account SET amount = amount + 1 WHERE id = :id"), {"id": taker})
        return number

    async def play() -> None:
        engine_of_application = create_async_engine(alchemical(postgres_url, is_async=True), isolation_level="SERIALIZABLE", pool_size=20)

        @task
        async def transfer(ctx: Context, number: int) -> int:
            return await ctx.transaction(engine_of_application, step(move).with_options(retry=ONCE), number)

        async with connect(postgres_url, tasks=(transfer,)) as engine:
            await engine.start()
            runs = await engine.enqueue_many(transfer, list(range(20)))
            assert [await run.result(timeout=SECONDS_MAX) for run in runs] == list(range(20))
        await engine_of_application.dispose()

    asyncio.run(play())
    assert len(tries) > 20, "no transaction met another: the test shows nothing"
    assert execute(postgres_url, "SELECT id, amount FROM account ORDER BY id") == [(1, 100), (2, 100), (3, 100), (4, 100)]
    assert execute(postgres_url, "SELECT count(*) FROM outlast.step_failure") == [(0,)]


def test_branches_with_transactions_replay_in_their_order(application_url: str) -> None:
    """Transactions beside steps in gathered branches: a sleep parks the run, and its replay gives every branch what it had."""
    if application_url.startswith("sqlite"):
        ways = "function"
    else:
        ways = "async pool"

    async def play() -> None:
        async with way_to(ways, application_url) as opened:
            seen: list[list[str]] = []

            async def plain(name: str) -> str:
                return name

            @task
            async def order(ctx: Context) -> list[str]:
                got = await asyncio.gather(
                    ctx.transaction(opened.on, opened.add, "a"), ctx.step(plain, "b"), ctx.transaction(opened.on, opened.add, "c"), ctx.step(plain, "d")
                )
                seen.append(got)
                await ctx.sleep(2.5)
                return got

            async with connect(application_url, tasks=(order,)) as engine:
                await engine.start()
                assert await (await engine.enqueue(order)).result(timeout=SECONDS_MAX) == ["a", "b", "c", "d"]
            assert seen == [["a", "b", "c", "d"]] * 2

    asyncio.run(play())
    assert names(application_url) == ["a", "c"]


def test_what_cannot_be_a_transaction_is_refused_at_the_call(application_url: str) -> None:
    """An object that begins nothing, and a coroutine function on a driver that blocks: the error says what to write."""

    async def on_coroutine(connection: Any) -> None: ...

    def on_plain(connection: Any) -> None: ...

    async def play() -> None:
        @task
        async def nothing(ctx: Context) -> None:
            await ctx.transaction(object(), on_plain)  # type: ignore[call-overload]  # the mistake itself

        @task
        async def coroutine_on_own(ctx: Context) -> None:
            await ctx.transaction(ctx.database, on_coroutine)  # type: ignore[arg-type]  # the mistake itself

        async with connect(application_url, tasks=(nothing, coroutine_on_own)) as engine:
            await engine.start()
            with pytest.raises(RunFailedError, match="sessionmaker"):
                await (await engine.enqueue(nothing)).result(timeout=SECONDS_MAX)
            with pytest.raises(RunFailedError, match="`def` function"):
                await (await engine.enqueue(coroutine_on_own)).result(timeout=SECONDS_MAX)

    asyncio.run(play())


def test_a_connection_with_a_transaction_in_progress_is_refused(postgres_url: str) -> None:
    """A function whose opener has begun one by itself would be undone at the connection's end: it is told, and nothing is written."""
    execute(postgres_url, "CREATE TABLE item (name text PRIMARY KEY)")

    def open_in_transaction() -> Any:
        connection = psycopg.connect(postgres_url)
        connection.execute("SELECT 1")
        return connection

    async def play() -> None:
        @task
        async def order(ctx: Context) -> str:
            return await ctx.transaction(open_in_transaction, step(add_by_psycopg).with_options(retry=ONCE), "bread")

        async with connect(postgres_url, tasks=(order,)) as engine:
            await engine.start()
            with pytest.raises(RunFailedError, match="transaction in progress"):
                await (await engine.enqueue(order)).result(timeout=SECONDS_MAX)

    asyncio.run(play())
    assert names(postgres_url) == []


def test_a_transaction_that_is_given_up_at_its_commit_is_decided_by_what_is_there(postgres_url: str) -> None:
    """The body withdraws while the commit is held up by a lock: the run is executed anew, ends, and the row is there as often as the record."""
    execute(postgres_url, "CREATE TABLE item (name text PRIMARY KEY)")
    bodies: list[int] = []

    async def play() -> None:
        async with way_to("async pool", postgres_url) as opened, await psycopg.AsyncConnection.connect(postgres_url) as stranger:
            inside, is_locked, withdrew = asyncio.Event(), asyncio.Event(), asyncio.Event()

            async def add(connection: Any) -> str:
                inside.set()
                await is_locked.wait()
                return await opened.add(connection, "bread")

            @task
            async def order(ctx: Context) -> str:
                bodies.append(1)
                adding = asyncio.create_task(ctx.transaction(opened.on, step(add).with_options(retry=ONCE)))
                if len(bodies) == 1:
                    while await waiting_for_the_run() == 0:  # noqa: ASYNC110 - the server sets no event
                        await asyncio.sleep(0.01)
                    adding.cancel()
                    withdrew.set()
                    await asyncio.wait({adding})
                    return "withdrew"
                return await adding

            async def waiting_for_the_run() -> int:
                async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as other:
                    cursor = await other.execute("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%FOR NO KEY UPDATE%'")
                    return (await cursor.fetchone())[0]

            async with connect(postgres_url, tasks=(order,)) as engine:
                run = await engine.enqueue(order)
                await engine.start()
                await inside.wait()
                await stranger.execute("SELECT FROM outlast.run FOR UPDATE")
                is_locked.set()
                await withdrew.wait()
                await stranger.rollback()
                assert await run.result(timeout=SECONDS_MAX) == "bread"

    asyncio.run(play())
    assert names(postgres_url) == ["bread"]


def test_what_the_function_sets_on_the_engines_connection_is_gone_with_it(application_url: str) -> None:
    """A row factory that a function sets, and leaves, disturbs no run after it."""

    def set_factory(connection: Any) -> None:
        connection.row_factory = sqlite3.Row if application_url.startswith("sqlite") else psycopg.rows.dict_row

    async def play() -> None:
        @task
        async def disturb(ctx: Context) -> str:
            await ctx.transaction(ctx.database, set_factory)
            return await ctx.step(plain, "done")

        async def plain(name: str) -> str:
            return name

        async with connect(application_url, tasks=(disturb,)) as engine:
            await engine.start()
            for _ in range(6):
                assert await (await engine.enqueue(disturb)).result(timeout=SECONDS_MAX) == "done"

    asyncio.run(play())
