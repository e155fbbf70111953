-- What operators do to queues and to what is over, and what there is in the lanes. Nothing walks through a large table at once.

-- Every lane with its claimable runs and those that wait for no time, each counted up to a bound: one short walk a lane in
-- run_claim and in run_untimed.
-- name: list_lanes
SELECT l.id, l.queue, l.kind, l.version, q.paused_at,
    (SELECT count(*) FROM (SELECT FROM outlast.run r WHERE r.lane = l.id AND r.status = 'pending' LIMIT %(bound)s::bigint) AS pending),
    (SELECT count(*) FROM (SELECT FROM outlast.run r WHERE r.lane = l.id AND r.status = 'waiting' AND r.due_at IS NULL LIMIT %(bound)s::bigint) AS untimed)
FROM outlast.lane l LEFT JOIN outlast.queue q ON q.name = l.queue
ORDER BY l.queue, l.kind, l.version

-- Held runs by lane, of so many as are looked at: run_worker.
-- name: count_held
SELECT held.lane, count(*)
FROM (SELECT r.lane FROM outlast.run r WHERE r.status = 'running' LIMIT %(sample)s::bigint) AS held
GROUP BY held.lane

-- Runs that wait for a time by lane, of the soonest so many, and how many of them are overdue: run_timer.
-- name: count_asleep
WITH clock AS MATERIALIZED (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now)
SELECT asleep.lane, count(*), count(*) FILTER (WHERE asleep.due_at <= clock.now)
FROM clock, (
    SELECT r.lane, r.due_at FROM outlast.run r WHERE r.status = 'waiting' AND r.due_at IS NOT NULL ORDER BY r.due_at LIMIT %(sample)s::bigint
) AS asleep
GROUP BY asleep.lane

-- Who did what; one run's by action_run, else from the end of the primary key.
-- name: list_actions
SELECT a.at, a.actor, a.action, a.run, a.queue, a.affected, a.reason FROM outlast.action a
WHERE %(run)s::uuid IS NULL OR a.run = %(run)s::uuid
ORDER BY a.id DESC LIMIT %(limit)s::bigint

-- Since when a queue is paused, and hold off who would change that. Primary key.
-- name: lock_queue
SELECT q.paused_at FROM outlast.queue q WHERE q.name = %(queue)s FOR UPDATE

-- Let nobody claim from a queue; one that is paused stays so since then. Primary key.
-- name: pause_queue
INSERT INTO outlast.queue AS q (name, paused_at) VALUES (%(queue)s, coalesce(%(now)s::timestamptz, clock_timestamp()))
ON CONFLICT (name) DO UPDATE SET paused_at = coalesce(q.paused_at, excluded.paused_at)
RETURNING paused_at

-- Let a queue be claimed from again. Primary key.
-- name: unpause_queue
UPDATE outlast.queue SET paused_at = NULL WHERE name = %(queue)s AND paused_at IS NOT NULL

-- The lanes of a queue; the table is small.
-- name: list_queue_lanes
SELECT l.id FROM outlast.lane l WHERE l.queue = %(queue)s

-- A page of all runs by id, the oldest first, whether each may be pruned, and what hangs on those that may. An effect that may
-- have been done, and of which nobody knows, holds its run. The primary key from `after` on, operation_run; no locks.
-- name: list_old_runs
WITH clock AS MATERIALIZED (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) - %(older_than)s::interval AS cutoff),
page AS MATERIALIZED (
    SELECT r.id, r.status, r.created_at, r.finished_at FROM outlast.run r WHERE r.id > %(after)s::uuid ORDER BY r.id LIMIT %(limit)s::bigint
),
judged AS (
    SELECT p.id, p.created_at <= clock.cutoff AS is_old, coalesce(p.finished_at <= clock.cutoff, false) AS is_over,
        (p.status IN ('failed', 'dead') AND NOT %(dead_letters)s::boolean) OR (p.finished_at <= clock.cutoff AND (
            SELECT count(*) FROM outlast.operation o WHERE o.run = p.id::text AND o.run <> '' AND o.status IN ('attempting', 'unknown', 'asked')
        ) > 0) AS is_held_back
    FROM page p, clock
)
SELECT j.id, j.is_old, j.is_over AND NOT j.is_held_back, j.is_over AND j.is_held_back,
    CASE WHEN j.is_over AND NOT j.is_held_back THEN
        (SELECT count(*) FROM (SELECT FROM outlast.step s WHERE s.run = j.id LIMIT %(bound)s::bigint) AS records)
        + (SELECT count(*) FROM (SELECT FROM outlast.step_failure f WHERE f.run = j.id LIMIT %(bound)s::bigint) AS failures)
        + (SELECT count(*) FROM (SELECT FROM outlast.operation o WHERE o.run = j.id::text AND o.run <> '' LIMIT %(bound)s::bigint) AS operations)
    ELSE 0 END
