-- Claiming runs and reading what happened before in them. One immediate transaction writes at a time: no row is locked.

-- Whether a worker may act. Primary key.
-- name: fence
SELECT is_alive FROM outlast_worker WHERE id = :worker;

-- Which of these lanes may be claimed from: those of paused queues may not. Primary keys of lane and queue.
-- only here: SQLite has no lateral join with a limit, so lanes are probed one by one.
-- name: find_open_lanes
SELECT lane.id FROM json_each(:lanes) CROSS JOIN outlast_lane AS lane LEFT JOIN outlast_queue AS queue ON queue.name = lane.queue
WHERE lane.id = value AND queue.paused_at IS NULL;

-- What an idle worker asks. Indexes: claim, timer, deadline, whose condition is repeated word for word, and signal_undelivered.
-- name: look
SELECT
    EXISTS (
        SELECT 1
        FROM json_each(:lanes)
        CROSS JOIN outlast_lane AS lane
        LEFT JOIN outlast_queue AS queue ON queue.name = lane.queue
        WHERE lane.id = value AND queue.paused_at IS NULL
        AND EXISTS (SELECT 1 FROM outlast_run AS run WHERE run.lane = lane.id AND run.status = 'pending' AND run.due_at <= :now)
    ),
    (SELECT min(due_at) FROM outlast_run WHERE status = 'waiting' AND due_at IS NOT NULL),
    EXISTS (
        SELECT 1 FROM outlast_run
        WHERE deadline_at <= :now AND deadline_at IS NOT NULL AND (status = 'waiting' OR (status = 'pending' AND token = 0)) AND ending IS NULL
    ),
    EXISTS (SELECT 1 FROM outlast_signal INDEXED BY outlast_signal_undelivered WHERE is_delivered = 0);

-- Claimable runs of one lane in the order of the claim index, without sorting.
-- name: probe_lanes
SELECT id, lane, priority, due_at, losses >= :suspect_losses
FROM outlast_run
WHERE status = 'pending' AND lane = :lane AND due_at <= :now AND (:with_suspects OR losses < :suspect_losses)
ORDER BY priority, due_at, id
LIMIT :limit;

-- The few distinct priorities that claimable runs of a lane have: one step in the claim index for each.
-- only here: SQLite has no lateral join with a limit, so lanes are probed one by one.
-- name: list_priorities
WITH RECURSIVE found (priority) AS (
    SELECT min(priority) FROM outlast_run WHERE status = 'pending' AND lane = :lane
    UNION ALL
    SELECT (SELECT min(run.priority) FROM outlast_run AS run WHERE run.status = 'pending' AND run.lane = :lane AND run.priority > found.priority)
    FROM found WHERE found.priority IS NOT NULL
)
SELECT priority FROM found WHERE priority IS NOT NULL;

-- The oldest claimable runs of one lane and priority, in the order of the claim index.
-- only here: SQLite has no lateral join with a limit, so lanes are probed one by one.
-- name: probe_priority
SELECT id, lane, priority, due_at, losses >= :suspect_losses
FROM outlast_run
WHERE status = 'pending' AND lane = :lane AND priority = :priority AND due_at <= :now AND (:with_suspects OR losses < :suspect_losses)
ORDER BY due_at, id
LIMIT :limit;

-- Claims the first of these runs that are still claimable, tested here and now. Primary key; moves entries from the claim to the worker index.
-- name: claim_runs
UPDATE outlast_run
SET status = 'running', worker = :worker, token = token + 1, due_at = NULL, started_at = coalesce(started_at, :now), claimed_at = :now
WHERE id IN (
    SELECT run.id FROM json_each(:run_ids) CROSS JOIN outlast_run AS run
    WHERE run.id = value AND run.status = 'pending' AND run.due_at <= :now
    ORDER BY json_each.key LIMIT :limit
)
RETURNING id;

-- What a claim brings, in the order of the ids. Primary keys.
-- only here: SQLite has no statement that changes several tables; PostgreSQL does this in one with the change of the run.
-- name: list_claimed
SELECT run.id, run.token, run.lane, run.kind, run.version, run.generation, run.attempts, run.losses, body.seed, run.ending, body.input, body.headers,
    body.idempotency_key, run.deadline_at, run.started_at, run.claimed_at
FROM json_each(:run_ids) CROSS JOIN outlast_run AS run CROSS JOIN outlast_run_body AS body
WHERE run.id = value AND body.run = run.id AND run.status = 'running' AND run.worker = :worker
ORDER BY json_each.key;

-- What a worker holds. Index: worker.
-- name: list_held
SELECT id FROM outlast_run WHERE status = 'running' AND worker = :worker ORDER BY id;

-- The claimed runs that are still held under the same token. Primary keys.
-- name: read_holds
SELECT run.id, run.token, run.generation, run.cancel_requested_at IS NOT NULL, body.cancel_reason, run.deadline_at <= :now, body.retired_seq
FROM json_each(:holds) CROSS JOIN outlast_run AS run CROSS JOIN outlast_run_body AS body
WHERE run.id = value ->> 'run' AND run.token = value ->> 'token' AND run.status = 'running' AND body.run = run.id;

-- Final records of runs and generations by seq. Index: unique (run, generation, ...).
-- name: read_records
SELECT step.run, step.path, step.name, step.number, step.seq, step.kind, step.outcome, step.digest, step.attempts, step.finished_at, step.result, step.error,
    step.started_at
FROM json_each(:runs) CROSS JOIN outlast_run_step AS step
WHERE step.run = value ->> 'run' AND step.generation = value ->> 'generation'
ORDER BY step.run, step.seq;

-- Failed attempts, oldest first. Primary key.
-- name: read_failures
SELECT failure.run, failure.path, failure.name, failure.number, failure.attempt, failure.error, failure.started_at, failure.failed_at, failure.retry_at,
    failure.is_retired
FROM json_each(:runs) CROSS JOIN outlast_step_failure AS failure
WHERE failure.run = value ->> 'run' AND failure.generation = value ->> 'generation'
ORDER BY failure.run, failure.path, failure.name, failure.number, failure.attempt;

-- Open waits. Primary key.
-- name: read_waits
SELECT wait.run, wait.path, wait.name, wait.number, wait.kind, wait.due_at, wait.topic, wait.after
FROM json_each(:runs) CROSS JOIN outlast_wait AS wait
WHERE wait.run = value ->> 'run' AND wait.generation = value ->> 'generation'
ORDER BY wait.run, wait.due_at, wait.path, wait.name, wait.number;

-- What long steps without a record last said. Primary key.
-- name: read_progress
SELECT activity.run, activity.path, activity.name, activity.number, activity.attempt, activity.started_at, activity.done, activity.total, activity.note
FROM json_each(:runs) CROSS JOIN outlast_activity AS activity
WHERE activity.run = value ->> 'run' AND activity.generation = value ->> 'generation'
ORDER BY activity.run, activity.path, activity.name, activity.number;
