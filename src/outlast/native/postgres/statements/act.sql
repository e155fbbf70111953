-- What an operator or a caller does to one run, by primary key.

-- Lock a run before something is decided about it: whoever completes or claims it meanwhile waits, or made us wait.
-- name: lock_run
SELECT r.status, r.token, r.lane, r.worker, r.ending, r.cancel_requested_at IS NOT NULL, b.idempotency_key, b.failed_path, b.failed_name, b.failed_number
FROM outlast.run r JOIN outlast.run_body b ON b.run = r.id
WHERE r.id = %(run)s::uuid
FOR NO KEY UPDATE OF r

-- Accept a cancel. The caller has the run locked.
-- name: mark_canceled
WITH marked AS (
    UPDATE outlast.run SET cancel_requested_at = coalesce(%(now)s::timestamptz, clock_timestamp()) WHERE id = %(run)s::uuid
)
UPDATE outlast.run_body SET cancel_reason = %(reason)s WHERE run = %(run)s::uuid

-- Begin again what was over: the counters that ended it start anew. The caller has the run locked.
-- name: revive_run
WITH clock AS MATERIALIZED (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now),
revived AS (
    UPDATE outlast.run r
    SET status = 'pending', due_at = clock.now, finished_at = NULL, cancel_requested_at = NULL, ending = NULL, attempts = 0, recoveries = 0, losses = 0,
        strikes = 0, loss_mark = 0, deadline_at = CASE WHEN r.deadline_at > clock.now THEN r.deadline_at END
    FROM clock WHERE r.id = %(run)s::uuid
    RETURNING r.id, r.kind
),
body AS (
    UPDATE outlast.run_body b
    SET output = NULL, error = NULL, failed_path = NULL, failed_name = NULL, failed_number = NULL, cancel_reason = NULL, verdict = NULL
    FROM revived WHERE b.run = revived.id
    RETURNING b.run, b.idempotency_key
)
UPDATE outlast.run_key k SET ended_status = NULL
FROM revived, body WHERE k.kind = revived.kind AND k.key = body.idempotency_key AND k.run = revived.id

-- The record of the step whose failure ended a run, by step's primary key. The caller has the run locked.
-- name: find_failed_record
SELECT s.seq, s.kind, s.digest, s.attempts, s.started_at, r.generation
FROM outlast.run r JOIN outlast.step s ON s.run = r.id AND s.generation = r.generation
WHERE r.id = %(run)s::uuid AND s.path = %(path)s AND s.name = %(name)s AND s.number = %(number)s::bigint AND s.outcome = 'error'

-- Record what a person gave in place of an error that was just retired: under the last token of the run, which the caller has locked.
-- name: insert_resumed
INSERT INTO outlast.step (run, generation, path, name, number, seq, kind, outcome, digest, attempts, token, started_at, finished_at, result)
SELECT r.id, r.generation, %(path)s, %(name)s, %(number)s::bigint, %(seq)s::bigint, %(kind)s, 'resumed', %(digest)s, %(attempts)s::bigint, r.token,
    %(started_at)s::timestamptz, coalesce(%(now)s::timestamptz, clock_timestamp()), %(result)s::json
FROM outlast.run r WHERE r.id = %(run)s::uuid

-- Keep the reason of what an operator ends. The caller has the run locked.
-- name: keep_cancel_reason
UPDATE outlast.run_body SET cancel_reason = %(reason)s WHERE run = %(run)s::uuid

-- Keep who did what, and why.
-- name: insert_action
INSERT INTO outlast.action (at, actor, action, run, queue, affected, reason)
VALUES (coalesce(%(now)s::timestamptz, clock_timestamp()), %(actor)s, %(action)s, %(run)s::uuid, %(queue)s, %(affected)s::bigint, %(reason)s)
RETURNING id

-- Count more of what an action was done to. Primary key.
-- name: add_to_action
UPDATE outlast.action SET affected = coalesce(affected, 0) + %(affected)s::bigint WHERE id = %(action)s::bigint
