"""LoopTransaction: what the loop drives commits or is undone as a whole, never blocks the loop, and never loses a connection."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import psycopg
import pytest

from outlast.database.postgres import PostgresDatabase
from outlast.database.postgres.loop_transaction import LoopTransaction
from outlast.database.transaction import Refusal, RefusedError
from outlast.errors import CommitUnknownError, LeaseLostError

Function = Callable[[LoopTransaction], Any]
SECONDS_MAX = 60.0


@pytest.fixture
def database(postgres_url: str) -> Iterator[PostgresDatabase]:
    database = PostgresDatabase(postgres_url, connections=1)
    with database.transaction() as tx:
        tx.run("CREATE TABLE thing (id bigint PRIMARY KEY, note text NOT NULL DEFAULT '')")
    yield database
    database.close()


def things(database: PostgresDatabase) -> list[int]:
    with database.reading() as tx:
        return [number for (number,) in tx.run("SELECT id FROM thing ORDER BY id").all()]


async def run(database: PostgresDatabase, function: Function, *, is_reading: bool = False) -> Any:
    """Run a function in a transaction of the loop's, with the one connection there is, and return what it returned."""
    opened = database.on_loop(is_reading=is_reading)
    assert opened is not None, "the connection was not given back"
    async with opened as tx:
        return function(tx)


def played(work: Awaitable[Any]) -> Any:
    async def bounded() -> Any:
        return await asyncio.wait_for(work, SECONDS_MAX)

    return asyncio.run(bounded())


def test_answers_are_there_after_the_commit(database: PostgresDatabase) -> None:
    """Rows, counts and every kind of parameter come back as they were sent, in one transaction that is then there."""

    def write(tx: LoopTransaction) -> tuple[Any, ...]:
        inserted = tx.run(
            "INSERT INTO thing VALUES (%(id)s::bigint, %(note)s::text), (2, %(none)s::text || '100%%') RETURNING id, note, %(id)s::bigint",
            {"id": 1, "note": "ä'\\", "none": ""},
        )
        read = tx.run("SELECT count(*), %(yes)s::boolean, %(half)s::float8 FROM thing", {"yes": True, "half": 0.5})
        return inserted, read

    inserted, read = played(run(database, write))
    assert inserted.all() == [(1, "ä'\\", 1), (2, "100%", 1)]
    assert inserted.count == 2
    assert read.first() == (2, True, 0.5)
    assert things(database) == [1, 2]


def test_an_answer_is_not_there_before_the_commit(database: PostgresDatabase) -> None:
    """To ask for it inside of the block is the engine's own mistake, which is said at once and undoes the transaction."""
    with pytest.raises(RuntimeError, match="before the commit"):
        played(run(database, lambda tx: tx.run("INSERT INTO thing VALUES (1) RETURNING id").all()))
    assert things(database) == []


def test_the_first_error_is_raised_and_nothing_is_there(database: PostgresDatabase) -> None:
    """What comes after an error is its consequence; the connection is used on."""

    def write(tx: LoopTransaction) -> None:
        tx.run("INSERT INTO thing VALUES (1)")
        tx.run("INSERT INTO thing VALUES (1)")
        tx.run("SELECT nonsense")

    with pytest.raises(RefusedError) as raised:
        played(run(database, write))
    assert raised.value.refusal is Refusal.DUPLICATE
    assert things(database) == []
    assert played(run(database, lambda tx: tx.run("SELECT 1"))).all() == [(1,)]


def test_what_follows_a_commit_is_a_transaction_of_its_own(database: PostgresDatabase) -> None:
    """It sees what was committed, none of the transaction's settings are left to it, and it commits too."""

    def write(tx: LoopTransaction) -> None:
        tx.after_commit("INSERT INTO thing SELECT id + 1, current_setting('lock_timeout') FROM thing", {})
        tx.run("INSERT INTO thing VALUES (1)")

    played(run(database, write))
    with database.reading() as tx:
        assert tx.run("SELECT id, note FROM thing ORDER BY id").all() == [(1, ""), (2, "0")]


def test_what_follows_a_commit_cannot_undo_it(database: PostgresDatabase) -> None:
    """An error of it, also at its own end, is nobody's; the connection is used on."""
    with database.transaction() as tx:
        tx.run("CREATE TABLE late (id bigint PRIMARY KEY DEFERRABLE INITIALLY DEFERRED)")

    def write(tx: LoopTransaction, after: str) -> Any:
        tx.after_commit(after, {})
        return tx.run("INSERT INTO thing SELECT count(*) FROM thing RETURNING id")

    for number, after in enumerate(("SELECT nonsense", "INSERT INTO late VALUES (1), (1)", "SELECT 1")):
        assert played(run(database, lambda tx, after=after: write(tx, after))).all() == [(number,)]
    assert things(database) == [0, 1, 2]


