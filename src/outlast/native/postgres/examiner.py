"""PostgresExaminer: what the doctor reads on PostgreSQL, through connections of its own. Everything is judged elsewhere."""

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import psycopg

from outlast.clock import SystemClock
from outlast.errors import UnavailableError
from outlast.finding import not_applicable
from outlast.ids import worker_id
from outlast.limits import LISTENER_TEST_TIMEOUT, PAGE
from outlast.native.doctor import Check, Examination, Finding, Needs, addresses, budget, clocks, growth, lanes, plan, schema_fit, settings, snapshots, versions
from outlast.native.doctor.examiner import TaskVersions
from outlast.native.doctor.installed import installed_version, python_version

from .examined import ExaminedDatabase
from .parameters import SQL, array
from .schema import CODE_VERSION
from .store import PostgresStore
from .wakes import PostgresWakes

_CLAIM = {
    "probe_lanes": ("run_claim", {"lanes": array([1]), "limit": PAGE, "suspect": 1, "losses_below": 1, "now": None}),
    "claim_runs": ("run_pkey", {"worker": 1, "ids": "{00000000-0000-0000-0000-000000000000}", "limit": PAGE, "now": None}),
}
"""The statements of a claim, the index that serves each, and something to plan them with: nothing is executed."""


class PostgresExaminer:
    """See `outlast.native.doctor.examiner.Examiner`."""

    def __init__(self, url: str, *, direct_url: str | None, connections: int) -> None:
        self._database = ExaminedDatabase(url, direct_url=direct_url)
        self._main = ExaminedDatabase(url)
        self._is_direct_given = direct_url is not None
        self._pool_size = connections
        self._is_pooled = False
        self._direct_error: str | None = None

    @property
    def url(self) -> str:
        return self._database.url

    def reach(self) -> bool:
        return bool(self._row("has_meta")[0])

    def examinations(self, tasks: TaskVersions) -> Sequence[Examination]:
        return (
            Examination(Check.VERSIONS, Needs.NOTHING, self._libraries),
            Examination(Check.VERSIONS, Needs.DATABASE, self._server),
            Examination(Check.SETTINGS, Needs.DATABASE, self._settings),
            Examination(Check.SCHEMA, Needs.DATABASE, self._schema),
            Examination(Check.POOLER, Needs.DATABASE, self._pooler),
            Examination(Check.LISTENER, Needs.DATABASE, self._listener),
            Examination(Check.CLOCK, Needs.DATABASE, self._clock),
            Examination(Check.FILES, Needs.NOTHING, lambda: [not_applicable(Check.FILES, "the server looks after its files")]),
            Examination(Check.CONNECTIONS, Needs.SCHEMA, self._budget),
            Examination(Check.PLAN, Needs.SCHEMA, self._plan),
            Examination(Check.SNAPSHOTS, Needs.SCHEMA, self._snapshots),
            Examination(Check.LANES, Needs.SCHEMA, partial(self._lanes, tasks)),
            Examination(Check.GROWTH, Needs.SCHEMA, self._growth),
        )

    def interrupt(self) -> None:
        self._database.interrupt()
        self._main.interrupt()

    def close(self) -> None:
        self._database.close()
        self._main.close()

    # --- the server ----------------------------------------------------------------------------------------------------------
    def _libraries(self) -> list[Finding]:
        number = psycopg.pq.version()
        libpq = f"{number // 10_000}.{number % 10_000}"
        return versions.judge_libraries(installed_version(), python_version(), psycopg=psycopg.__version__, libpq=libpq)

    def _server(self) -> list[Finding]:
        name, number = self._row("read_server_version")
        return versions.judge_server(name, number // 10_000)

    def _settings(self) -> list[Finding]:
        return settings.judge_postgres(settings.PostgresSettings(*self._row("read_settings")))

    def _schema(self) -> list[Finding]:
        version, oldest_code = self._row("find_meta") if self.reach() else (None, 0)
        return schema_fit.judge(schema_fit.SchemaFit(version, oldest_code, CODE_VERSION))

    def _clock(self) -> list[Finding]:
        """The quickest of three answers tells most exactly: the database read its clock somewhere within it."""
        offset, uncertainty = min((self._offset() for _ in range(3)), key=lambda measured: measured[1])
        return clocks.judge_offset(offset, uncertainty)

    def _offset(self) -> tuple[timedelta, timedelta]:
        clock = SystemClock()
        before = clock.now()
        theirs = self._database.now()
        took = clock.now() - before
        return theirs - (before + took / 2), abs(took) / 2

    # --- addresses -----------------------------------------------------------------------------------------------------------
    def _pooler(self) -> list[Finding]:
        has_schema = self.reach()
        main = _address(lambda: self._main.connect_direct("main"), has_schema)
        if main.error is not None:
            raise UnavailableError(main.error)
        direct = _address(lambda: self._database.connect_direct("direct"), has_schema) if self._is_direct_given else main
        self._is_pooled, self._direct_error = main.is_pooled, direct.error
        return addresses.judge_pooler(main, direct, is_direct_given=self._is_direct_given)

    def _listener(self) -> list[Finding]:
        """Send a wake-up the way every wake-up goes, for a lane that is nobody's, and wait until it is heard."""
        if self._direct_error is not None:
            return [not_applicable(Check.LISTENER, "not looked at, because the address to listen at cannot be reached")]
        own = -worker_id()
        wakes, hearing, heard = PostgresWakes(self._database), threading.Event(), threading.Event()

        def on_wake(lanes_woken: frozenset[int], workers: frozenset[int]) -> None:
            hearing.set()
            if own in lanes_woken:
                heard.set()

        clock, limit = SystemClock(), LISTENER_TEST_TIMEOUT.total_seconds()
        try:
            wakes.listen(on_wake)
            is_hearing = hearing.wait(limit)
            began_at = clock.monotonic()
            wakes.send(lanes=[own])
            is_heard = is_hearing and heard.wait(limit)
            took = 1000 * (clock.monotonic() - began_at)
        finally:
            wakes.close()
        return addresses.judge_listener(addresses.RoundTrip(took if is_heard else None, limit))

    # --- the tables ----------------------------------------------------------------------------------------------------------
    def _budget(self) -> list[Finding]:
        found = budget.ServerConnections(*self._row("count_connections"))
        return budget.judge(found, pool_size=self._pool_size, is_pooled=self._is_pooled)

    def _plan(self) -> list[Finding]:
        """Plan as the engine's own transactions do: `reading` has their settings."""
        faults: list[Finding] = []
        for name, (index, parameters) in _CLAIM.items():
            with self._database.reading() as tx:
                ((text,),) = tx.run(f"EXPLAIN (FORMAT JSON) {SQL[name]}", parameters).all()
            faults.extend(plan.judge_postgres(name, text, "run", index))
        return plan.judge(faults, [name for (name,) in self._rows("list_invalid_indexes")], list(_CLAIM))

    def _snapshots(self) -> list[Finding]:
        live, dead, is_on, without = self._row("read_cleaning")
        holders = [snapshots.Holder(*row) for row in self._rows("list_snapshots", limit=PAGE)]
        return snapshots.judge(holders, snapshots.Cleaning(live, dead, is_on, tuple(without)))

    def _lanes(self, tasks: TaskVersions) -> list[Finding]:
        with self._database.reading() as tx:
            return lanes.judge(PostgresStore().list_lanes(tx), tasks)

    def _growth(self) -> list[Finding]:
        return [*growth.judge_keys(growth.Keys(*self._row("measure_keys"))), *growth.judge_outbox(self._row("has_outbox")[0])]

    def _row(self, statement: str, **parameters: Any) -> tuple[Any, ...]:
        return self._rows(statement, **parameters)[0]

    def _rows(self, statement: str, **parameters: Any) -> list[tuple[Any, ...]]:
        with self._database.reading() as tx:
            return tx.run(SQL[statement], parameters).all()


def _address(connect: Callable[[], psycopg.Connection[tuple[Any, ...]]], has_schema: bool) -> addresses.Address:
    """Connect, and ask who answers. An address that leads to a database without the tables has no schema id."""
    try:
        with connect() as connection:
            backend, is_standby = connection.execute(SQL["find_answering"]).fetchone() or (0, False)
            schema_id = _schema_id(connection) if has_schema else None
            return addresses.Address(None, connection.info.backend_pid, backend, is_standby, schema_id)
    except (UnavailableError, psycopg.Error) as error:
        return addresses.Address(error=" ".join(str(error).split()))


def _schema_id(connection: psycopg.Connection[tuple[Any, ...]]) -> str | None:
    ((has_meta,),) = connection.execute(SQL["has_meta"]).fetchall()
    try:
        row = connection.execute(SQL["find_schema_id"]).fetchone() if has_meta else None
    except psycopg.errors.InsufficientPrivilege:
        return None  # the check of the schema says so
    return None if row is None else str(row[0])
