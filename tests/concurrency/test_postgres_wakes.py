"""Wake-ups on PostgreSQL, over real connections: sent, heard, lost with a connection and made up for."""

import queue
from collections.abc import Iterator
from datetime import timedelta
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from outlast.database.postgres import PostgresDatabase
from outlast.native.postgres.wakes import PostgresWakes, _parsed

from .postgres_world import WAIT

CUT = """SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
    WHERE application_name LIKE '%listen' AND datname = current_database()"""
ANYTHING = (frozenset[int](), frozenset[int]())
Heard = queue.Queue[tuple[frozenset[int], frozenset[int]]]


@pytest.fixture
def database(postgres_url: str) -> Iterator[PostgresDatabase]:
    database = PostgresDatabase(postgres_url)
    yield database
    database.close()


@pytest.fixture
def heard() -> Heard:
    return queue.Queue()


@pytest.fixture
def wakes(database: PostgresDatabase, heard: Heard) -> Iterator[PostgresWakes]:
    wakes = PostgresWakes(database)
    wakes.listen(lambda lanes, workers: heard.put((lanes, workers)))
    assert heard.get(timeout=WAIT) == ANYTHING
    yield wakes
    wakes.close()


def test_a_wake_up_arrives_with_what_it_is_for(wakes: PostgresWakes, heard: Heard, postgres_url: str) -> None:
    """Lanes and workers come through from another process's connections."""
    other = PostgresDatabase(postgres_url)
    sender = PostgresWakes(other)
    sender.send([3, 5], [7])
    assert heard.get(timeout=WAIT) == (frozenset({3, 5}), frozenset({7}))
    sender.send(workers=[1 << 62])
    assert heard.get(timeout=WAIT) == (frozenset(), frozenset({1 << 62}))
    assert not wakes.is_deaf
    sender.close()
    other.close()


def test_more_than_fits_means_anything(wakes: PostgresWakes, heard: Heard) -> None:
    """A payload has a limit; beyond it the wake-up says less and still arrives."""
    wakes.send(range(100_000, 103_000))
    assert heard.get(timeout=WAIT) == ANYTHING


def test_after_a_cut_it_hears_again_and_says_that_anything_may_have_changed(wakes: PostgresWakes, heard: Heard, postgres_url: str) -> None:
    """What was sent during the gap is lost, so the gap itself is told."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        ended = connection.execute(CUT)
        assert ended.fetchall() == [(True,)]
    assert heard.get(timeout=WAIT) == ANYTHING
    wakes.send([1])
    assert heard.get(timeout=WAIT) == (frozenset({1}), frozenset())


def test_a_listener_that_cannot_hear_says_that_it_is_deaf(postgres_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Listening where nothing is sent to, it looks healthy; its own test finds it out, and it says so once."""
    elsewhere = urlunsplit(urlsplit(postgres_url)._replace(path="/postgres"))
    database = PostgresDatabase(postgres_url, direct_url=elsewhere)
    wakes = PostgresWakes(database, test_every=timedelta(milliseconds=100))
    told: Heard = queue.Queue()
    connected = queue.Queue[str]()
    say_deaf = wakes.say_deaf
    wakes.say_deaf = lambda reason: (say_deaf(reason), connected.put(reason))[0]  # type: ignore[method-assign]  # to wait for the event, not the time
    wakes.listen(lambda lanes, workers: told.put((lanes, workers)))
    reasons = [connected.get(timeout=WAIT) for _ in range(2)]
    assert (wakes.is_deaf, told.empty()) == (True, True)
    wakes.close()
    database.close()
    assert "did not come back" in reasons[0]
    assert len([record for record in caplog.records if record.name == "outlast.wakes"]) == 1


def test_sending_never_raises() -> None:
    """A wake-up that cannot be sent is a poll's business."""
    database = PostgresDatabase("postgresql://127.0.0.1:1/nothing")
    wakes = PostgresWakes(database)
    wakes.send([1])
    wakes.close()
    database.close()
    wakes.send([1])


def test_a_fault_of_who_is_woken_makes_nobody_deaf(database: PostgresDatabase, heard: Heard) -> None:
    """An exception of the callback is logged, and the next wake-up arrives."""
    wakes = PostgresWakes(database)

    def on_wake(lanes: frozenset[int], workers: frozenset[int]) -> None:
        heard.put((lanes, workers))
        if 1 in lanes:
            raise ValueError("a fault")

    wakes.listen(on_wake)
    assert heard.get(timeout=WAIT) == ANYTHING
    wakes.send([1])
    wakes.send([2])
    assert [heard.get(timeout=WAIT) for _ in range(2)] == [(frozenset({1}), frozenset()), (frozenset({2}), frozenset())]
    wakes.close()


def test_what_another_version_wrote_means_anything() -> None:
    """A payload that cannot be read is no reason to sleep on."""
    assert _parsed("v2:{}") == ANYTHING
