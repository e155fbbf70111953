-- What operators do to queues and to what is over, and what there is in the lanes. Nothing walks through a large table at once.

-- Every lane with its claimable runs and those that wait for no time, each counted up to a bound. Indexes: claim, untimed.
-- name: list_lanes
SELECT lane.id, lane.queue, lane.kind, lane.version, queue.paused_at,
    (SELECT count(*) FROM (SELECT 1 FROM outlast_run AS run WHERE run.lane = lane.id AND run.status = 'pending' LIMIT :bound)),
    (SELECT count(*) FROM (SELECT 1 FROM outlast_run AS run WHERE run.lane = lane.id AND run.status = 'waiting' AND run.due_at IS NULL LIMIT :bound))
FROM outlast_lane AS lane LEFT JOIN outlast_queue AS queue ON queue.name = lane.queue
ORDER BY lane.queue, lane.kind, lane.version;

-- Held runs by lane, of so many as are looked at. Index: worker.
-- name: count_held
SELECT lane, count(*) FROM (SELECT lane FROM outlast_run INDEXED BY outlast_run_worker WHERE status = 'running' LIMIT :sample) GROUP BY lane;

-- Runs that wait for a time by lane, of the soonest so many, and how many of them are overdue. Index: timer.
-- name: count_asleep
SELECT lane, count(*), sum(due_at <= :now)
FROM (SELECT lane, due_at FROM outlast_run WHERE status = 'waiting' AND due_at IS NOT NULL ORDER BY due_at LIMIT :sample)
GROUP BY lane;

-- The latest of what operators did. Primary key.
-- name: list_actions
SELECT at, actor, action, run, queue, affected, reason FROM outlast_action ORDER BY id DESC LIMIT :limit;

-- What operators did to one run. Index: action_run.
-- only here: SQLite plans before it knows the parameters, so that each index has a statement of its own.
-- name: list_actions_of_run
SELECT at, actor, action, run, queue, affected, reason FROM outlast_action WHERE run = :run ORDER BY id DESC LIMIT :limit;

-- Since when a queue is paused; the immediate transaction keeps it as it is. Primary key.
-- name: lock_queue
SELECT paused_at FROM outlast_queue WHERE name = :queue;

-- Lets nobody claim from a queue; one that is paused stays so since then. Primary key.
-- name: pause_queue
INSERT INTO outlast_queue (name, paused_at) VALUES (:queue, :now)
ON CONFLICT (name) DO UPDATE SET paused_at = coalesce(paused_at, excluded.paused_at)
RETURNING paused_at;

-- Lets a queue be claimed from again. Primary key.
-- name: unpause_queue
UPDATE outlast_queue SET paused_at = NULL WHERE name = :queue AND paused_at IS NOT NULL;

-- The lanes of a queue; the table is small.
-- name: list_queue_lanes
SELECT id FROM outlast_lane WHERE queue = :queue;

-- A page of all runs by id, the oldest first, whether each may be pruned, and what hangs on those that may. An effect that may
-- have been done, and of which nobody knows, holds its run. Primary key from `after` on; index operation_run.
-- name: list_old_runs
WITH judged AS (
    SELECT id, created_at <= :cutoff AS is_old, coalesce(finished_at <= :cutoff, 0) AS is_over,
        (status IN ('failed', 'dead') AND NOT :dead_letters) OR (finished_at <= :cutoff AND EXISTS (
            SELECT 1 FROM outlast_operation AS operation WHERE operation.run = outlast_run.id AND operation.run <> '' AND operation.status IN ('attempting', 'unknown', 'asked')
        )) AS is_held_back
    FROM outlast_run WHERE id > :after ORDER BY id LIMIT :limit
)
SELECT judged.id, judged.is_old, judged.is_over AND NOT judged.is_held_back, judged.is_over AND judged.is_held_back,
    iif(judged.is_over AND NOT judged.is_held_back,
        (SELECT count(*) FROM (SELECT 1 FROM outlast_run_step AS step WHERE step.run = judged.id LIMIT :bound))
        + (SELECT count(*) FROM (SELECT 1 FROM outlast_step_failure AS failure WHERE failure.run = judged.id LIMIT :bound))
        + (SELECT count(*) FROM (SELECT 1 FROM outlast_operation AS operation WHERE operation.run = judged.id AND operation.run <> '' LIMIT :bound)), 0)
