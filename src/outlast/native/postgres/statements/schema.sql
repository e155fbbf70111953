-- The schema row.

-- Is there a schema at all? Asked of the catalogue's tables: a look-up by name may be answered from a cache that an advisory
-- lock does not freshen, and then the schema that was made while we waited is not seen.
-- name: has_meta
SELECT EXISTS (
    SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'outlast' AND c.relname = 'meta')

-- Which version it has, and the oldest code that works with it.
-- name: find_meta
SELECT version, oldest_code FROM outlast.meta

-- Which database it is, whatever way leads to it.
-- name: find_identity
SELECT id::text FROM outlast.meta

-- Held until the migration that is under way has committed.
-- only here: on SQLite a writing transaction is the only one there is.
-- name: lock_schema
SELECT set_config('lock_timeout', %(timeout)s, true), set_config('statement_timeout', '0', true), set_config('idle_in_transaction_session_timeout', '0', true),
    pg_advisory_xact_lock(%(key)s::bigint)
