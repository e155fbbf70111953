"""The history of a claimed run is read later than the claim, on two real connections: the interleaving that loses a record otherwise."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from outlast.native.postgres.parameters import SQL, array
from outlast.native.store import ClaimedRun, RunCheckpoint
from outlast.run import RunStatus

from .postgres_world import WAIT, World, opened, record

GATE = """
CREATE TABLE gate (is_open boolean PRIMARY KEY);
CREATE FUNCTION pass_gate() RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    WHILE NOT EXISTS (SELECT FROM gate) LOOP PERFORM pg_sleep(0.005); END LOOP;
    RETURN true;
END $$;
"""
WAITING = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE query LIKE '%pass_gate()%' AND state = 'active' AND pid <> pg_backend_pid())"


@pytest.fixture
def world(postgres_url: str) -> Iterator[World]:
    with opened(postgres_url) as world:
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute(GATE)
        yield world


def gated_claim() -> str:
    """Return the engine's own claim, which stops after its snapshot was taken and before it looks at a run."""
    clock = "WITH clock AS MATERIALIZED (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now)"
    assert SQL["claim_runs"].count(clock) == 1
    return SQL["claim_runs"].replace(clock, clock[:-1] + " WHERE pass_gate())")


def claim_while_another_works(world: World, claim: Callable[[int, str], Any]) -> Any:
    """Begin a claim, and let another worker claim the run, keep a record and hand it back before the first one gets to the row."""
    slow, quick = world.worker(), world.worker()
    (run_id,) = world.accept()
    with ThreadPoolExecutor(1) as pool, psycopg.connect(world.url, autocommit=True) as connection:
        claiming = pool.submit(claim, slow, run_id)
        until(lambda: connection.execute(WAITING).fetchone() == (True,))
        (run,) = world.claim(quick, [run_id])
        with world.database.transaction() as tx:
            world.store.fence(tx, quick)
            world.store.commit_checkpoints(tx, [record(run.hold, "locate"), RunCheckpoint(run.hold, 0, RunStatus.PENDING)])
        connection.execute("INSERT INTO gate VALUES (true)")
        return claiming.result(WAIT)


def until(is_true: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT
    while not is_true():
        assert time.monotonic() < end
        threading.Event().wait(0.005)


def test_a_history_read_after_the_claim_has_what_was_kept_before_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The claim finds the newest version of the row, and the later transaction all records that were kept until then."""

    def claim(worker_id: int, run_id: str) -> tuple[ClaimedRun, list[str]]:
        with world.database.transaction() as tx:
            world.store.fence(tx, worker_id)
            claims = world.store.claim_runs(tx, worker_id, [run_id], 1)
        (run,) = claims()
        with world.database.reading() as tx:
            history = world.store.read_contexts(tx, [run.hold])[run.hold].history
        return run, [record.key.name for record in history.records]

    ungated = SQL["claim_runs"]
    with monkeypatch.context() as patch:
        texts = iter([gated_claim(), ungated])  # the first claim is the slow one
        patch.setattr("outlast.native.postgres.claiming.SQL", _Once(SQL, "claim_runs", texts))
        run, names = claim_while_another_works(world, claim)
    assert (run.token, names) == (2, ["locate"])


def test_a_history_read_with_the_claim_misses_a_record(world: World) -> None:
    """Why it is so: the same claim with its history in one statement has the newest row and the records of an older snapshot."""

    def claim(worker_id: int, run_id: str) -> tuple[Any, ...] | None:
        sql = gated_claim().rsplit("SELECT c.id", 1)[0] + "SELECT c.token, ARRAY(SELECT s.name FROM outlast.step s WHERE s.run = c.id) FROM claimed c"
        with world.database.transaction() as tx:
            rows = tx.run(sql, {"worker": worker_id, "ids": array([run_id]), "limit": 1, "now": None})
        return rows.first()

    assert claim_while_another_works(world, claim) == (2, [])


class _Once(dict[str, str]):
    """Statements of which one has another text each time it is asked for, as long as there are any."""

    def __init__(self, statements: dict[str, str], name: str, texts: Iterator[str]) -> None:
        super().__init__(statements)
        self._name = name
        self._texts = texts

    def __getitem__(self, name: str) -> str:
        return next(self._texts, super().__getitem__(name)) if name == self._name else super().__getitem__(name)
