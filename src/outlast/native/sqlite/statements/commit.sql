-- What the holder of runs writes. Each statement names the token, and what a stale one asks for changes nothing.

-- Keeps records of runs that are still held. A key that has one already fails, and with it the whole transaction.
-- Primary key of run, unique index of (run, generation, path, name, number).
-- name: insert_records
INSERT INTO outlast_run_step (run, generation, path, name, number, seq, kind, outcome, digest, attempts, token, started_at, finished_at, error, result)
SELECT run.id, run.generation, value ->> 'path', value ->> 'name', value ->> 'number', value ->> 'seq', value ->> 'kind', value ->> 'outcome',
    value ->> 'digest', value ->> 'attempts', run.token, value ->> 'started_at', value ->> 'finished_at', value ->> 'error', value ->> 'result'
FROM json_each(:batch) CROSS JOIN outlast_run AS run
WHERE run.id = value ->> 'run' AND run.token = value ->> 'token' AND run.generation = value ->> 'generation' AND run.status = 'running';

-- The run of a transactional step, in the application's immediate transaction: no row unless the claim is current. Primary key.
-- name: hold_run
SELECT id FROM outlast_run WHERE id = :run AND token = :token AND generation = :generation AND status = 'running';

-- Withdraws the waits whose records a group holds, if those were kept. Primary key; the token is tested by way of the record.
-- only here: SQLite has no statement that changes several tables; PostgreSQL does this in one, close_calls.
-- name: delete_ended_waits
DELETE FROM outlast_wait
WHERE (run, generation, path, name, number) IN (
    SELECT step.run, step.generation, step.path, step.name, step.number
    FROM json_each(:batch) CROSS JOIN outlast_run_step AS step
    WHERE step.run = value ->> 'run' AND step.generation = value ->> 'generation' AND step.path = value ->> 'path' AND step.name = value ->> 'name'
    AND step.number = value ->> 'number' AND step.token = value ->> 'token'
);

-- Whether any long step has reported anything at all. First entry of the primary key.
-- only here: it spares a search for each record where nothing long has ever run.
-- name: has_activity
SELECT EXISTS (SELECT 1 FROM outlast_activity);

-- Removes what the steps whose records a group holds reported. Primary key; the token is tested by way of the record.
-- only here: SQLite has no statement that changes several tables; PostgreSQL does this in one, close_calls.
-- name: delete_ended_activity
DELETE FROM outlast_activity
WHERE (run, generation, path, name, number) IN (
    SELECT step.run, step.generation, step.path, step.name, step.number
    FROM json_each(:batch) CROSS JOIN outlast_run_step AS step
    WHERE step.run = value ->> 'run' AND step.generation = value ->> 'generation' AND step.path = value ->> 'path' AND step.name = value ->> 'name'
    AND step.number = value ->> 'number' AND step.token = value ->> 'token'
);

-- Keeps failed attempts of runs that are still held. Primary keys.
-- name: insert_failures
INSERT INTO outlast_step_failure (run, generation, path, name, number, attempt, token, started_at, failed_at, retry_at, is_retired, error)
SELECT run.id, run.generation, value ->> 'path', value ->> 'name', value ->> 'number', value ->> 'attempt', run.token, value ->> 'started_at',
    value ->> 'failed_at', value ->> 'retry_at', value ->> 'is_retired', value ->> 'error'
FROM json_each(:batch) CROSS JOIN outlast_run AS run
WHERE run.id = value ->> 'run' AND run.token = value ->> 'token' AND run.generation = value ->> 'generation' AND run.status = 'running';

-- Forgets the failed attempts of one call of a run that is still held. Primary keys.
-- name: forget_failures
DELETE FROM outlast_step_failure
WHERE run = :run AND generation = :generation AND path = :path AND name = :name AND number = :number
AND EXISTS (SELECT 1 FROM outlast_run AS run WHERE run.id = :run AND run.token = :token AND run.generation = :generation AND run.status = 'running');

-- Which holds are current: asked only when something was refused. Primary key.
-- only here: a SQLite insert that selects cannot return what it did not insert from its source; PostgreSQL's RETURNING is compared.
-- name: list_current_holds
SELECT run.id, run.token, run.generation FROM json_each(:holds) CROSS JOIN outlast_run AS run
WHERE run.id = value ->> 'run' AND run.token = value ->> 'token' AND run.status = 'running';

-- Hands runs back or parks them. A suspect that recorded or reported something since its last loss is none any more.
-- Primary key; moves entries from the worker index to the claim or timer index.
-- only here: SQLite has no statement that changes several tables; PostgreSQL does this in one, close_calls.
-- name: release_runs
UPDATE outlast_run
SET status = new.status, due_at = new.due_at, worker = NULL, attempts = new.attempts, losses = iif(
    outlast_run.losses > 0 AND outlast_run.loss_mark < outlast_run.reports
    + (SELECT count(*) FROM outlast_run_step AS step WHERE step.run = outlast_run.id AND step.generation = outlast_run.generation)
    + (SELECT count(*) FROM outlast_step_failure AS failure WHERE failure.run = outlast_run.id AND failure.generation = outlast_run.generation),
    0, outlast_run.losses
)
FROM (
    SELECT value ->> 'run' AS run, value ->> 'token' AS token, value ->> 'generation' AS generation, value ->> 'status' AS status,
        CASE WHEN value ->> 'status' = 'pending' THEN coalesce(value ->> 'due_at', :now) ELSE value ->> 'due_at' END AS due_at,
        value ->> 'attempts' AS attempts, value ->> 'passes_cancel' AS passes_cancel
    FROM json_each(:batch)
) AS new
WHERE outlast_run.id = new.run AND outlast_run.token = new.token AND outlast_run.generation = new.generation AND outlast_run.status = 'running'
AND (outlast_run.cancel_requested_at IS NULL OR new.passes_cancel)
RETURNING id, token;

