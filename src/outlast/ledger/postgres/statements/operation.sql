-- What effects were planned, attempted and done. Every change tests owner and attempt in its own statement; each is served by
-- the primary keys, but for what belongs to a run.

-- Plan an operation unless it is there; of two callers at once the second waits for the first, and does nothing.
-- name: insert_operation
INSERT INTO outlast.operation (effect, key, status, run, generation, step, token, worker, planned_at, changed_at, digest, arguments)
SELECT %(effect)s, %(key)s, 'planned', %(run)s, %(generation)s::bigint, %(step)s, %(token)s::bigint, %(worker)s::bigint, clock.now, clock.now,
    %(digest)s, %(arguments)s::json
FROM (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now) AS clock
ON CONFLICT DO NOTHING

-- An operation, its row held until the transaction ends. Its attempt is read by a later statement, for one that waited for the
-- row would still see the attempts of before.
-- only here: on SQLite the immediate transaction has it locked, and find_operation reads it.
-- name: lock_operation
SELECT o.effect, o.key, o.status, o.arguments, o.digest, o.run, o.generation, o.step, o.token, o.worker, o.attempt, o.result, o.error, o.reconciles,
    o.decision, o.planned_at, o.changed_at
FROM outlast.operation o WHERE o.effect = %(effect)s AND o.key = %(key)s
FOR NO KEY UPDATE

-- The current attempt of an operation, and what time it is.
-- only here: on SQLite find_operation reads the attempt beside its operation.
-- name: find_attempt
SELECT clock.now, a.number, a.token, a.run, a.run_token, a.worker, a.started_at, a.timeout, a.settle, a.lease_until, a.outcome, a.ended_at, a.error, a.late,
    a.lingers
FROM (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now) AS clock
LEFT JOIN (
    outlast.operation o JOIN outlast.operation_attempt a ON a.effect = o.effect AND a.key = o.key AND a.number = o.attempt
) ON o.effect = %(effect)s AND o.key = %(key)s

-- An operation with its current attempt, and what time it is; nothing is held.
-- name: find_operation
SELECT o.effect, o.key, o.status, o.arguments, o.digest, o.run, o.generation, o.step, o.token, o.worker, o.attempt, o.result, o.error, o.reconciles,
    o.decision, o.planned_at, o.changed_at, coalesce(%(now)s::timestamptz, clock_timestamp()),
    a.number, a.token, a.run, a.run_token, a.worker, a.started_at, a.timeout, a.settle, a.lease_until, a.outcome, a.ended_at, a.error, a.late,
    a.lingers
FROM outlast.operation o
LEFT JOIN outlast.operation_attempt a ON a.effect = o.effect AND a.key = o.key AND a.number = o.attempt
WHERE o.effect = %(effect)s AND o.key = %(key)s

-- The operations that a run owns, as they were planned, each with its current attempt: operation_run.
-- name: list_operations
SELECT o.effect, o.key, o.status, o.arguments, o.digest, o.run, o.generation, o.step, o.token, o.worker, o.attempt, o.result, o.error, o.reconciles,
    o.decision, o.planned_at, o.changed_at, coalesce(%(now)s::timestamptz, clock_timestamp()),
    a.number, a.token, a.run, a.run_token, a.worker, a.started_at, a.timeout, a.settle, a.lease_until, a.outcome, a.ended_at, a.error, a.late,
    a.lingers
FROM outlast.operation o
LEFT JOIN outlast.operation_attempt a ON a.effect = o.effect AND a.key = o.key AND a.number = o.attempt
WHERE o.run = %(run)s AND o.run <> ''
ORDER BY o.planned_at, o.effect, o.key

-- Every attempt of these operations, by number.
-- name: list_attempts
SELECT a.effect, a.key, a.number, a.token, a.run, a.run_token, a.worker, a.started_at, a.timeout, a.settle, a.lease_until, a.outcome, a.ended_at, a.error,
    a.late, a.lingers
FROM json_to_recordset(%(names)s::json) AS b(effect text, key text)
JOIN outlast.operation_attempt a ON a.effect = b.effect AND a.key = b.key
ORDER BY a.effect, a.key, a.number

-- Another claim acts for it from now on; who calls this has the row locked. Writes an entry of operation_run.
-- name: own_operation
UPDATE outlast.operation
SET run = %(run)s, generation = %(generation)s::bigint, step = %(step)s, token = %(token)s::bigint, worker = %(worker)s::bigint
WHERE effect = %(effect)s AND key = %(key)s

-- Begin the next attempt. The token is taken when the row is locked, so that it grows with the attempts.
-- name: begin_attempt
WITH begun AS (
    UPDATE outlast.operation o
    SET status = 'attempting', attempt = o.attempt + 1, reconciles = 0, decision = NULL, changed_at = clock.now
    FROM (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now) AS clock
    WHERE o.effect = %(effect)s AND o.key = %(key)s AND o.status = ANY (%(found)s::text[]) AND o.attempt = %(attempt)s::bigint
        AND o.run = %(run)s AND o.generation = %(generation)s::bigint AND o.step = %(step)s AND o.token = %(token)s::bigint
    RETURNING o.effect, o.key, o.attempt, o.run, o.token, clock.now
)
INSERT INTO outlast.operation_attempt (effect, key, number, token, run, run_token, worker, started_at, timeout, settle, lease_until)
SELECT effect, key, attempt, nextval('outlast.attempt_token'), run, token, %(worker)s::bigint, now, %(timeout)s::bigint, %(settle)s::bigint,
    now + %(lease)s::interval
