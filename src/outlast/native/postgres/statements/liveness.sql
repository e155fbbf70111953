-- Proofs of life: a session's advisory lock on the negative of the worker's id, over a connection of its own.

-- Whether the server process that answers is the one that was connected to: a pooler in between breaks session locks.
-- only here: SQLite proves life by file locks.
-- name: find_backend
SELECT pg_backend_pid()

-- Take the lock that lasts as long as the session.
-- only here: SQLite proves life by file locks.
-- name: try_session_lock
SELECT pg_try_advisory_lock(-%(worker)s::bigint)

-- Give it back.
-- only here: SQLite proves life by file locks.
-- name: release_session_lock
SELECT pg_advisory_unlock(-%(worker)s::bigint)

-- Of these workers, whose locks are free: taken, and given back when this short transaction ends. Shared, so that two watchers
-- who look at the same time do not take each other for the worker.
-- only here: SQLite proves life by file locks.
-- name: find_free_locks
SELECT wanted.id FROM unnest(%(workers)s::bigint[]) AS wanted(id) WHERE pg_try_advisory_xact_lock_shared(-wanted.id)

-- Since a restart the locks are gone while the workers may live and come back: it proves something only of a worker that
-- began after it, and of all once a lease has passed.
-- only here: SQLite proves life by file locks.
-- name: is_proof_possible
SELECT pg_postmaster_start_time() < %(started_at)s::timestamptz OR clock_timestamp() - pg_postmaster_start_time() > %(lease)s::interval
