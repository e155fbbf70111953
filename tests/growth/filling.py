"""A database that has grown: filled by plain SQL, because a million runs one by one would take an hour.

Twenty queues of five kinds in two versions, which a worker serves, and a third version that nobody has. Whatever is made
here could have come through the engine: every row is in a state that it leaves behind. The indexes are taken away for
the filling and made again as they were, so that they are found by themselves when a migration brings another.
"""

from dataclasses import dataclass
from typing import LiteralString, NamedTuple

import psycopg

QUEUES, KINDS, VERSIONS = 20, 5, 2
HELD = 100
"""Runs of the living worker."""
ORPHANS = 600
"""Runs of the worker that was declared dead: more than a page of the recovery."""
OVERDUE = 600
"""Runs past their deadline that nobody holds: more than a page of the sweep."""
ENDED_WORKERS = 200
ALIVE, DEAD = 1, 2
"""Ids of the worker that claims, and of the one that left the orphans."""


@dataclass(frozen=True)
class Sizes:
    """How many runs of each sort."""

    finished: int = 0
    asleep: int = 0
    stranded: int = 0
    pending: int = 0
    crowd: int = 0
    """Pending too, and all of them in the first lane, of which the planner knows the average lane only."""
    due: int = 0
    """Waiting, and their time has come."""


class _Sort(NamedTuple):
    """One sort of runs: how many, and the columns that make it."""

    number: int
    lanes: str
    columns: str


LANES: LiteralString = """
INSERT INTO outlast.lane (queue, kind, version)
SELECT 'queue_' || q, 'kind_' || k, v FROM generate_series(1, %(queues)s) AS q, generate_series(1, %(kinds)s) AS k, generate_series(1, %(versions)s + 1) AS v
"""
WORKERS: LiteralString = """
INSERT INTO outlast.worker (id, name, process, lanes, tasks, lease, lease_until, started_at, is_provable, is_alive, ended_at, "end")
SELECT n, 'worker ' || n, 'process', ARRAY(SELECT id FROM outlast.lane WHERE version <= %(versions)s), '[]', interval '30 s',
    now() + CASE n WHEN %(alive)s THEN interval '1 day' ELSE interval '0' END, now() - interval '3 days', true, n = %(alive)s,
    CASE n WHEN %(alive)s THEN NULL WHEN %(dead)s THEN now() ELSE now() - interval '2 days' END,
    CASE n WHEN %(alive)s THEN NULL WHEN %(dead)s THEN 'dead' ELSE 'stopped' END
FROM generate_series(1, %(ended)s + 2) AS n
"""
RUNS = """
WITH chosen AS (SELECT id, kind, version, row_number() OVER (ORDER BY id) - 1 AS place, count(*) OVER () AS count FROM outlast.lane WHERE {lanes})
INSERT INTO outlast.run (id, lane, kind, version, priority, created_at, {names})
SELECT (lpad(to_hex((extract(epoch FROM now()) * 1000)::bigint - 10000000 + {base} + n), 12, '0') || '70008' || substr(md5(n::text), 1, 15))::uuid,
    chosen.id, chosen.kind, chosen.version, (n / chosen.count) %% 3, now() - interval '1 day', {values}
FROM generate_series(1, {count}) AS n JOIN chosen ON chosen.place = n %% chosen.count
"""
BODIES: LiteralString = """
INSERT INTO outlast.run_body (run, input, input_digest, tags, headers, seed, output)
SELECT id, '{"path": "/media/incoming/one.mkv"}', 'digest', '[]', '{}', 7, CASE WHEN finished_at IS NOT NULL THEN '{"path": "/media/library/one.mkv"}'::json END
FROM outlast.run
"""
INDEXES: LiteralString = """
SELECT t.relname, i.relname, pg_get_indexdef(i.oid), pg_get_constraintdef(c.oid)
FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_class t ON t.oid = x.indrelid LEFT JOIN pg_constraint c ON c.conindid = i.oid
WHERE t.relnamespace = 'outlast'::regnamespace AND t.relname IN ('run', 'run_body')
"""


def fill(url: str, sizes: Sizes) -> tuple[int, ...]:
    """Fill a database that has the schema and nothing else; return the lanes that the living worker serves. No statistics are made."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(LANES, {"queues": QUEUES, "kinds": KINDS, "versions": VERSIONS})
        connection.execute(WORKERS, {"versions": VERSIONS, "alive": ALIVE, "dead": DEAD, "ended": ENDED_WORKERS})
        for table in ("run", "run_body"):  # what the tests say about statistics must not be changed behind their back
            connection.execute(f"ALTER TABLE outlast.{table} SET (autovacuum_enabled = off)".encode())
        indexes = connection.execute(INDEXES).fetchall()
        for table, index, _, constraint in indexes:
            connection.execute((f"ALTER TABLE outlast.{table} DROP CONSTRAINT {index}" if constraint else f"DROP INDEX outlast.{index}").encode())
        _insert_runs(connection, sizes)
        connection.execute(BODIES)
        for table, index, definition, constraint in indexes:
            connection.execute((f"ALTER TABLE outlast.{table} ADD CONSTRAINT {index} {constraint}" if constraint else definition).encode())
        return tuple(lane for (lane,) in connection.execute("SELECT id FROM outlast.lane WHERE version <= %s ORDER BY id", [VERSIONS]))


def _insert_runs(connection: psycopg.Connection, sizes: Sizes) -> None:
    base = 0
    for sort in _sorts(sizes):
        names, values = zip(*(column.split(" = ", 1) for column in sort.columns.split("; ")), strict=True)
        filled = RUNS.format(lanes=sort.lanes, names=", ".join(names), values=", ".join(values), base=base, count=sort.number)
        connection.execute(filled.replace("%%", "%").encode())
        base += sort.number


def _sorts(sizes: Sizes) -> list[_Sort]:
    served, stranded = f"version <= {VERSIONS}", f"version > {VERSIONS}"
    ago, ahead = "now() - interval '1 hour' + n * interval '1 ms'", "now() + interval '1 hour' + n * interval '1 ms'"
    return [
        _Sort(sizes.finished, served, "status = CASE n % 100 WHEN 0 THEN 'failed' ELSE 'succeeded' END; token = 1; attempts = 1; finished_at = now()"),
        _Sort(sizes.asleep, served, f"status = 'waiting'; token = 1; due_at = {ahead}; deadline_at = CASE n % 100 WHEN 0 THEN {ahead} END"),
        _Sort(sizes.due, served, f"status = 'waiting'; token = 1; due_at = {ago}"),
        _Sort(sizes.stranded, stranded, f"status = 'pending'; due_at = {ago}"),
        _Sort(sizes.pending, served, f"status = 'pending'; due_at = {ago}"),
        _Sort(sizes.crowd, "id = 1", f"status = 'pending'; due_at = {ago}"),
        _Sort(OVERDUE, served, f"status = 'pending'; due_at = {ago}; deadline_at = now() - interval '1 minute'"),
        _Sort(HELD, served, f"status = 'running'; token = 1; worker = {ALIVE}; claimed_at = now()"),
        _Sort(ORPHANS, served, f"status = 'running'; token = 1; worker = {DEAD}; claimed_at = now()"),
    ]
