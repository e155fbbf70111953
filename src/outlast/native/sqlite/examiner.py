"""SqliteExaminer: what the doctor reads on an SQLite file. It makes no file and writes nothing; everything is judged elsewhere."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from outlast.clock import Clock, SystemClock
from outlast.database.sqlite import SqliteDatabase
from outlast.database.sqlite.connection import has_safe_wal
from outlast.database.sqlite.instant import from_number, to_number
from outlast.database.statements import load_statements
from outlast.errors import UnavailableError
from outlast.finding import not_applicable
from outlast.limits import DOCTOR_CHECK_TIMEOUT, KEYS_COUNTED_MAX
from outlast.native.doctor import Check, Examination, Finding, Needs, clocks, files, growth, lanes, plan, schema_fit, settings, snapshots, versions
from outlast.native.doctor.examiner import TaskVersions
from outlast.native.doctor.installed import installed_version, python_version

from .disk import log_bytes, read_files
from .schema import CODE_VERSION
from .store import SqliteStore

_CLAIM: dict[str, tuple[str, dict[str, Any]]] = {
    "probe_lanes": ("INDEX outlast_run_claim (lane=?", {"lane": 1, "limit": 1, "now": 0, "with_suspects": 1, "suspect_losses": 1}),
    "claim_runs": ("PRIMARY KEY (id=?", {"worker": 1, "run_ids": "[]", "limit": 1, "now": 0}),
}
"""The statements of a claim, the access that each has to have, and something to plan them with: nothing is executed."""


class SqliteExaminer:
    """See `outlast.native.doctor.examiner.Examiner`."""

    def __init__(self, path: Path, clock: Clock | None = None) -> None:
        self._path = path
        self._clock = clock or SystemClock()
        self._database = SqliteDatabase(path, busy_timeout=DOCTOR_CHECK_TIMEOUT / 2, clock=self._clock)
        self._sql = load_statements("outlast.native.sqlite")
        self._is_wal: bool | None = None

    @property
    def url(self) -> str:
        return self._database.url

    def reach(self) -> bool:
        if not self._path.is_file():
            raise UnavailableError(f"there is no file {self._path}: name the right one, or run `outlast migrate` to make it")
        return bool(self._one("has_meta"))

    def examinations(self, tasks: TaskVersions) -> Sequence[Examination]:
        return (
            Examination(Check.VERSIONS, Needs.NOTHING, lambda: versions.judge_sqlite(installed_version(), python_version(), sqlite3.sqlite_version)),
            Examination(Check.VERSIONS, Needs.DATABASE, self._journal),
            Examination(Check.SETTINGS, Needs.DATABASE, lambda: settings.judge_sqlite(self._one("read_synchronous"))),
            Examination(Check.SCHEMA, Needs.DATABASE, self._schema),
            Examination(Check.POOLER, Needs.NOTHING, lambda: [not_applicable(Check.POOLER, "nothing stands between a process and its file")]),
            Examination(Check.LISTENER, Needs.NOTHING, lambda: [not_applicable(Check.LISTENER, "processes look at the file's time, and nobody listens")]),
            Examination(Check.CLOCK, Needs.SCHEMA, self._clocks),
            Examination(Check.FILES, Needs.NOTHING, lambda: files.judge(read_files(self._path, is_wal=self._is_wal))),
            Examination(Check.CONNECTIONS, Needs.NOTHING, lambda: [not_applicable(Check.CONNECTIONS, "SQLite has no limit of connections")]),
            Examination(Check.PLAN, Needs.SCHEMA, self._plan),
            Examination(Check.SNAPSHOTS, Needs.DATABASE, lambda: snapshots.judge_log(log_bytes(self._path) if self._is_wal else None)),
            Examination(Check.LANES, Needs.SCHEMA, partial(self._lanes, tasks)),
            Examination(Check.GROWTH, Needs.SCHEMA, self._growth),
        )

    def interrupt(self) -> None:
        self._database.interrupt()

    def close(self) -> None:
        self._database.close()

    def _journal(self) -> list[Finding]:
        self._is_wal = self._one("read_journal_mode") == "wal"
        living = self._one("count_living_processes", now=self._now()) if self.reach() else 0
        return versions.judge_journal(versions.SqliteJournal(sqlite3.sqlite_version, has_safe_wal(), self._is_wal, living))

    def _schema(self) -> list[Finding]:
        version, oldest_code = self._rows("find_meta")[0] if self.reach() else (None, 0)
        return schema_fit.judge(schema_fit.SchemaFit(version, oldest_code, CODE_VERSION))

    def _clocks(self) -> list[Finding]:
        renewed: int | None = self._one("find_newest_renewal")
        return clocks.judge_own(None if renewed is None else from_number(renewed) - self._at())

    def _plan(self) -> list[Finding]:
        faults: list[Finding] = []
        for name, (access, parameters) in _CLAIM.items():
            with self._database.reading() as tx:
                lines = [row[3] for row in tx.run(f"EXPLAIN QUERY PLAN {self._sql[name]}", parameters).all()]
            faults.extend(plan.judge_sqlite(name, lines, ("outlast_run", "run"), access))
        return plan.judge(faults, [], list(_CLAIM))

    def _lanes(self, tasks: TaskVersions) -> list[Finding]:
        with self._database.reading() as tx:
            return lanes.judge(SqliteStore(self._clock).list_lanes(tx), tasks)

    def _growth(self) -> list[Finding]:
        keys = growth.Keys(self._one("measure_keys", bound=KEYS_COUNTED_MAX + 1), None)
        return [*growth.judge_keys(keys), *growth.judge_outbox(bool(self._one("has_outbox")))]

    def _at(self) -> datetime:
        return self._clock.now()

    def _now(self) -> int:
        return to_number(self._at())

    def _one(self, statement: str, **parameters: Any) -> Any:
        return self._rows(statement, **parameters)[0][0]

    def _rows(self, statement: str, **parameters: Any) -> list[tuple[Any, ...]]:
        with self._database.reading() as tx:
            return tx.run(self._sql[statement], parameters).all()
