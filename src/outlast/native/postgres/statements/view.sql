-- What people and waiting callers ask. No locks.

-- Runs by primary key, in the order asked for; lane, queue and worker are small tables.
-- name: find_run
WITH clock AS MATERIALIZED (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now)
SELECT r.id, r.kind, r.version, l.queue, r.status, r.generation, r.priority, r.attempts, r.recoveries, r.strikes, r.created_at, r.started_at,
    r.finished_at, r.due_at, r.deadline_at, b.idempotency_key, w.name, b.input, b.output, b.error, b.cancel_reason, b.verdict, b.warnings, b.tags,
    b.headers, q.paused_at IS NOT NULL, r.lane, r.losses, w.is_alive, w.lease_until < clock.now, r.due_at <= clock.now
FROM clock CROSS JOIN unnest(%(runs)s::uuid[]) WITH ORDINALITY AS wanted(id, place)
JOIN outlast.run r ON r.id = wanted.id
JOIN outlast.run_body b ON b.run = r.id
JOIN outlast.lane l ON l.id = r.lane
LEFT JOIN outlast.queue q ON q.name = l.queue
LEFT JOIN outlast.worker w ON w.id = r.worker
ORDER BY wanted.place

-- How many claimable runs of its lane come before one, counted up to a bound: run_claim, up to its place.
-- name: count_ahead
SELECT count(*) FROM (
    SELECT FROM outlast.run r
    WHERE r.status = 'pending' AND r.lane = %(lane)s::bigint
        AND (r.priority, r.due_at, r.id) < (%(priority)s::bigint, %(due_at)s::timestamptz, %(run)s::uuid)
    LIMIT %(bound)s::bigint
) AS ahead

-- A page of ids, newest first: the primary key walked backwards. It is planned with the values at hand, so that for failed
-- and dead runs, and for the few that are claimable or held, their own indexes serve.
-- name: list_run_ids
SELECT r.id FROM outlast.run r
WHERE (%(before)s::uuid IS NULL OR r.id < %(before)s::uuid)
    AND (%(status)s::text IS NULL OR r.status = %(status)s::text)
    AND (%(kind)s::text IS NULL OR r.kind = %(kind)s::text)
    AND (%(queue)s::text IS NULL OR r.lane = ANY (ARRAY(SELECT l.id FROM outlast.lane l WHERE l.queue = %(queue)s::text)))
ORDER BY r.id DESC LIMIT %(limit)s::bigint

-- A page of failed and dead runs, those that ended last first: run_attention, walked backwards from where the page before ended.
-- name: list_attention_ids
SELECT r.id FROM outlast.run r
WHERE r.status IN ('failed', 'dead') AND (%(at)s::timestamptz IS NULL OR (r.finished_at, r.id) < (%(at)s::timestamptz, %(before)s::uuid))
ORDER BY r.finished_at DESC, r.id DESC LIMIT %(limit)s::bigint

-- Keys with failed attempts or reports that have a record by now: they are not open any more. By primary keys.
-- name: list_recovered_keys
SELECT s.run, s.path, s.name, s.number
FROM unnest(%(runs)s::uuid[]) AS wanted(run)
JOIN outlast.run r ON r.id = wanted.run
JOIN outlast.step s ON s.run = r.id AND s.generation = r.generation
WHERE EXISTS (
        SELECT FROM outlast.step_failure f
        WHERE f.run = s.run AND f.generation = s.generation AND f.path = s.path AND f.name = s.name AND f.number = s.number)
    OR EXISTS (
        SELECT FROM outlast.activity a
        WHERE a.run = s.run AND a.generation = s.generation AND a.path = s.path AND a.name = s.name AND a.number = s.number)

-- Primary key (kind, key).
-- name: find_key
SELECT run, ended_status FROM outlast.run_key WHERE kind = %(kind)s AND key = %(key)s

-- Those that are not over, by primary key.
-- name: find_going
SELECT r.id FROM unnest(%(runs)s::uuid[]) AS wanted(id) JOIN outlast.run r ON r.id = wanted.id
WHERE r.finished_at IS NULL
