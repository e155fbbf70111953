-- What the doctor reads. Everything is bounded, and nothing takes a lock that anybody waits for.

-- The server's own version.
-- only here: SQLite is a library of this process.
-- name: read_server_version
SELECT current_setting('server_version'), current_setting('server_version_num')::bigint

-- What a session of this role gets. `idle_session_timeout` in seconds.
-- only here: SQLite's settings are pragmas of a connection.
-- name: read_settings
SELECT current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_commit'),
    current_setting('default_transaction_isolation'), (SELECT setting::double precision / 1000 FROM pg_settings WHERE name = 'idle_session_timeout'),
    pg_is_in_recovery()

-- Who answers on this connection, and whether it may be written to.
-- only here: there is nobody between a process and an SQLite file.
-- name: find_answering
SELECT pg_backend_pid(), pg_is_in_recovery()

-- What tells this database from every other; one row.
-- only here: an SQLite file has one address.
-- name: find_schema_id
SELECT id FROM outlast.meta

-- The server's connections, those of anybody but this fleet, and the living workers. Sessions that this role may not see into
-- have no type, and are clients if they have a database.
-- only here: SQLite has no limit of connections.
-- name: count_connections
SELECT current_setting('max_connections')::bigint,
    current_setting('superuser_reserved_connections')::bigint + coalesce(current_setting('reserved_connections', true), '0')::bigint,
    (SELECT count(*) FROM pg_stat_activity
        WHERE (backend_type = 'client backend' OR (backend_type IS NULL AND datid IS NOT NULL))
            AND NOT (datname = current_database() AND application_name LIKE 'outlast%%')),
    (SELECT count(*) FROM outlast.worker WHERE is_alive AND lease_until > clock_timestamp())

-- Who holds back the removal of dead rows of this database, the oldest first. Sessions of other databases do not, except those
-- without any, which send to standbys; nor does autovacuum itself.
-- only here: on SQLite readers hold back the write-ahead log, whose size tells.
-- name: list_snapshots
SELECT held.name, held.seconds, held.transactions FROM (
    SELECT format('session %%s (%%s)', a.pid, coalesce(nullif(a.application_name, ''), 'no name')) AS name,
        extract(epoch FROM clock_timestamp() - a.xact_start)::double precision AS seconds, age(a.backend_xmin)::bigint AS transactions
    FROM pg_stat_activity a
    WHERE a.backend_xmin IS NOT NULL AND a.pid <> pg_backend_pid() AND a.backend_type IS DISTINCT FROM 'autovacuum worker'
        AND (a.datname = current_database() OR a.datid IS NULL)
    UNION ALL
    SELECT format('prepared transaction %%s', p.gid), extract(epoch FROM clock_timestamp() - p.prepared)::double precision, age(p.transaction)::bigint
    FROM pg_prepared_xacts p WHERE p.database = current_database()
    UNION ALL
    SELECT format('replication slot %%s', s.slot_name), NULL, age(s.xmin)::bigint FROM pg_replication_slots s WHERE s.xmin IS NOT NULL
) AS held
ORDER BY held.seconds DESC NULLS LAST, held.transactions DESC LIMIT %(limit)s::bigint

-- How the table of runs is cleaned up, by the server's own counters; the tables of outlast that are left out by name.
-- only here: SQLite leaves no dead rows behind.
-- name: read_cleaning
SELECT coalesce((SELECT s.n_live_tup FROM pg_stat_user_tables s WHERE s.schemaname = 'outlast' AND s.relname = 'run'), 0),
    coalesce((SELECT s.n_dead_tup FROM pg_stat_user_tables s WHERE s.schemaname = 'outlast' AND s.relname = 'run'), 0),
    current_setting('autovacuum')::boolean AND current_setting('track_counts')::boolean,
    ARRAY(SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = 'outlast' AND c.relkind = 'r' AND EXISTS (
            SELECT FROM pg_options_to_table(c.reloptions) o WHERE o.option_name = 'autovacuum_enabled' AND NOT o.option_value::boolean)
        ORDER BY c.relname)

-- Indexes that a failed CREATE INDEX CONCURRENTLY has left.
-- only here: SQLite makes an index or makes none.
-- name: list_invalid_indexes
SELECT c.relname::text FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'outlast' AND NOT (i.indisvalid AND i.indisready) ORDER BY c.relname

-- The server's estimate of the keys, NULL before the first one, and their size; nothing is counted.
-- name: measure_keys
SELECT nullif(c.reltuples, -1)::bigint, pg_total_relation_size(c.oid)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'outlast' AND c.relname = 'run_key'

-- Whether the schema has an outbox.
-- name: has_outbox
SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'outlast' AND c.relname = 'outbox_event')
