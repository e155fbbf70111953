-- What effects were planned, attempted and done. Every change tests owner and attempt in its own statement; each is served by
-- the unique keys, but for what belongs to a run. The immediate transaction locks everything.

-- Plans an operation unless it is there.
-- name: insert_operation
INSERT INTO outlast_operation (effect, key, status, run, generation, step, token, worker, planned_at, changed_at, digest, arguments)
VALUES (:effect, :key, 'planned', :run, :generation, :step, :token, :worker, :now, :now, :digest, :arguments)
ON CONFLICT (effect, key) DO NOTHING;

-- An operation with its current attempt. Under the immediate transaction nobody else changes it.
-- name: find_operation
SELECT o.effect, o.key, o.status, o.arguments, o.digest, o.run, o.generation, o.step, o.token, o.worker, o.attempt, o.result, o.error, o.reconciles,
    o.decision, o.planned_at, o.changed_at,
    a.number, a.token, a.run, a.run_token, a.worker, a.started_at, a.timeout, a.settle, a.lease_until, a.outcome, a.ended_at, a.error, a.late,
    a.lingers
FROM outlast_operation AS o
LEFT JOIN outlast_operation_attempt AS a ON a.effect = o.effect AND a.key = o.key AND a.number = o.attempt
WHERE o.effect = :effect AND o.key = :key;

-- The operations that a run owns, as they were planned, each with its current attempt. Index: operation_run.
-- name: list_operations
SELECT o.effect, o.key, o.status, o.arguments, o.digest, o.run, o.generation, o.step, o.token, o.worker, o.attempt, o.result, o.error, o.reconciles,
    o.decision, o.planned_at, o.changed_at,
    a.number, a.token, a.run, a.run_token, a.worker, a.started_at, a.timeout, a.settle, a.lease_until, a.outcome, a.ended_at, a.error, a.late,
    a.lingers
FROM outlast_operation AS o
LEFT JOIN outlast_operation_attempt AS a ON a.effect = o.effect AND a.key = o.key AND a.number = o.attempt
WHERE o.run = :run AND o.run <> ''
ORDER BY o.planned_at, o.effect, o.key;

-- Every attempt of these operations, by number.
-- name: list_attempts
SELECT a.effect, a.key, a.number, a.token, a.run, a.run_token, a.worker, a.started_at, a.timeout, a.settle, a.lease_until, a.outcome, a.ended_at,
    a.error, a.late, a.lingers
FROM json_each(:names) CROSS JOIN outlast_operation_attempt AS a
WHERE a.effect = value ->> 'effect' AND a.key = value ->> 'key'
ORDER BY a.effect, a.key, a.number;

-- Another claim acts for it from now on. Writes an entry of the index operation_run.
-- name: own_operation
UPDATE outlast_operation SET run = :run, generation = :generation, step = :step, token = :token, worker = :worker
WHERE effect = :effect AND key = :key;

-- Begins the next attempt, as far as the operation is concerned.
-- name: begin_attempt
UPDATE outlast_operation SET status = 'attempting', attempt = attempt + 1, reconciles = 0, decision = NULL, changed_at = :now
WHERE effect = :effect AND key = :key AND attempt = :attempt AND run = :run AND generation = :generation AND step = :step AND token = :token
AND status IN (SELECT value FROM json_each(:found))
RETURNING attempt;

-- The next number that is handed outside with an attempt. One row.
-- only here: SQLite has no sequences; PostgreSQL takes it from one in the statement that begins the attempt.
-- name: take_token
UPDATE outlast_attempt_token SET last = last + 1 WHERE only = 1 RETURNING last;

-- Keeps the attempt that begins.
-- only here: SQLite has no statement that changes several tables; PostgreSQL does this in one with the change of the operation.
-- name: insert_attempt
INSERT INTO outlast_operation_attempt (effect, key, number, token, run, run_token, worker, started_at, timeout, settle, lease_until)
VALUES (:effect, :key, :number, :attempt_token, :run, :token, :worker, :now, :timeout, :settle, :now + :lease)
RETURNING number, token, run, run_token, worker, started_at, timeout, settle, lease_until, outcome, ended_at, error, late, lingers;

