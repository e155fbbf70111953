-- What the batched SQL peer keeps and says. The tables have the columns and indexes of an engine's, so that the rows
-- cost the same to write; the schema is its own and touches nothing of outlast's.

-- name: create_schema
-- Makes everything in one go in an empty database.
CREATE SCHEMA batched_sql;
CREATE TABLE batched_sql.worker (
    id bigint PRIMARY KEY,
    alive boolean NOT NULL DEFAULT true,
    beat bigint NOT NULL DEFAULT 0,
    lease_until timestamptz NOT NULL DEFAULT clock_timestamp() + interval '30 seconds'
);
CREATE TABLE batched_sql.run (
    id uuid PRIMARY KEY,
    kind text NOT NULL,
    version integer NOT NULL,
    lane integer NOT NULL,
    priority smallint NOT NULL DEFAULT 0,
    status text NOT NULL,
    due_at timestamptz,
    worker bigint,
    token bigint NOT NULL DEFAULT 0,
    generation integer NOT NULL DEFAULT 0,
    ending text,
    cancel_requested_at timestamptz,
    attempts integer NOT NULL DEFAULT 0,
    recoveries integer NOT NULL DEFAULT 0,
    strikes smallint NOT NULL DEFAULT 0,
    parent uuid,
    deadline_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    started_at timestamptz,
    finished_at timestamptz
);
CREATE INDEX run_claim ON batched_sql.run (lane, priority, due_at, id) WHERE status = 'pending';
CREATE INDEX run_timer ON batched_sql.run (due_at) WHERE status = 'waiting';
CREATE INDEX run_worker ON batched_sql.run (worker) WHERE status = 'running';
CREATE INDEX run_attention ON batched_sql.run (finished_at) WHERE status IN ('failed', 'dead');
CREATE INDEX run_deadline ON batched_sql.run (deadline_at) WHERE deadline_at IS NOT NULL AND finished_at IS NULL;
CREATE INDEX run_parent ON batched_sql.run (parent) WHERE parent IS NOT NULL;
CREATE TABLE batched_sql.run_body (
    run uuid PRIMARY KEY,
    input json,
    output json,
    error json,
    tags json,
    headers json,
    seed bigint NOT NULL,
    reasons json
);
CREATE TABLE batched_sql.step (
    run uuid NOT NULL,
    generation integer NOT NULL,
    path text NOT NULL,
    name text NOT NULL,
    number integer NOT NULL,
    seq integer NOT NULL,
    kind text NOT NULL,
    arguments_digest text NOT NULL,
    result json,
    error json,
    attempts integer NOT NULL,
    token bigint NOT NULL,
    started_at timestamptz NOT NULL,
    finished_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (run, generation, path, name, number)
);
CREATE FUNCTION batched_sql.fence(the_worker bigint) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(the_worker);
    IF NOT EXISTS (SELECT FROM batched_sql.worker WHERE id = the_worker AND alive) THEN
        RAISE EXCEPTION 'worker % is not alive', the_worker;
    END IF;
END $$;

-- name: add_worker
INSERT INTO batched_sql.worker (id) VALUES (%(worker)s)

-- name: fence
-- Holds the worker's advisory lock in shared mode until the end of the transaction.
SELECT batched_sql.fence(%(worker)s)

-- name: enqueue
-- Writes a batch of runs and what they carry; locks nothing that is there already.
WITH batch AS MATERIALIZED (
    SELECT * FROM json_to_recordset(%(batch)s) AS b (id uuid, kind text, input json, seed bigint)
), added AS (
    INSERT INTO batched_sql.run (id, kind, version, lane, status, due_at)
    SELECT id, kind, 1, 1, 'pending', clock_timestamp() FROM batch
)
INSERT INTO batched_sql.run_body (run, input, seed) SELECT id, input, seed FROM batch

-- name: claim
-- Takes the next runs of the lane, served by run_claim, with their inputs; rows that another worker locks are skipped.
WITH chosen AS MATERIALIZED (
    SELECT id FROM batched_sql.run
    WHERE lane = 1 AND status = 'pending' AND due_at <= clock_timestamp()
    ORDER BY priority, due_at, id LIMIT %(slots)s
    FOR UPDATE SKIP LOCKED
), claimed AS (
    UPDATE batched_sql.run SET status = 'running', worker = %(worker)s, token = token + 1, attempts = attempts + 1,
        started_at = COALESCE(started_at, clock_timestamp())
    FROM chosen WHERE run.id = chosen.id
    RETURNING run.id, run.token
)
SELECT claimed.id::text, claimed.token, run_body.input FROM claimed JOIN batched_sql.run_body ON run_body.run = claimed.id

-- name: record_steps
-- Writes a batch of step records of runs that this worker still holds under the given tokens.
INSERT INTO batched_sql.step (run, generation, path, name, number, seq, kind, arguments_digest, result, attempts, token, started_at)
SELECT b.run, run.generation, '', b.name, 0, b.seq, 'step', b.digest, b.result, 1, b.token, b.started_at
FROM json_to_recordset(%(batch)s) AS b (run uuid, token bigint, name text, seq integer, digest text, result json, started_at timestamptz)
JOIN batched_sql.run ON run.id = b.run AND run.token = b.token AND run.status = 'running'
RETURNING run

-- name: finish_runs
-- Ends a batch of runs that this worker still holds under the given tokens, with their outputs.
WITH batch AS MATERIALIZED (
    SELECT * FROM json_to_recordset(%(batch)s) AS b (id uuid, token bigint, output json)
), ended AS (
    UPDATE batched_sql.run SET status = 'succeeded', worker = NULL, due_at = NULL, finished_at = clock_timestamp()
    FROM batch
    WHERE run.id = batch.id AND run.token = batch.token AND run.status = 'running' AND run.cancel_requested_at IS NULL
    RETURNING run.id
)
UPDATE batched_sql.run_body SET output = batch.output
FROM batch JOIN ended ON ended.id = batch.id WHERE run_body.run = batch.id
RETURNING run_body.run

-- name: any_unfinished
SELECT EXISTS (SELECT FROM batched_sql.run WHERE status IN ('pending', 'running', 'waiting'))