FROM judged j ORDER BY j.id

-- Delete runs and all that hangs on them but their keys. Each is locked unless somebody else has it, for who retries it locks
-- it too, and then tested again. Everything goes by the primary key, or by what it begins with: the array makes the planner look
-- rows up, for it cannot know how few they are, and would rather walk through a table that is not much larger. Operations whose
-- key is the run's go with it; those whose key the user gave stay for as long as keys are kept.
-- name: delete_runs
WITH clock AS MATERIALIZED (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) - %(older_than)s::interval AS cutoff),
wanted AS MATERIALIZED (SELECT given.id, clock.cutoff FROM clock, unnest(%(runs)s::uuid[]) AS given(id)),
gone AS MATERIALIZED (
    SELECT found.id FROM wanted CROSS JOIN LATERAL (
        SELECT r.id FROM outlast.run r
        WHERE r.id = wanted.id AND r.finished_at <= wanted.cutoff
            AND (r.status IN ('succeeded', 'canceled') OR (%(dead_letters)s::boolean AND r.status IN ('failed', 'dead')))
            AND (
                SELECT count(*) FROM outlast.operation o WHERE o.run = r.id::text AND o.run <> '' AND o.status IN ('attempting', 'unknown', 'asked')
            ) = 0
        FOR UPDATE SKIP LOCKED
    ) AS found
),
own AS MATERIALIZED (
    SELECT o.effect, o.key FROM outlast.operation o
    WHERE o.run = ANY (ARRAY(SELECT id::text FROM gone)) AND o.run <> '' AND starts_with(o.key, o.run || '/')
),
attempts AS (DELETE FROM outlast.operation_attempt a USING own WHERE a.effect = own.effect AND a.key = own.key),
operations AS (
    DELETE FROM outlast.operation o WHERE o.run = ANY (ARRAY(SELECT id::text FROM gone)) AND o.run <> '' AND starts_with(o.key, o.run || '/')
),
bodies AS (DELETE FROM outlast.run_body b WHERE b.run = ANY (ARRAY(SELECT id FROM gone))),
steps AS (DELETE FROM outlast.step s WHERE s.run = ANY (ARRAY(SELECT id FROM gone))),
failures AS (DELETE FROM outlast.step_failure f WHERE f.run = ANY (ARRAY(SELECT id FROM gone))),
activities AS (DELETE FROM outlast.activity a WHERE a.run = ANY (ARRAY(SELECT id FROM gone))),
waits AS (DELETE FROM outlast.wait w WHERE w.run = ANY (ARRAY(SELECT id FROM gone))),
cursors AS (DELETE FROM outlast.cursor c WHERE c.run = ANY (ARRAY(SELECT id FROM gone))),
signals AS (DELETE FROM outlast.signal s WHERE s.run = ANY (ARRAY(SELECT id FROM gone))),
decisions AS (DELETE FROM outlast.decision d WHERE d.run = ANY (ARRAY(SELECT id::text FROM gone)))
DELETE FROM outlast.run r WHERE r.id = ANY (ARRAY(SELECT id FROM gone))

-- A page of keys in their order, and which may go: the run is over and pruned, and by its id was accepted before the cutoff.
-- Primary keys of run_key and run; what is counted cannot be planned as one look through all runs.
-- name: list_old_keys
WITH clock AS MATERIALIZED (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) - %(older_than)s::interval AS cutoff),
page AS MATERIALIZED (
    SELECT k.kind, k.key, k.run, k.ended_status FROM outlast.run_key k
    WHERE (k.kind, k.key) > (%(kind)s, %(key)s) ORDER BY k.kind, k.key LIMIT %(limit)s::bigint
)
SELECT p.kind, p.key, p.run,
    p.ended_status IS NOT NULL
    AND p.run < (lpad(to_hex(greatest(floor(extract(epoch FROM clock.cutoff) * 1000), 0)::bigint), 12, '0') || repeat('0', 20))::uuid
    AND (SELECT count(*) FROM outlast.run r WHERE r.id = p.run) = 0
FROM page p, clock ORDER BY p.kind, p.key

-- Delete keys, unless they belong to another run by now, or somebody has them locked. Primary key, then by place.
-- name: delete_keys
WITH gone AS MATERIALIZED (
    SELECT found.place
    FROM json_to_recordset(%(batch)s::json) AS b(kind text, key text, run uuid)
    CROSS JOIN LATERAL (
        SELECT k.ctid AS place FROM outlast.run_key k WHERE k.kind = b.kind AND k.key = b.key AND k.run = b.run FOR UPDATE SKIP LOCKED
    ) AS found
)
DELETE FROM outlast.run_key k WHERE k.ctid = ANY (ARRAY(SELECT place FROM gone))
