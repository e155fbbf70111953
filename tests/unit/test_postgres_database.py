"""PostgresDatabase: one round trip a transaction, what an error means, and connections that are never handed out broken."""

import os
import threading
import time
from collections.abc import Iterator
from datetime import UTC, timedelta
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from outlast.database.postgres import PostgresDatabase
from outlast.database.postgres.address import parse_address, shown_address
from outlast.database.postgres.connections import Connections
from outlast.database.postgres.refusals import translate
from outlast.database.transaction import Refusal, RefusedError
from outlast.errors import CommitUnknownError, LeaseLostError, OutlastError, SchemaError, UnavailableError, UsageError

NOBODY_LISTENS = "postgresql://user:secret@127.0.0.1:1/nothing"


@pytest.fixture
def database(postgres_url: str) -> Iterator[PostgresDatabase]:
    database = PostgresDatabase(postgres_url)
    with database.transaction() as tx:
        tx.run("CREATE TABLE thing (id bigint PRIMARY KEY, note text NOT NULL DEFAULT '')")
    yield database
    database.close()


def things(database: PostgresDatabase) -> list[int]:
    with database.reading() as tx:
        return [number for (number,) in tx.run("SELECT id FROM thing ORDER BY id").all()]


def test_the_url_that_is_shown_has_no_secret() -> None:
    """A password appears neither in the shown address nor in the error of a connection that failed."""
    database = PostgresDatabase(NOBODY_LISTENS + "?sslpassword=hidden")
    assert database.url == "postgresql://user@127.0.0.1:1/nothing"
    with pytest.raises(UnavailableError) as raised:
        database.now()
    assert "secret" not in str(raised.value)
    assert "hidden" not in str(raised.value)


def test_opening_does_no_io() -> None:
    """A database that is not there is noticed on first use, and closing an unused one is nothing."""
    PostgresDatabase(NOBODY_LISTENS).close()


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_every_scheme_of_postgresql_means_the_same(scheme: str) -> None:
    """The scheme of other libraries' addresses is understood."""
    assert shown_address(parse_address(f"{scheme}://me@host:5/db")) == "postgresql://me@host:5/db"


@pytest.mark.parametrize("url", ["mysql://u:secret@host/db", "postgresql://u:secret@host:port with space/db?x=y", "postgresql://u:secret@h/d?options=-c%20a"])
def test_a_bad_address_is_refused_and_not_repeated(url: str) -> None:
    """What cannot be used is a usage error at once, and its text never holds the password."""
    with pytest.raises(UsageError) as raised:
        PostgresDatabase(url)
    assert "secret" not in str(raised.value)
    assert raised.value.__cause__ is None


def test_what_was_committed_is_there_and_what_failed_is_not(database: PostgresDatabase) -> None:
    """A block that ends keeps all of its statements, one that raises none."""
    with database.transaction() as tx:
        tx.run("INSERT INTO thing VALUES (1)")
        tx.run("INSERT INTO thing VALUES (2)")
    with pytest.raises(ZeroDivisionError), database.transaction() as tx:
        tx.run("INSERT INTO thing VALUES (3)")
        _ = 1 // 0
    assert things(database) == [1, 2]


def test_a_transaction_that_reads_nothing_is_one_round_trip(database: PostgresDatabase, tmp_path: Path) -> None:
    """Begin, settings, statements and commit leave together: the protocol's trace has one sync."""
    things(database)
    (connection,) = database._connections._idle
    with open(tmp_path / "trace", "w+") as trace:
        connection.pgconn.trace(trace.fileno())
        with database.transaction() as tx:
            inserted = tx.run("INSERT INTO thing VALUES (1), (2)")
            found = tx.run("SELECT id FROM thing ORDER BY id")
        connection.pgconn.untrace()
        trace.seek(0)
        sent = [line.split("\t")[3].strip() for line in trace if "\tF\t" in line]
    assert sent.count("Sync") == 1
    assert "Flush" not in sent[: sent.index("Sync")]  # nobody stopped in between to fetch something
    assert (inserted.count, found.all(), found.first()) == (2, [(1,), (2,)], (1,))


