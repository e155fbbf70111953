-- What the doctor reads. Everything is bounded: under the rollback journal a reader holds commits off.

-- The journal of the file: `wal`, or anything else for the rollback journal.
-- only here: PostgreSQL has one journal.
-- name: read_journal_mode
PRAGMA journal_mode;

-- How a commit of this connection reaches the disk: 2 is FULL.
-- only here: PostgreSQL's settings are read by name.
-- name: read_synchronous
PRAGMA synchronous;

-- In how many processes workers live; the table is small.
-- only here: only SQLite's journal depends on it.
-- name: count_living_processes
SELECT count(DISTINCT process) FROM outlast_worker WHERE is_alive = 1 AND lease_until > :now;

-- When a living worker last renewed its lease, by the clock that it had then; NULL without one.
-- only here: PostgreSQL has a clock of its own.
-- name: find_newest_renewal
SELECT max(lease_until - lease) FROM outlast_worker WHERE is_alive = 1;

-- The keys, counted up to a bound. Primary key.
-- name: measure_keys
SELECT count(*) FROM (SELECT 1 FROM outlast_run_key LIMIT :bound);

-- Whether the tables have an outbox.
-- name: has_outbox
SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'outlast_outbox_event');
