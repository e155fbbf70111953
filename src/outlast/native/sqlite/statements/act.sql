-- What a caller or an operator does to a run that somebody else may hold: no token, because the decision is not the holder's.

-- The state of a run; the immediate transaction keeps it as it is. Primary key.
-- name: lock_run
SELECT status, worker, token, ending, cancel_requested_at IS NOT NULL, generation, lane FROM outlast_run WHERE id = :run;

-- Marks a run as canceled; one that nobody holds becomes claimable at once, so that a worker ends it. Primary key.
-- name: mark_canceled
UPDATE outlast_run SET cancel_requested_at = :now, status = iif(status = 'waiting', 'pending', status), due_at = iif(status = 'running', NULL, :now)
WHERE id = :run AND status IN ('pending', 'waiting', 'running') AND cancel_requested_at IS NULL;

-- Keeps the reason of a cancel, or of what an operator ends. Primary key.
-- name: keep_cancel_reason
UPDATE outlast_run_body SET cancel_reason = :reason WHERE run = :run;

-- The step whose failure ended a run. Primary key.
-- only here: SQLite has no statement that changes several tables; PostgreSQL does this in one with the change of the run.
-- name: find_failed_key
SELECT failed_path, failed_name, failed_number FROM outlast_run_body WHERE run = :run AND failed_name IS NOT NULL;

-- The record of the step whose failure ended a run. Unique index of (run, generation, ...).
-- name: find_failed_record
SELECT step.seq, step.kind, step.digest, step.attempts, step.started_at, run.generation
FROM outlast_run AS run CROSS JOIN outlast_run_step AS step
WHERE run.id = :run AND step.run = run.id AND step.generation = run.generation AND step.path = :path AND step.name = :name AND step.number = :number
AND step.outcome = 'error';

-- Records what a person gave in place of an error that was just retired, under the last token of the run. Primary key.
-- name: insert_resumed
INSERT INTO outlast_run_step (run, generation, path, name, number, seq, kind, outcome, digest, attempts, token, started_at, finished_at, result)
SELECT run.id, run.generation, :path, :name, :number, :seq, :kind, 'resumed', :digest, :attempts, run.token, :started_at, :now, :result
FROM outlast_run AS run WHERE run.id = :run;

-- Makes an ended run claimable with fresh counters; a deadline that has passed is lifted, or it would end the run again. Primary key.
-- name: revive_run
UPDATE outlast_run
SET status = 'pending', due_at = :now, finished_at = NULL, ending = NULL, cancel_requested_at = NULL, attempts = 0, recoveries = 0, losses = 0, strikes = 0,
    loss_mark = 0, reports = 0, deadline_at = iif(deadline_at <= :now, NULL, deadline_at)
WHERE id = :run AND status IN ('failed', 'dead', 'canceled');

-- Forgets what a run ended with. Primary key.
-- only here: SQLite has no statement that changes several tables; PostgreSQL does this in one with the change of the run.
-- name: clear_end
UPDATE outlast_run_body
SET output = NULL, error = NULL, failed_path = NULL, failed_name = NULL, failed_number = NULL, cancel_reason = NULL, verdict = NULL
WHERE run = :run;

-- Notes on its key that a run goes on, if the key is still its own. Primary keys.
-- only here: SQLite has no statement that changes several tables; PostgreSQL does this in one with the change of the run.
-- name: reopen_key
UPDATE outlast_run_key SET ended_status = NULL
WHERE run = :run AND (kind, key) IN (
    SELECT run.kind, body.idempotency_key FROM outlast_run AS run CROSS JOIN outlast_run_body AS body
    WHERE run.id = :run AND body.run = run.id AND body.idempotency_key IS NOT NULL
);

-- Keeps who did what, and why.
-- name: insert_action
INSERT INTO outlast_action (at, actor, action, run, queue, affected, reason) VALUES (:now, :actor, :action, :run, :queue, :affected, :reason)
RETURNING id;

-- Counts more of what an action was done to. Primary key.
-- name: add_to_action
UPDATE outlast_action SET affected = coalesce(affected, 0) + :affected WHERE id = :action;