def test_results_can_be_read_before_and_after_the_commit(database: PostgresDatabase) -> None:
    """Reading early only costs a round trip; a result that was read stays readable, twice too."""
    with database.transaction() as tx:
        early = tx.run("SELECT 1, 'a'")
        assert early.all() == [(1, "a")]
        late = tx.run("INSERT INTO thing VALUES (7) RETURNING id")
        silent = tx.run("INSERT INTO thing VALUES (8)")
    assert (early.first(), late.all(), late.all(), silent.all(), silent.count) == ((1, "a"), [(7,)], [(7,)], [], 1)


def test_run_many_counts_all_rows(database: PostgresDatabase) -> None:
    """One statement with several sets of parameters returns the sum of its changes."""
    with database.transaction() as tx:
        assert tx.run_many("INSERT INTO thing VALUES (%(id)s)", [{"id": number} for number in range(3)]) == 3
    assert things(database) == [0, 1, 2]


def test_an_error_comes_at_the_end_of_the_block_and_voids_it(database: PostgresDatabase) -> None:
    """The error of a queued statement surfaces at the commit at the latest, and nothing of the transaction is there."""
    with pytest.raises(RefusedError) as raised, database.transaction() as tx:
        tx.run("INSERT INTO thing VALUES (1)")
        tx.run("INSERT INTO thing VALUES (1)")
        tx.run("INSERT INTO thing VALUES (2)")
    assert raised.value.refusal is Refusal.DUPLICATE
    assert isinstance(raised.value.__cause__, psycopg.Error)
    assert things(database) == []


def test_a_swallowed_error_is_raised_again_at_the_end(database: PostgresDatabase) -> None:
    """Whoever catches the error of a read cannot commit what the server has already given up."""
    with pytest.raises(RefusedError) as raised, database.transaction() as tx:
        tx.run("INSERT INTO thing VALUES (1)")
        with pytest.raises(RefusedError):
            tx.run("SELECT 'x'::int").all()
    assert raised.value.refusal is Refusal.DATA
    assert things(database) == []


@pytest.mark.parametrize(
    ("sql", "refusal"),
    [
        ("INSERT INTO thing VALUES (1, NULL)", Refusal.DATA),
        ("SELECT repeat('x', 1 << 30)", Refusal.DATA),
        ("SELECT json_in('{')", Refusal.DATA),
    ],
)
def test_refusals_are_told_apart(database: PostgresDatabase, sql: str, refusal: Refusal) -> None:
    """What cannot be stored is data; the same transaction would be refused again."""
    with pytest.raises(RefusedError) as raised, database.transaction() as tx:
        tx.run(sql)
    assert raised.value.refusal is refusal


def test_a_statement_that_takes_too_long_is_busy(database: PostgresDatabase) -> None:
    """The statement time-out ends it, and the same transaction may pass another time."""
    with pytest.raises(RefusedError) as raised, database.transaction() as tx:
        tx.run("SELECT set_config('statement_timeout', '20ms', true)")
        tx.run("SELECT pg_sleep(60)")
    assert raised.value.refusal is Refusal.BUSY


def test_reading_cannot_write(database: PostgresDatabase) -> None:
    """A reading transaction refuses every change."""
    with pytest.raises(RefusedError) as raised, database.reading() as tx:
        tx.run("INSERT INTO thing VALUES (1)")
    assert raised.value.refusal is Refusal.READ_ONLY


def test_a_missing_table_is_a_schema_error(database: PostgresDatabase) -> None:
    """What is not there says that migrations have to be run."""
    with pytest.raises(SchemaError, match="outlast migrate"), database.transaction() as tx:
        tx.run("SELECT FROM nowhere")