-- Changes an operation.
-- name: change_operation
UPDATE outlast_operation
SET status = :status, reconciles = 0, decision = :decision, changed_at = :now, result = coalesce(result, :result),
    error = iif(:status = 'done', NULL, coalesce(:error, error))
WHERE effect = :effect AND key = :key AND attempt = :attempt AND run = :run AND generation = :generation AND step = :step AND token = :token
AND status IN (SELECT value FROM json_each(:found));

-- Keeps what a change says of the current attempt: the last word on how it ended, and the first error.
-- only here: SQLite has no statement that changes several tables; PostgreSQL does this in one with the change of the operation.
-- name: end_attempt
UPDATE outlast_operation_attempt SET outcome = :outcome, ended_at = coalesce(ended_at, :now), error = coalesce(error, :error)
WHERE effect = :effect AND key = :key AND number = :attempt;

-- One more failure in a row of the reconciler.
-- name: count_reconcile
UPDATE outlast_operation SET reconciles = reconciles + 1
WHERE effect = :effect AND key = :key AND attempt = :attempt AND run = :run AND generation = :generation AND step = :step AND token = :token
AND status IN ('attempting', 'unknown');

-- What an attempt came with when it was not wanted any more; the first one stays.
-- name: record_late
UPDATE outlast_operation_attempt SET late = coalesce(late, :late)
WHERE effect = :effect AND key = :key AND number = :attempt AND token = :token;

-- Whether a thread of an attempt goes on, though nobody waits for it. Whoever owns the operation by now: the thread knows only its attempt.
-- name: mark_lingering
UPDATE outlast_operation_attempt SET lingers = :lingers
WHERE effect = :effect AND key = :key AND number = :attempt AND token = :token;

-- Sets the lease of the current attempt anew.
-- name: renew_attempt
UPDATE outlast_operation_attempt SET lease_until = :now + :lease
WHERE (effect, key, number) IN (
    SELECT effect, key, attempt FROM outlast_operation
    WHERE effect = :effect AND key = :key AND attempt = :attempt AND run = :run AND generation = :generation AND step = :step AND token = :token
    AND status IN ('attempting', 'unknown')
);

-- A page of all operations in their order, and which may go: they ended before the cutoff, or are known not to have been done, and nobody
-- acts for them: their run is not there any more, so that no retry of it asks for them, and without a run no lease goes on. Unique keys,
-- primary key of run.
-- name: list_old_operations
SELECT page.effect, page.key,
    page.status IN ('done', 'failed', 'planned') AND page.changed_at <= :cutoff
    AND NOT EXISTS (SELECT 1 FROM outlast_run AS run WHERE run.id = page.run)
    AND NOT EXISTS (
        SELECT 1 FROM outlast_operation_attempt AS a
        WHERE a.effect = page.effect AND a.key = page.key AND a.number = page.attempt AND page.status = 'planned' AND a.lease_until > :now
    )
FROM (
    SELECT effect, key, status, changed_at, run, attempt FROM outlast_operation
    WHERE (effect, key) > (:effect, :key) ORDER BY effect, key LIMIT :limit
) AS page
ORDER BY page.effect, page.key;

-- Deletes the attempts of operations that may go.
-- only here: SQLite has no statement that changes several tables; PostgreSQL deletes them in one with their operations.
-- name: delete_attempts
DELETE FROM outlast_operation_attempt
WHERE (effect, key) IN (SELECT value ->> 'effect', value ->> 'key' FROM json_each(:names));

-- Deletes operations that may go; the immediate transaction keeps them as they were seen.
-- name: delete_operations
DELETE FROM outlast_operation
WHERE (effect, key) IN (SELECT value ->> 'effect', value ->> 'key' FROM json_each(:names));
