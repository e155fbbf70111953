-- What people and waiting callers ask. Everything is read in one short transaction and fetched completely.

-- Runs with all that is shown of them. Primary keys.
-- name: find_run
SELECT run.id, run.kind, run.version, lane.queue, run.status, run.generation, run.priority, run.attempts, run.recoveries, run.strikes,
    run.created_at, run.started_at, run.finished_at, run.due_at, run.deadline_at, body.idempotency_key, worker.name,
    body.input, body.output, body.error, body.cancel_reason, body.verdict, body.warnings, body.tags, body.headers, queue.paused_at IS NOT NULL,
    run.lane, run.losses, worker.is_alive, worker.lease_until < :now, run.due_at <= :now
FROM json_each(:run_ids)
CROSS JOIN outlast_run AS run
CROSS JOIN outlast_run_body AS body
CROSS JOIN outlast_lane AS lane
LEFT JOIN outlast_worker AS worker ON worker.id = run.worker
LEFT JOIN outlast_queue AS queue ON queue.name = lane.queue
WHERE run.id = value AND body.run = run.id AND lane.id = run.lane
ORDER BY json_each.key;

-- How many claimable runs of its lane come before one, counted up to a bound. Index: claim, up to its place.
-- name: count_ahead
SELECT count(*) FROM (
    SELECT 1 FROM outlast_run
    WHERE status = 'pending' AND lane = :lane AND (priority, due_at, id) < (:priority, :due_at, :run)
    LIMIT :bound
);

-- A page of ids, newest first. Primary key, walked backwards.
-- name: list_run_ids
SELECT run.id FROM outlast_run AS run
WHERE (:before IS NULL OR run.id < :before) AND (:status IS NULL OR run.status = :status) AND (:kind IS NULL OR run.kind = :kind)
AND (:queue IS NULL OR run.lane IN (SELECT id FROM outlast_lane WHERE queue = :queue))
ORDER BY run.id DESC LIMIT :limit;

-- The same of claimable runs, from the claim index: they may be few beside millions that are over.
-- only here: SQLite plans before it knows the parameters, so that each index has a statement of its own.
-- name: list_pending_ids
SELECT run.id FROM outlast_run AS run
WHERE run.status = 'pending' AND run.status = :status AND (:before IS NULL OR run.id < :before) AND (:kind IS NULL OR run.kind = :kind)
AND run.lane IN (SELECT id FROM outlast_lane WHERE :queue IS NULL OR queue = :queue)
ORDER BY run.id DESC LIMIT :limit;

-- The same of held runs, from the worker index.
-- only here: SQLite plans before it knows the parameters, so that each index has a statement of its own.
-- name: list_running_ids
SELECT run.id FROM outlast_run AS run INDEXED BY outlast_run_worker
WHERE run.status = 'running' AND run.status = :status AND (:before IS NULL OR run.id < :before) AND (:kind IS NULL OR run.kind = :kind)
AND (:queue IS NULL OR run.lane IN (SELECT id FROM outlast_lane WHERE queue = :queue))
ORDER BY run.id DESC LIMIT :limit;

-- The same of failed and dead runs, from the attention index.
-- only here: SQLite plans before it knows the parameters, so that each index has a statement of its own.
-- name: list_dead_letter_ids
SELECT run.id FROM outlast_run AS run INDEXED BY outlast_run_attention
WHERE run.status IN ('failed', 'dead') AND run.status = :status AND (:before IS NULL OR run.id < :before) AND (:kind IS NULL OR run.kind = :kind)
AND (:queue IS NULL OR run.lane IN (SELECT id FROM outlast_lane WHERE queue = :queue))
ORDER BY run.id DESC LIMIT :limit;

-- A page of failed and dead runs, those that ended last first. Index: run_ended_badly, walked backwards from where the page before ended.
-- name: list_attention_ids
SELECT run.id FROM outlast_run AS run INDEXED BY outlast_run_ended_badly
WHERE run.status IN ('failed', 'dead') AND (run.finished_at, run.id) < (:at, :before)
ORDER BY run.finished_at DESC, run.id DESC LIMIT :limit;

-- Keys with failed attempts or reports that have a record by now: they are not open any more. Primary keys, unique index of records.
-- name: list_recovered_keys
SELECT step.run, step.path, step.name, step.number
FROM json_each(:runs) CROSS JOIN outlast_step_failure AS failure CROSS JOIN outlast_run_step AS step
WHERE failure.run = value ->> 'run' AND failure.generation = value ->> 'generation'
AND step.run = failure.run AND step.generation = failure.generation AND step.path = failure.path AND step.name = failure.name
AND step.number = failure.number
UNION
SELECT step.run, step.path, step.name, step.number
FROM json_each(:runs) CROSS JOIN outlast_activity AS activity CROSS JOIN outlast_run_step AS step
WHERE activity.run = value ->> 'run' AND activity.generation = value ->> 'generation'
AND step.run = activity.run AND step.generation = activity.generation AND step.path = activity.path AND step.name = activity.name
AND step.number = activity.number;

-- Primary key (kind, key).
-- name: find_key
SELECT run, ended_status FROM outlast_run_key WHERE kind = :kind AND key = :key;

-- Those that are not over. Primary key.
-- name: find_going
SELECT run.id FROM json_each(:run_ids) CROSS JOIN outlast_run AS run WHERE run.id = value AND run.finished_at IS NULL;

-- The generation that a run is in. Primary key.
-- only here: PostgreSQL reads it in the statement itself.
-- name: find_generation
SELECT generation FROM outlast_run WHERE id = :run;