def test_the_state_of_the_fence_is_a_lost_lease(database: PostgresDatabase) -> None:
    """A statement that raises the fence's own state is no refusal but the loss of the lease."""
    with pytest.raises(LeaseLostError), database.transaction() as tx:
        tx.run("DO $$ BEGIN RAISE EXCEPTION 'gone' USING ERRCODE = 'OL001'; END $$")


@pytest.mark.parametrize("text", ["a\x00b", "\ud800"])
def test_text_that_no_database_takes_is_refused_as_data(database: PostgresDatabase, text: str) -> None:
    """NUL and lone surrogates are the driver's own errors, and mean the same as the server's."""
    with pytest.raises(RefusedError) as raised, database.transaction() as tx:
        tx.run("INSERT INTO thing VALUES (1, %(note)s)", {"note": text})
    assert raised.value.refusal is Refusal.DATA
    assert things(database) == []


def test_a_connection_cut_before_the_commit_means_that_nothing_is_there(database: PostgresDatabase, postgres_url: str) -> None:
    """It is unavailable, with a certain outcome, and the next transaction has a connection that works."""
    with pytest.raises(UnavailableError) as raised, database.transaction() as tx:
        tx.run("INSERT INTO thing VALUES (1)")
        cut(postgres_url, tx.run("SELECT pg_backend_pid()").all()[0][0])
        tx.run("INSERT INTO thing VALUES (2)").all()
    assert not isinstance(raised.value, CommitUnknownError)
    assert things(database) == []


def test_a_connection_cut_with_the_commit_under_way_is_an_unknown_outcome(database: PostgresDatabase, postgres_url: str) -> None:
    """Once the commit may have been sent nobody claims to know what became of it."""
    with pytest.raises(CommitUnknownError), database.transaction() as tx:
        pid = tx.run("SELECT pg_backend_pid()").all()[0][0]
        tx.run("INSERT INTO thing VALUES (1)")
        cut(postgres_url, pid)
    assert things(database) in ([], [1])


def test_an_idle_connection_that_was_ended_is_not_handed_out(database: PostgresDatabase, postgres_url: str) -> None:
    """After a restart of the server or an administrator's cut the first caller notices nothing."""
    with database.reading() as tx:
        pid = tx.run("SELECT pg_backend_pid()").all()[0][0]
    cut(postgres_url, pid)
    with database.transaction() as tx:
        assert tx.run("SELECT pg_backend_pid()").all()[0][0] != pid
        tx.run("INSERT INTO thing VALUES (1)")
    assert things(database) == [1]


def cut(url: str, pid: int) -> None:
    """End a session and wait until it is gone."""
    with psycopg.connect(url, autocommit=True) as connection:
        assert connection.execute("SELECT pg_terminate_backend(%s, 10000)", [pid]).fetchone() == (True,)


def test_a_call_that_hangs_is_ended_and_the_next_has_another_connection(postgres_url: str) -> None:
    """A call that takes longer than the limit raises as when a connection breaks; one that does not is left alone; idle connections are dropped too."""
    database = PostgresDatabase(postgres_url)
    began = threading.Event()
    ended: list[Exception] = []

    def hang() -> None:
        try:
            with database.reading() as tx:
                began.set()
                tx.run("SELECT pg_sleep(60)").all()
        except OutlastError as error:
            ended.append(error)

    with database.reading(), database.reading():
        pass  # leaves two idle connections
    thread = threading.Thread(target=hang)
    thread.start()
    assert began.wait(60)
    database.interrupt_hung(timedelta(hours=1))
    assert thread.is_alive()
    assert len(database._connections._idle) == 1
    database.interrupt_hung(timedelta(0))
    thread.join(60)
    assert [type(error) for error in ended] == [UnavailableError]
    assert database._connections._idle == []
    with database.reading() as tx:
        assert tx.run("SELECT 1").all() == [(1,)]
    database.close()