FROM begun
RETURNING number, token, run, run_token, worker, started_at, timeout, settle, lease_until, outcome, ended_at, error, late, lingers

-- Change an operation, and keep what that says of its current attempt: the last word on how it ended, and the first error.
-- name: change_operation
WITH changed AS (
    UPDATE outlast.operation o
    SET status = %(status)s, reconciles = 0, decision = %(decision)s, changed_at = clock.now, result = coalesce(o.result, %(result)s::json),
        error = CASE WHEN %(status)s = 'done' THEN NULL ELSE coalesce(%(error)s::json, o.error) END
    FROM (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now) AS clock
    WHERE o.effect = %(effect)s AND o.key = %(key)s AND o.status = ANY (%(found)s::text[]) AND o.attempt = %(attempt)s::bigint
        AND o.run = %(run)s AND o.generation = %(generation)s::bigint AND o.step = %(step)s AND o.token = %(token)s::bigint
    RETURNING o.effect, o.key, o.attempt, clock.now
),
ended AS (
    UPDATE outlast.operation_attempt a
    SET outcome = %(outcome)s, ended_at = coalesce(a.ended_at, c.now), error = coalesce(a.error, %(error)s::json)
    FROM changed c
    WHERE a.effect = c.effect AND a.key = c.key AND a.number = c.attempt AND %(outcome)s::text IS NOT NULL
)
SELECT FROM changed

-- One more failure in a row of the reconciler.
-- name: count_reconcile
UPDATE outlast.operation SET reconciles = reconciles + 1
WHERE effect = %(effect)s AND key = %(key)s AND status IN ('attempting', 'unknown') AND attempt = %(attempt)s::bigint
    AND run = %(run)s AND generation = %(generation)s::bigint AND step = %(step)s AND token = %(token)s::bigint

-- What an attempt came with when it was not wanted any more; the first one stays.
-- name: record_late
UPDATE outlast.operation_attempt SET late = coalesce(late, %(late)s::json)
WHERE effect = %(effect)s AND key = %(key)s AND number = %(attempt)s::bigint AND token = %(token)s::bigint

-- Whether a thread of an attempt goes on, though nobody waits for it. Whoever owns the operation by now: the thread knows only its attempt.
-- name: mark_lingering
UPDATE outlast.operation_attempt SET lingers = %(lingers)s::boolean
WHERE effect = %(effect)s AND key = %(key)s AND number = %(attempt)s::bigint AND token = %(token)s::bigint

-- Set the lease of the current attempt anew. The operation's row is locked, as by who takes it away.
-- name: renew_attempt
WITH held AS MATERIALIZED (
    SELECT o.effect, o.key, o.attempt FROM outlast.operation o
    WHERE o.effect = %(effect)s AND o.key = %(key)s AND o.status IN ('attempting', 'unknown') AND o.attempt = %(attempt)s::bigint
        AND o.run = %(run)s AND o.generation = %(generation)s::bigint AND o.step = %(step)s AND o.token = %(token)s::bigint
    FOR NO KEY UPDATE
)
UPDATE outlast.operation_attempt a
SET lease_until = coalesce(%(now)s::timestamptz, clock_timestamp()) + %(lease)s::interval
FROM held h WHERE a.effect = h.effect AND a.key = h.key AND a.number = h.attempt

-- A page of all operations in their order, and which may go: they ended before the cutoff, or are known not to have been done, and nobody
-- acts for them: their run is not there any more, so that no retry of it asks for them, and without a run no lease goes on. Primary keys;
-- what is counted cannot be planned as one look through all runs.
-- name: list_old_operations
WITH page AS MATERIALIZED (
    SELECT o.effect, o.key, o.status, o.changed_at, o.run, o.attempt FROM outlast.operation o
    WHERE (o.effect, o.key) > (%(effect)s, %(key)s) ORDER BY o.effect, o.key LIMIT %(limit)s::bigint
)
SELECT p.effect, p.key,
    p.status IN ('done', 'failed', 'planned') AND p.changed_at <= coalesce(%(now)s::timestamptz, clock_timestamp()) - %(older_than)s::interval
    AND (
        SELECT count(*) FROM outlast.run r
        WHERE r.id = CASE WHEN p.run ~ '^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$' THEN p.run::uuid END
    ) = 0
    AND (
        SELECT count(*) FROM outlast.operation_attempt a
        WHERE a.effect = p.effect AND a.key = p.key AND a.number = p.attempt AND p.status = 'planned'
            AND a.lease_until > coalesce(%(now)s::timestamptz, clock_timestamp())
    ) = 0
FROM page p ORDER BY p.effect, p.key

-- Delete operations that still may go, with their attempts, unless somebody has them locked.
-- name: delete_operations
WITH gone AS MATERIALIZED (
    SELECT found.effect, found.key
    FROM json_to_recordset(%(names)s::json) AS b(effect text, key text)
    CROSS JOIN LATERAL (
        SELECT o.effect, o.key FROM outlast.operation o
        WHERE o.effect = b.effect AND o.key = b.key AND o.status IN ('done', 'failed', 'planned')
            AND o.changed_at <= coalesce(%(now)s::timestamptz, clock_timestamp()) - %(older_than)s::interval
        FOR UPDATE SKIP LOCKED
    ) AS found
),
attempts AS (DELETE FROM outlast.operation_attempt a USING gone g WHERE a.effect = g.effect AND a.key = g.key)
DELETE FROM outlast.operation o USING gone g WHERE o.effect = g.effect AND o.key = g.key