def test_nothing_follows_what_was_not_committed(database: PostgresDatabase) -> None:
    """The server skips it, with the rest of the pipeline."""

    def write(tx: LoopTransaction) -> None:
        tx.after_commit("INSERT INTO thing VALUES (7)", {})
        tx.run("INSERT INTO thing VALUES (1), (1)")

    with pytest.raises(RefusedError):
        played(run(database, write))
    assert things(database) == []


def test_the_fence_is_told_apart(database: PostgresDatabase) -> None:
    """The state that the fence raises is a lost lease."""
    with pytest.raises(LeaseLostError):
        played(run(database, lambda tx: tx.run("DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = 'OL001'; END $$")))


def test_an_exception_of_the_caller_undoes_the_transaction(database: PostgresDatabase) -> None:
    """What the block raises is raised, and what it had queued is not there."""

    def write(tx: LoopTransaction) -> None:
        tx.run("INSERT INTO thing VALUES (1)")
        raise ValueError("the caller's own")

    with pytest.raises(ValueError, match="the caller's own"):
        played(run(database, write))
    assert things(database) == []


def test_reading_cannot_write(database: PostgresDatabase) -> None:
    """A reading transaction refuses to write, on the loop too."""
    with pytest.raises(RefusedError) as raised:
        played(run(database, lambda tx: tx.run("INSERT INTO thing VALUES (1)"), is_reading=True))
    assert raised.value.refusal is Refusal.READ_ONLY


@pytest.mark.parametrize("text", ["a\0b", "\ud800"])
def test_text_that_no_database_takes_is_refused_as_data(database: PostgresDatabase, text: str) -> None:
    """NUL, which would cut the text off, and a lone surrogate."""
    with pytest.raises(RefusedError) as raised:
        played(run(database, lambda tx: tx.run("SELECT %(text)s::text", {"text": text})))
    assert raised.value.refusal is Refusal.DATA


def test_more_than_the_socket_takes_at_once_goes_both_ways(database: PostgresDatabase) -> None:
    """24 MiB sent and 24 MiB received: neither side waits for the other for ever, and the loop goes on meanwhile."""
    text = "x" * (24 << 20)

    async def send() -> tuple[str, int]:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.ensure_future(count())
        rows = await run(database, lambda tx: [tx.run("SELECT %(text)s::text", {"text": text}), tx.run("SELECT %(text)s::text", {"text": text})])
        counting.cancel()
        return rows[1].all()[0][0], turns

    received, turns = played(send())
    assert received == text
    assert turns > 1


def test_a_canceled_transaction_gives_its_place_back(database: PostgresDatabase, postgres_url: str) -> None:
    """Canceled while the server works: the connection is closed and the next transaction has one of its own."""

    async def cancel() -> None:
        begun = asyncio.ensure_future(run(database, lambda tx: [tx.run("INSERT INTO thing VALUES (1)"), tx.run("SELECT pg_sleep(30)")]))
        async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as other:
            while (await (await other.execute("SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%'")).fetchone()) == (0,):  # noqa: ASYNC110 - the server sets no event
                await asyncio.sleep(0.01)
        begun.cancel()
        with pytest.raises(asyncio.CancelledError):
            await begun

    played(cancel())
    assert things(database) == []


def test_a_connection_cut_with_the_commit_under_way_is_an_unknown_outcome(database: PostgresDatabase, postgres_url: str) -> None:
    """The commit is sent together with the rest, so that a session which ends may or may not have committed."""

    async def cut() -> None:
        begun = asyncio.ensure_future(run(database, lambda tx: tx.run("SELECT pg_sleep(30)")))
        async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as other:
            end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%' AND pid <> pg_backend_pid()"
            while await (await other.execute(end)).fetchone() is None:  # noqa: ASYNC110 - the server sets no event
                await asyncio.sleep(0.01)
        with pytest.raises(CommitUnknownError):
            await begun

    played(cut())
    assert things(database) == []


def test_nobody_waits_for_a_connection_on_the_loop(database: PostgresDatabase) -> None:
    """With the only connection taken there is no transaction on the loop, and the caller goes to a thread."""

    async def ask() -> Any:
        async with database.on_loop() or pytest.fail("no connection"):
            return database.on_loop()

    assert played(ask()) is None


def test_nothing_is_left_of_a_transaction_in_the_session(database: PostgresDatabase) -> None:
    """No setting and no watched socket outlives it, so that a pooler may give the session to somebody else."""

    async def look() -> tuple[Any, bool]:
        await run(database, lambda tx: tx.run("SELECT 1"))
        opened = database.on_loop()
        assert opened is not None
        async with opened as tx:
            descriptor = tx._pgconn.socket
        return await run(database, lambda tx: tx.run("SELECT 1")), asyncio.get_running_loop().remove_reader(descriptor)

    _, was_watched = played(look())
    assert not was_watched
    with database.reading():
        pass
    connection = database._connections.take()
    assert connection.execute("SHOW lock_timeout").fetchone() == ("0",)
    database._connections.give_back(connection)