def test_an_applications_own_transaction_is_never_taken_for_hung(database: PostgresDatabase) -> None:
    """What `begin` gives lasts as long as the application's statements do."""
    with database.begin() as connection:
        database.interrupt_hung(timedelta(0))
        connection.execute("INSERT INTO thing VALUES (1)")
    assert things(database) == [1]


def test_a_broken_connection_is_not_kept(database: PostgresDatabase, postgres_url: str) -> None:
    """What broke inside a transaction is closed and does not go back to the others."""
    with pytest.raises(UnavailableError), database.transaction() as tx:
        cut(postgres_url, tx.run("SELECT pg_backend_pid()").all()[0][0])
    assert database._connections._idle == []


def test_a_refused_transaction_leaves_its_connection_usable(database: PostgresDatabase) -> None:
    """A statement that was refused costs no connection."""
    with database.reading() as tx:
        pid = tx.run("SELECT pg_backend_pid()").all()
    for _ in range(5):
        with pytest.raises(RefusedError), database.transaction() as tx:
            tx.run("INSERT INTO thing VALUES (1), (1)")
    with database.reading() as tx:
        assert tx.run("SELECT pg_backend_pid()").all() == pid


def test_settings_of_the_role_do_not_change_what_a_transaction_is(database: PostgresDatabase, postgres_url: str) -> None:
    """Isolation, durability, time zone and date style are the library's, whatever the role or database says."""
    name = urlsplit(postgres_url).path[1:]
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for setting in (
            "default_transaction_isolation = 'serializable'",
            "synchronous_commit = off",
            "TimeZone = 'Asia/Kathmandu'",
            "DateStyle = 'German'",
            "IntervalStyle = 'sql_standard'",
        ):
            connection.execute(f'ALTER DATABASE "{name}" SET {setting}')
    strange = PostgresDatabase(postgres_url)
    try:
        with strange.transaction() as tx:
            row = tx.run("SELECT current_setting('transaction_isolation'), current_setting('synchronous_commit')").all()
            instant = tx.run("SELECT timestamptz '2026-03-01 10:00:00.25+02', 'infinity'::float8")
        assert row == [("read committed", "on")]
        found = instant.all()[0][0]
        assert (found.isoformat(), found.tzinfo) == ("2026-03-01T08:00:00.250000+00:00", UTC)
        assert abs(strange.now() - database.now()) < timedelta(seconds=60)
    finally:
        strange.close()


def test_every_text_can_be_sent_whatever_encoding_the_role_has(postgres_url: str) -> None:
    """A role, an environment or an address with another encoding changes no text."""
    name = urlsplit(postgres_url).path[1:]
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE \"{name}\" SET client_encoding = 'latin1'")
    strange = PostgresDatabase(f"{postgres_url}?client_encoding=latin1")
    try:
        with strange.transaction() as tx:
            assert tx.run("SELECT %(text)s", {"text": "日本 \U0001f422"}).all() == [("日本 \U0001f422",)]
    finally:
        strange.close()


def test_a_stricter_durability_of_the_administrator_stays(database: PostgresDatabase, postgres_url: str) -> None:
    """`remote_apply` is not lowered to `on`."""
    name = urlsplit(postgres_url).path[1:]
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE \"{name}\" SET synchronous_commit = 'remote_apply'")
    strict = PostgresDatabase(postgres_url)
    try:
        with strict.transaction() as tx:
            assert tx.run("SELECT current_setting('synchronous_commit')").all() == [("remote_apply",)]
    finally:
        strict.close()


def test_nothing_is_set_for_longer_than_a_transaction(database: PostgresDatabase) -> None:
    """A pooler may give the session to anybody next: after the commit it is as it was."""
    with database.transaction() as tx:
        assert tx.run("SELECT current_setting('lock_timeout')").all() == [("100ms",)]
    (connection,) = database._connections._idle
    assert connection.execute("SELECT current_setting('lock_timeout')").fetchone() == ("0",)
    assert connection.execute("SELECT count(*) FROM pg_prepared_statements").fetchone() == (0,)


