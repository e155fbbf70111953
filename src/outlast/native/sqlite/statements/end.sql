-- The end of runs: these statements, and no others, make a run terminal. They run together, in this order.

-- Ends runs that are in the state and under the token that the caller names; one that is held also when it was canceled only if told to.
-- Of those that are over already only dead letters, which an operator discards.
-- Primary key; removes entries from the claim, timer, worker and deadline indexes.
-- only here: SQLite has no statement that changes several tables; PostgreSQL does this in one with the change of the run.
-- name: end_runs
UPDATE outlast_run
SET status = new.status, finished_at = :now, worker = NULL, due_at = NULL, attempts = coalesce(new.attempts, outlast_run.attempts)
FROM (
    SELECT value ->> 'run' AS run, value ->> 'token' AS token, value ->> 'is_held' AS is_held, value ->> 'status' AS status,
        value ->> 'attempts' AS attempts, value ->> 'passes_cancel' AS passes_cancel, value ->> 'is_over' AS is_over
    FROM json_each(:batch)
) AS new
WHERE outlast_run.id = new.run AND outlast_run.token = new.token
AND outlast_run.status IN ('pending', 'waiting', 'running', 'failed', 'dead') AND (outlast_run.status IN ('failed', 'dead')) = new.is_over
AND (outlast_run.status = 'running') = new.is_held
AND (outlast_run.cancel_requested_at IS NULL OR new.passes_cancel)
RETURNING id, token;

-- Keeps what ended runs returned or failed with. Primary key.
-- only here: SQLite has no statement that changes several tables; PostgreSQL does this in one with the change of the run.
-- name: keep_ends
UPDATE outlast_run_body
SET output = new.output, error = new.error, failed_path = new.failed_path, failed_name = new.failed_name, failed_number = new.failed_number,
    verdict = coalesce(new.verdict, outlast_run_body.verdict)
FROM (
    SELECT value ->> 'run' AS run, value ->> 'output' AS output, value ->> 'error' AS error, value ->> 'failed_path' AS failed_path,
        value ->> 'failed_name' AS failed_name, value ->> 'failed_number' AS failed_number, value ->> 'verdict' AS verdict
    FROM json_each(:batch)
) AS new
WHERE outlast_run_body.run = new.run;

-- Notes on their keys how runs ended, if the keys are still theirs. Primary keys.
-- only here: SQLite has no statement that changes several tables; PostgreSQL does this in one with the change of the run.
-- name: end_keys
UPDATE outlast_run_key SET ended_status = (SELECT run.status FROM outlast_run AS run WHERE run.id = outlast_run_key.run)
WHERE (kind, key) IN (
    SELECT run.kind, body.idempotency_key
    FROM json_each(:run_ids) CROSS JOIN outlast_run AS run CROSS JOIN outlast_run_body AS body
    WHERE run.id = value AND body.run = run.id AND body.idempotency_key IS NOT NULL
) AND +run IN (SELECT value FROM json_each(:run_ids));

-- Withdraws the waits of ended runs. Primary key.
-- only here: SQLite has no statement that changes several tables; PostgreSQL does this in one with the change of the run.
-- name: delete_waits
DELETE FROM outlast_wait WHERE run IN (SELECT value FROM json_each(:run_ids));

-- Removes what steps of ended runs reported. Primary key.
-- only here: SQLite has no statement that changes several tables; PostgreSQL does this in one with the change of the run.
-- name: delete_activity
DELETE FROM outlast_activity WHERE run IN (SELECT value FROM json_each(:run_ids));

-- Retires the failed attempts of a step. Primary key; the token was tested by the statement that changed the run.
-- only here: SQLite has no statement that changes several tables; PostgreSQL does this in one with the change of the run.
-- name: retire_failures
UPDATE outlast_step_failure SET is_retired = 1, retry_at = NULL
WHERE run = :run AND generation = :generation AND path = :path AND name = :name AND number = :number;

-- Moves a failed record among the failed attempts. Unique index of (run, generation, path, name, number).
-- name: retire_record
INSERT INTO outlast_step_failure (run, generation, path, name, number, attempt, token, started_at, failed_at, retry_at, is_retired, error)
SELECT step.run, step.generation, step.path, step.name, step.number,
    max(step.attempts, coalesce((
        SELECT max(failure.attempt) + 1 FROM outlast_step_failure AS failure
        WHERE failure.run = step.run AND failure.generation = step.generation AND failure.path = step.path AND failure.name = step.name
        AND failure.number = step.number
    ), 1)),
    step.token, coalesce(step.started_at, step.finished_at), step.finished_at, NULL, 1, step.error
FROM outlast_run_step AS step
WHERE step.run = :run AND step.generation = :generation AND step.path = :path AND step.name = :name AND step.number = :number AND step.outcome = 'error';

-- Takes the retired record out of the history; its seq says from where on later records are used only if asked for.
-- only here: SQLite has no statement that changes several tables; PostgreSQL does this in one with the change of the run.
-- name: delete_record
DELETE FROM outlast_run_step
WHERE run = :run AND generation = :generation AND path = :path AND name = :name AND number = :number AND outcome = 'error'
RETURNING seq;

-- Forgets what the body withdrew from after the retired record: the failure canceled it, and the retry asks for it anew.
-- Unique index of (run, generation, ...).
-- only here: SQLite has no statement that changes several tables; PostgreSQL does this in one with the change of the run.
-- name: delete_withdrawals
DELETE FROM outlast_run_step WHERE run = :run AND generation = :generation AND outcome = 'given_up' AND seq > :seq;

-- Keeps the lowest retired seq. Primary key.
-- only here: SQLite has no statement that changes several tables; PostgreSQL does this in one with the change of the run.
-- name: note_retired_seq
UPDATE outlast_run_body SET retired_seq = min(coalesce(retired_seq, :seq), :seq) WHERE run = :run;