-- Registers open waits of runs that were just parked; one that is there keeps its instant while it has the same name, and takes
-- note of what was seen meanwhile. Primary key.
-- only here: SQLite has no statement that changes several tables; PostgreSQL does this in one, close_calls.
-- name: insert_waits
INSERT INTO outlast_wait (run, generation, path, name, number, kind, due_at, topic, after)
SELECT value ->> 'run', value ->> 'generation', value ->> 'path', value ->> 'name', value ->> 'number', value ->> 'kind', value ->> 'due_at',
    value ->> 'topic', value ->> 'after'
FROM json_each(:batch) WHERE true
ON CONFLICT (run, generation, path, name, number) DO UPDATE SET
    topic = excluded.topic,
    after = excluded.after,
    due_at = iif(topic IS NOT excluded.topic, excluded.due_at, due_at)
WHERE outlast_wait.topic IS NOT excluded.topic OR outlast_wait.after <> excluded.after;

-- Notes what a run that was just let go, and is not over, says of itself. Primary key.
-- only here: SQLite has no statement that changes several tables; PostgreSQL does this in one, close_calls.
-- name: note_run
UPDATE outlast_run_body SET error = coalesce(:error, error), verdict = coalesce(:verdict, verdict) WHERE run = :run;

-- Adds a warning that is not there yet, up to a bound. Primary key.
-- only here: SQLite has no statement that changes several tables; PostgreSQL does this in one, close_calls.
-- name: add_warning
UPDATE outlast_run_body SET warnings = json_insert(warnings, '$[#]', :warning)
WHERE run = :run AND json_array_length(warnings) < :limit AND NOT EXISTS (SELECT 1 FROM json_each(warnings) WHERE value = :warning);

-- Writes what long steps report, of runs that are still held. What an earlier attempt reported stays until this one reports. Primary keys.
-- name: record_activity
INSERT INTO outlast_activity (run, generation, path, name, number, attempt, started_at, done, total, note)
SELECT run.id, run.generation, value ->> 'path', value ->> 'name', value ->> 'number', value ->> 'attempt', value ->> 'started_at', value ->> 'done',
    value ->> 'total', value ->> 'note'
FROM json_each(:batch) CROSS JOIN outlast_run AS run
WHERE run.id = value ->> 'run' AND run.token = value ->> 'token' AND run.generation = value ->> 'generation' AND run.status = 'running'
ON CONFLICT (run, generation, path, name, number) DO UPDATE SET
    attempt = excluded.attempt,
    started_at = excluded.started_at,
    done = coalesce(excluded.done, done),
    total = iif(excluded.done IS NULL, total, excluded.total),
    note = iif(excluded.done IS NULL AND excluded.note = '', note, excluded.note);

-- Counts reports on the run, so that progress never seems to shrink when the record replaces them. Primary key.
-- only here: SQLite has no statement that changes several tables; PostgreSQL does this in one, close_calls.
-- name: count_reports
UPDATE outlast_run SET reports = outlast_run.reports + new.reports
FROM (
    SELECT value ->> 'run' AS run, value ->> 'token' AS token, value ->> 'generation' AS generation, value ->> 'reports' AS reports FROM json_each(:batch)
) AS new
WHERE outlast_run.id = new.run AND outlast_run.token = new.token AND outlast_run.generation = new.generation AND outlast_run.status = 'running';

-- Records of a group that are there, by token. Unique index of (run, generation, path, name, number).
-- name: find_records
SELECT step.run, step.token, step.generation, step.path, step.name, step.number
FROM json_each(:batch) CROSS JOIN outlast_run_step AS step
WHERE step.run = value ->> 'run' AND step.generation = value ->> 'generation' AND step.path = value ->> 'path' AND step.name = value ->> 'name'
AND step.number = value ->> 'number' AND step.token = value ->> 'token';

-- Failed attempts of a group that are there, by token. Primary key.
-- name: find_failures
SELECT failure.run, failure.token, failure.generation, failure.path, failure.name, failure.number, failure.attempt
FROM json_each(:batch) CROSS JOIN outlast_step_failure AS failure
WHERE failure.run = value ->> 'run' AND failure.generation = value ->> 'generation' AND failure.path = value ->> 'path' AND failure.name = value ->> 'name'
AND failure.number = value ->> 'number' AND failure.attempt = value ->> 'attempt' AND failure.token = value ->> 'token';

-- Runs that this token left: ended as it said, or put down, whatever has happened to them since. Primary key.
-- name: find_changes
SELECT run.id, value ->> 'token' FROM json_each(:batch) CROSS JOIN outlast_run AS run
WHERE run.id = value ->> 'run' AND (
    (run.token = value ->> 'token' AND run.status = value ->> 'status')
    OR (value ->> 'status' IN ('pending', 'waiting')
        AND (run.token > value ->> 'token' OR (run.token = value ->> 'token' AND run.status IN ('pending', 'waiting'))))
);