def test_who_finds_every_connection_taken_is_told_so() -> None:
    """Waiting for a connection has a bound."""
    connections = Connections(lambda: psycopg.connect(NOBODY_LISTENS), 1, timedelta(milliseconds=20))
    assert connections._free.acquire(blocking=False)
    with pytest.raises(UnavailableError, match="in use"):
        connections.take()


def test_a_failed_connection_attempt_takes_no_place() -> None:
    """After any number of failures as many connections can be had as before."""
    database = PostgresDatabase(NOBODY_LISTENS, connections=1)
    for _ in range(3):
        with pytest.raises(UnavailableError, match="refused"):
            database.now()


def test_transactions_on_several_threads_have_connections_of_their_own(database: PostgresDatabase) -> None:
    """Two threads at once each get one, and commit independently."""
    inside, proceed = threading.Event(), threading.Event()

    def write() -> None:
        with database.transaction() as tx:
            tx.run("INSERT INTO thing VALUES (1)").all()
            inside.set()
            assert proceed.wait(20)

    thread = threading.Thread(target=write)
    thread.start()
    assert inside.wait(20)
    with database.transaction() as tx:
        tx.run("INSERT INTO thing VALUES (2)")
    assert things(database) == [2]
    proceed.set()
    thread.join()
    assert things(database) == [1, 2]


def test_a_forked_process_is_refused(database: PostgresDatabase) -> None:
    """A child that shares its parent's sockets would mix up their answers: it is told to connect again."""
    things(database)
    database._connections._process = os.getpid() + 1
    with pytest.raises(UsageError, match="forked"):
        things(database)
    database._connections._process = os.getpid()


def test_a_closed_database_is_not_opened_again(database: PostgresDatabase) -> None:
    """Closing may be repeated; using it afterwards is a mistake that is named."""
    database.close()
    database.close()
    with pytest.raises(UsageError, match="closed"):
        database.now()


def test_the_name_of_the_application_is_shown_with_its_role(postgres_url: str) -> None:
    """An administrator sees in pg_stat_activity whose connection it is."""
    database = PostgresDatabase(postgres_url, role="worker")
    try:
        with database.reading() as tx:
            assert tx.run("SELECT current_setting('application_name')").all() == [("outlast worker",)]
    finally:
        database.close()


def test_a_wrong_database_name_is_told_at_once(postgres_url: str) -> None:
    """The server's reason comes through, and nobody waits for a time-out."""
    database = PostgresDatabase(urlunsplit(urlsplit(postgres_url)._replace(path="/no_such_database")))
    begun = time.monotonic()
    with pytest.raises(UnavailableError, match="does not exist"):
        database.now()
    assert time.monotonic() - begun < 5


@pytest.mark.parametrize(
    ("state", "refusal"),
    [("55P03", Refusal.BUSY), ("40P01", Refusal.BUSY), ("40001", Refusal.BUSY), ("53100", Refusal.FULL), ("53200", Refusal.FULL), ("54000", Refusal.DATA)],
)
def test_states_mean_what_the_table_says(state: str, refusal: Refusal) -> None:
    """Whoever halves a group or tries again relies on these."""
    error = translate(psycopg.errors.lookup(state)("a message\nDETAIL: a row"), is_commit_sent=True)
    assert isinstance(error, RefusedError)
    assert (error.refusal, str(error)) == (refusal, "a message")


@pytest.mark.parametrize("state", ["57P01", "57P02", "57P03", "08006", "25P03"])
def test_an_ended_session_is_unknown_only_once_the_commit_was_sent(state: str) -> None:
    """The same error is certain before the commit, and uncertain after it."""
    error = psycopg.errors.lookup(state)("ended")
    assert type(translate(error, is_commit_sent=False)) is UnavailableError
    assert type(translate(error, is_commit_sent=True)) is CommitUnknownError
