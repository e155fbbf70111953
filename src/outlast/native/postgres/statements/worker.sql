-- Workers: one small row an incarnation, found by primary key; the listings read the whole small table.

-- Announce an incarnation.
-- name: insert_worker
WITH clock AS MATERIALIZED (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now)
INSERT INTO outlast.worker (id, name, process, lanes, tasks, lease, lease_until, started_at, is_provable)
SELECT %(id)s::bigint, %(name)s, %(process)s, %(lanes)s::bigint[], %(tasks)s::json, %(lease)s::interval, clock.now + %(lease)s::interval, clock.now,
    %(is_provable)s::boolean
FROM clock

-- Prolong the lease. No advisory lock: who ends the worker locks its row, and what finds it ended changes nothing.
-- name: renew_worker
WITH clock AS MATERIALIZED (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now)
UPDATE outlast.worker w SET lease_until = greatest(w.lease_until, clock.now + w.lease), beat = w.beat + 1, is_provable = %(is_provable)s::boolean
FROM clock WHERE w.id = %(worker)s::bigint AND w.is_alive
RETURNING clock.now

-- Ask for wake-ups or stop asking; by primary key, and nothing is written when it is so already.
-- name: set_idle
UPDATE outlast.worker SET is_idle = %(is_idle)s::boolean WHERE id = %(worker)s::bigint AND is_alive AND is_idle <> %(is_idle)s::boolean

-- Does anybody want to be woken for these lanes? The small table is read whole.
-- name: has_idle_worker
SELECT EXISTS (SELECT FROM outlast.worker WHERE is_alive AND is_idle AND lanes && %(lanes)s::bigint[])

-- Wait for the worker's open transactions, each of which holds this lock shared through its fence: longer than a flush
-- waits for a row, for they are ended by the server when they hang. In a statement of its own, before the row is read.
-- only here: on SQLite a writing transaction is the only one there is.
-- name: lock_worker
SELECT set_config('lock_timeout', '2s', true), pg_advisory_xact_lock(%(worker)s::bigint)

-- End a worker if what its watcher saw still holds; by primary key. The caller has its advisory lock.
-- name: end_worker
WITH clock AS MATERIALIZED (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now)
UPDATE outlast.worker w SET is_alive = false, is_idle = false, ended_at = clock.now, "end" = %(end)s
FROM clock
WHERE w.id = %(worker)s::bigint AND w.is_alive
    AND (%(beat)s::bigint IS NULL OR w.beat = %(beat)s::bigint)
    AND (NOT %(is_silent)s::boolean OR w.lease_until < clock.now)
RETURNING w.id

-- Living workers first, then the latest; their runs are counted up to a bound, by run_worker. A watcher also asks whose lock
-- is free, after the beat was read by the same statement: shared, as in find_free_locks, and given back at the end.
-- name: list_workers
WITH clock AS MATERIALIZED (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now)
SELECT w.id, w.name, w.process, w.beat, w.is_alive, w.lease_until < clock.now, w.is_idle, extract(epoch FROM w.lease)::double precision, w.lease_until, w.started_at, w.ended_at, w."end",
    (SELECT count(*) FROM (SELECT FROM outlast.run r WHERE r.worker = w.id AND r.status = 'running' LIMIT %(bound)s::bigint) AS held), w.tasks, w.is_provable,
    CASE WHEN %(looks_at_locks)s::boolean AND w.is_provable THEN pg_try_advisory_xact_lock_shared(-w.id) END
FROM clock CROSS JOIN outlast.worker w
WHERE w.is_alive OR NOT %(only_alive)s::boolean
ORDER BY w.is_alive DESC, w.started_at DESC, w.id LIMIT %(limit)s::bigint

