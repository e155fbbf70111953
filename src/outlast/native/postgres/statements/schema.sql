-- The schema row.

-- Is there a schema at all?
-- name: has_meta
SELECT to_regclass('outlast.meta') IS NOT NULL

-- Which version it has, and the oldest code that works with it.
-- name: find_meta
SELECT version, oldest_code FROM outlast.meta

-- Held until the migration that is under way has committed.
-- only here: on SQLite a writing transaction is the only one there is.
-- name: lock_schema
SELECT set_config('lock_timeout', %(timeout)s, true), set_config('statement_timeout', '0', true), set_config('idle_in_transaction_session_timeout', '0', true),
    pg_advisory_xact_lock(%(key)s::bigint)