FROM judged ORDER BY judged.id;

-- Those of these runs that still may be pruned; the immediate transaction keeps them so. Primary key.
-- only here: SQLite has no statement that changes several tables; PostgreSQL tests in the statement that deletes.
-- name: find_prunable
SELECT run.id FROM json_each(:run_ids) CROSS JOIN outlast_run AS run
WHERE run.id = value AND run.finished_at <= :cutoff
AND (run.status IN ('succeeded', 'canceled') OR (:dead_letters AND run.status IN ('failed', 'dead')))
AND NOT EXISTS (
    SELECT 1 FROM outlast_operation AS operation WHERE operation.run = run.id AND operation.run <> '' AND operation.status IN ('attempting', 'unknown', 'asked')
);

-- Deletes what hangs on pruned runs, table by table, and the runs last. By what the primary and unique keys begin with.
-- only here: SQLite has no statement that changes several tables; PostgreSQL deletes all in one.
-- name: delete_bodies
DELETE FROM outlast_run_body WHERE run IN (SELECT value FROM json_each(:run_ids));

-- Records of pruned runs. Unique index of (run, generation, ...).
-- only here: SQLite has no statement that changes several tables; PostgreSQL deletes all in one.
-- name: delete_records
DELETE FROM outlast_run_step WHERE run IN (SELECT value FROM json_each(:run_ids));

-- Failed attempts of pruned runs. Primary key.
-- only here: SQLite has no statement that changes several tables; PostgreSQL deletes all in one.
-- name: delete_failures
DELETE FROM outlast_step_failure WHERE run IN (SELECT value FROM json_each(:run_ids));

-- Attempts of the operations whose key is a pruned run's. Index operation_run, unique key.
-- only here: SQLite has no statement that changes several tables; PostgreSQL deletes all in one.
-- name: delete_own_attempts
DELETE FROM outlast_operation_attempt
WHERE (effect, key) IN (
    SELECT own.effect, own.key FROM json_each(:run_ids) CROSS JOIN outlast_operation AS own
    WHERE own.run = value AND own.run <> '' AND substr(own.key, 1, length(own.run) + 1) = own.run || '/'
);

-- The operations themselves; those whose key the user gave stay for as long as keys are kept. Index: operation_run.
-- only here: SQLite has no statement that changes several tables; PostgreSQL deletes all in one.
-- name: delete_own_operations
DELETE FROM outlast_operation
WHERE run IN (SELECT value FROM json_each(:run_ids)) AND run <> '' AND substr(key, 1, length(run) + 1) = run || '/';

-- The runs themselves. Primary key.
-- name: delete_runs
DELETE FROM outlast_run WHERE id IN (SELECT value FROM json_each(:run_ids));

-- A page of keys in their order, and which may go: the run is over and pruned, and by its id was accepted before the cutoff.
-- Primary keys of run_key and run.
-- name: list_old_keys
SELECT page.kind, page.key, page.run,
    page.ended_status IS NOT NULL AND page.run < :before AND NOT EXISTS (SELECT 1 FROM outlast_run AS run WHERE run.id = page.run)
FROM (
    SELECT kind, key, run, ended_status FROM outlast_run_key WHERE (kind, key) > (:kind, :key) ORDER BY kind, key LIMIT :limit
) AS page
ORDER BY page.kind, page.key;

-- Deletes keys, unless they belong to another run by now. Primary key.
-- name: delete_keys
DELETE FROM outlast_run_key
WHERE (kind, key) IN (SELECT value ->> 'kind', value ->> 'key' FROM json_each(:batch))
AND +run IN (SELECT value ->> 'run' FROM json_each(:batch));