-- Lock a page of running runs whose worker is not alive. run_worker is entered once for each worker that holds anything;
-- then the rows of those that are not alive, skipping what is locked.
-- name: list_orphans
WITH RECURSIVE holder AS (
    SELECT (SELECT min(r.worker) FROM outlast.run r WHERE r.status = 'running') AS id
    UNION ALL
    SELECT (SELECT min(r.worker) FROM outlast.run r WHERE r.status = 'running' AND r.worker > holder.id) FROM holder WHERE holder.id IS NOT NULL
),
gone AS MATERIALIZED (
    SELECT holder.id, w."end" IS DISTINCT FROM 'stopped' AS is_lost
    FROM holder LEFT JOIN outlast.worker w ON w.id = holder.id
    WHERE holder.id IS NOT NULL AND w.is_alive IS NOT TRUE
)
SELECT r.id, r.token, r.recoveries, r.losses, r.strikes, r.loss_mark,
    outlast.progress_mark(r.id, r.generation), gone.is_lost
FROM gone JOIN outlast.run r ON r.worker = gone.id AND r.status = 'running'
LIMIT %(limit)s::bigint
FOR NO KEY UPDATE OF r SKIP LOCKED

-- Note what was decided about orphans that this transaction has locked; change_runs lets them go. Returned are those that were
-- canceled: nothing delays their end.
-- name: count_losses
UPDATE outlast.run r SET recoveries = b.recoveries, losses = b.losses, strikes = b.strikes, loss_mark = b.loss_mark
FROM (SELECT *, 'running' AS status FROM json_to_recordset(%(batch)s::json) AS b(id uuid, token bigint, recoveries bigint, losses bigint, strikes bigint, loss_mark bigint) OFFSET 0) AS b
WHERE r.id = b.id AND r.token = b.token AND r.status = b.status
RETURNING r.id, r.cancel_requested_at IS NOT NULL

-- One watcher at a time in this database, until the transaction ends. No waiting.
-- only here: on SQLite a writing transaction is the only one there is.
-- name: try_watch
SELECT pg_try_advisory_xact_lock(%(key)s::bigint)

-- Forget workers that ended long ago and hold nothing (run_worker).
-- name: delete_ended_workers
DELETE FROM outlast.worker w
WHERE NOT w.is_alive AND w.ended_at <= coalesce(%(now)s::timestamptz, clock_timestamp()) - %(older_than)s::interval
    AND NOT EXISTS (SELECT FROM outlast.run r WHERE r.worker = w.id AND r.status = 'running')

-- The idempotency keys of a few runs, by primary key.
-- only here: SQLite looks keys up while it ends them.
-- name: list_run_keys
SELECT b.run, b.idempotency_key
FROM unnest(%(runs)s::uuid[]) AS wanted(id) JOIN outlast.run_body b ON b.run = wanted.id
WHERE b.idempotency_key IS NOT NULL

-- Lanes that a worker claims from which lives or lived lately. A worker that nobody has declared dead lived until its lease was
-- over at most. Both tables are small.
-- name: list_served_lanes
SELECT l.queue, l.kind, l.version FROM outlast.lane l
WHERE l.id IN (
    SELECT unnest(w.lanes) FROM outlast.worker w
    WHERE coalesce(w.ended_at, w.lease_until) > coalesce(%(now)s::timestamptz, clock_timestamp()) - %(lived_within)s::interval
)

-- From when on a worker that was declared dead does nothing any more; none for one that lives, was stopped or is only silent. That its
-- lock was free is proof enough to take its runs, which fences hold; for the outside world it is not, because a process whose
-- connections were cut and refused looks the same: by the end of its lease it has told what it had under way to end. Primary key.
-- name: find_death
SELECT greatest(ended_at, lease_until) FROM outlast.worker WHERE id = %(worker)s::bigint AND "end" = 'dead' AND NOT is_alive

-- Whether a claim is current. Primary key, no lock: who asks acts for another run.
-- name: find_claim
SELECT 1 FROM outlast.run WHERE id = %(run)s::uuid AND token = %(token)s::bigint AND status = 'running'
