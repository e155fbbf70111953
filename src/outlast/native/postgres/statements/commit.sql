-- What a worker writes of the runs that it holds. The fence before these keeps others away, so that the test of token and
-- status needs no lock on the run where the run itself is not written. `OFFSET 0` makes the planner find each run by its
-- primary key: it cannot know how many runs are running, and would rather walk all of run_worker.

-- Keep records, each only under the current token; what it returns was kept. A record of the same key is an error (the
-- step's primary key), never passed over. A column that is left out has what most records have in it.
-- name: insert_records
INSERT INTO outlast.step (run, generation, path, name, number, seq, kind, outcome, digest, attempts, token, started_at, finished_at, result, error)
SELECT b.run, coalesce(b.generation, 0), coalesce(b.path, ''), b.name, coalesce(b.number, 0), b.seq, coalesce(b.kind, 'step'), coalesce(b.outcome, 'result'),
    coalesce(b.digest, ''), coalesce(b.attempts, 1), b.token, b.started_at, b.finished_at, b.result::json, b.error::json
FROM json_to_recordset(%(batch)s::json) AS b(
    run uuid, token bigint, generation bigint, path text, name text, number bigint, seq bigint, kind text, outcome text,
    digest text, attempts bigint, started_at timestamptz, finished_at timestamptz, result text, error text)
CROSS JOIN LATERAL (SELECT token, generation, status FROM outlast.run WHERE id = b.run OFFSET 0) AS r
WHERE r.token = b.token AND r.generation = coalesce(b.generation, 0) AND r.status = 'running'
RETURNING run, outlast.step.token, seq

-- What was open of calls whose records were just kept: their waits, and what steps reported. By primary keys; only
-- where this transaction has kept the record. Apart from the records, because most calls have neither: to look cost 9 of 28 us a record.
-- only here: SQLite has no statement that changes several tables, and withdraws waits and reports in two.
-- name: close_calls
WITH ended AS MATERIALIZED (
    SELECT s.run, s.generation, s.path, s.name, s.number, s.kind
    FROM json_to_recordset(%(batch)s::json) AS b(run uuid, token bigint, generation bigint, path text, name text, number bigint)
    JOIN outlast.step s ON s.run = b.run AND s.generation = b.generation AND s.path = b.path AND s.name = b.name AND s.number = b.number
        AND s.token = b.token AND s.xmin = pg_current_xact_id()::xid
),
ended_waits AS (
    DELETE FROM outlast.wait w USING ended e
    WHERE e.kind IN ('sleep', 'timeout', 'effect', 'wait', 'until', 'ask') AND w.run = e.run AND w.generation = e.generation AND w.path = e.path AND w.name = e.name AND w.number = e.number
)
DELETE FROM outlast.activity a USING ended e
WHERE a.run = e.run AND a.generation = e.generation AND a.path = e.path AND a.name = e.name AND a.number = e.number

-- The run of a transactional step, locked in the application's transaction until its commit: no row unless the claim is
-- current. By primary key.
-- name: hold_run
SELECT r.id::text FROM outlast.run r
WHERE r.id = CAST(%(run)s AS uuid) AND r.token = CAST(%(token)s AS bigint) AND r.generation = CAST(%(generation)s AS bigint) AND r.status = 'running'
FOR NO KEY UPDATE

-- Keep failed attempts, each only under the current token; what it returns was kept.
-- name: insert_failures
INSERT INTO outlast.step_failure (run, generation, path, name, number, attempt, token, error, started_at, failed_at, retry_at, is_retired)
SELECT b.run, b.generation, b.path, b.name, b.number, b.attempt, b.token, b.error::json, b.started_at, b.failed_at, b.retry_at, b.is_retired
FROM json_to_recordset(%(batch)s::json) AS b(
    run uuid, token bigint, generation bigint, path text, name text, number bigint, attempt bigint, error text,
    started_at timestamptz, failed_at timestamptz, retry_at timestamptz, is_retired boolean)
CROSS JOIN LATERAL (SELECT * FROM outlast.run WHERE id = b.run OFFSET 0) AS r
WHERE r.token = b.token AND r.generation = b.generation AND r.status = 'running'
RETURNING run, outlast.step_failure.token, outlast.step_failure.generation, path, name, number, attempt

-- Forget the failed attempts of one call under the current token, whose run is locked, so that no newer claim reads them
-- half-way. Primary keys.
-- name: forget_failures
WITH held AS MATERIALIZED (
    SELECT r.id, r.generation FROM (SELECT * FROM outlast.run WHERE id = %(run)s::uuid OFFSET 0 FOR NO KEY UPDATE) AS r
    WHERE r.token = %(token)s::bigint AND r.generation = %(generation)s::bigint AND r.status = 'running'
)
DELETE FROM outlast.step_failure f USING held
WHERE f.run = held.id AND f.generation = held.generation AND f.path = %(path)s AND f.name = %(name)s AND f.number = %(number)s::bigint

-- THE statement that changes a run's status after its claim, and the only one that ends a run, with all that follows from
-- an end: what the body left, the key's last word, waits and activity withdrawn. A run that waits for a time only, such as one that
-- backs off, waits for no name any more; a wait that is there keeps its instant while it has the same name, and takes note of what
-- was seen meanwhile. Everything goes by primary key. Rows are
-- locked in the batch's order, which is by id; a stranger's lock is waited for no longer than lock_timeout. `found` is the
-- status that the caller saw. A suspect that recorded or reported something since its last loss is none any more. What it
-- returns was changed.
-- only here: SQLite has no statements that change several tables, and does the same in several.
-- name: change_runs
WITH clock AS MATERIALIZED (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now),
batch AS MATERIALIZED (
    SELECT b.*, clock.now, b.status IN ('succeeded', 'failed', 'canceled', 'dead') AS is_over
    FROM clock, json_to_recordset(%(batch)s::json) AS b(
        id uuid, token bigint, found text, status text, due_at timestamptz, delay double precision, attempts bigint, passes_cancel boolean, keeps_losses boolean,
        has_body boolean, output text, error text, failed_path text, failed_name text, failed_number bigint, verdict text, warnings text[],
        key text, waits json)
),
changed AS (
    UPDATE outlast.run r
    SET status = b.status, worker = NULL, attempts = coalesce(b.attempts, r.attempts),
        losses = CASE WHEN r.losses = 0 OR b.keeps_losses THEN r.losses WHEN r.loss_mark < outlast.progress_mark(r.id, r.generation) THEN 0 ELSE r.losses END,
        finished_at = CASE WHEN b.is_over THEN b.now END,
        due_at = CASE WHEN b.is_over THEN NULL WHEN b.delay IS NOT NULL THEN b.now + make_interval(secs => b.delay)
            WHEN b.status = 'pending' THEN coalesce(b.due_at, b.now) ELSE b.due_at END
    FROM batch b
    WHERE r.id = b.id AND r.token = b.token AND r.status = b.found AND (r.cancel_requested_at IS NULL OR b.passes_cancel)
    RETURNING r.id, r.lane, r.kind, r.generation, b.*
),
bodies AS (
    UPDATE outlast.run_body y
    SET output = c.output::json, error = CASE WHEN c.is_over THEN c.error::json ELSE coalesce(c.error::json, y.error) END,
        failed_path = c.failed_path, failed_name = c.failed_name, failed_number = c.failed_number, verdict = coalesce(c.verdict, y.verdict),
        warnings = CASE WHEN c.warnings IS NULL THEN y.warnings ELSE (
            SELECT array_agg(kept.warning ORDER BY kept.place) FROM (
                SELECT w.warning, min(w.place) AS place FROM unnest(y.warnings || c.warnings) WITH ORDINALITY AS w(warning, place)
                GROUP BY w.warning ORDER BY min(w.place) LIMIT %(warnings)s::bigint
            ) AS kept
        ) END
    FROM changed c(run) WHERE c.has_body AND y.run = c.run
),
keys AS (
    UPDATE outlast.run_key k SET ended_status = c.status
    FROM changed c(run) WHERE c.is_over AND k.kind = c.kind AND k.key = c.key AND k.run = c.run
),
old_waits AS (
    DELETE FROM outlast.wait w USING changed c(run) WHERE w.run = c.run AND (c.is_over OR (c.status = 'waiting' AND c.waits IS NULL AND w.topic IS NOT NULL))
),
old_activity AS (DELETE FROM outlast.activity a USING changed c(run) WHERE c.is_over AND a.run = c.run),
new_waits AS (
    INSERT INTO outlast.wait AS w (run, generation, path, name, number, kind, due_at, topic, after)
    SELECT c.run, c.generation, n.path, n.name, n.number, n.kind, n.due_at, n.topic, n.after
    FROM changed c(run)
    CROSS JOIN LATERAL json_to_recordset(c.waits) AS n(path text, name text, number bigint, kind text, due_at timestamptz, topic text, after bigint)
    WHERE c.waits IS NOT NULL
    ON CONFLICT (run, generation, path, name, number) DO UPDATE
    SET topic = excluded.topic, after = excluded.after, due_at = CASE WHEN w.topic IS DISTINCT FROM excluded.topic THEN excluded.due_at ELSE w.due_at END
    WHERE w.topic IS DISTINCT FROM excluded.topic OR w.after <> excluded.after
)
SELECT c.run, c.token, c.lane FROM changed c(run)

-- Take a record out of the history, so that its step has fresh attempts: it becomes a retired failure, and so do the
-- failures before it. The caller has the run's row locked; with a token, only if this transaction
-- has put the run down for its holder. By the primary keys of step and step_failure.
-- name: retire_record
WITH batch AS MATERIALIZED (
    SELECT b.*, r.generation FROM json_to_recordset(%(batch)s::json) AS b(run uuid, token bigint, path text, name text, number bigint)
    JOIN outlast.run r ON r.id = b.run
    WHERE b.token IS NULL OR (r.token = b.token AND r.xmin = pg_current_xact_id()::xid)
),
marked AS (
    UPDATE outlast.step_failure f SET is_retired = true, retry_at = NULL
    FROM batch b WHERE f.run = b.run AND f.generation = b.generation AND f.path = b.path AND f.name = b.name AND f.number = b.number
),
retired AS (
    DELETE FROM outlast.step s USING batch b
    WHERE s.run = b.run AND s.generation = b.generation AND s.path = b.path AND s.name = b.name AND s.number = b.number AND s.outcome = 'error'
    RETURNING s.*
),
moved AS (
    INSERT INTO outlast.step_failure (run, generation, path, name, number, attempt, token, error, started_at, failed_at, is_retired)
    SELECT r.run, r.generation, r.path, r.name, r.number,
        greatest(r.attempts, (SELECT max(f.attempt) + 1 FROM outlast.step_failure f
            WHERE f.run = r.run AND f.generation = r.generation AND f.path = r.path AND f.name = r.name AND f.number = r.number)),
        r.token, r.error, coalesce(r.started_at, r.finished_at), r.finished_at, true
    FROM retired r
),
forgotten AS (  -- what the body withdrew from after it: the failure canceled it, and the retry asks for it anew
    DELETE FROM outlast.step s USING retired r
    WHERE s.run = r.run AND s.generation = r.generation AND s.outcome = 'given_up' AND s.seq > r.seq
)
UPDATE outlast.run_body y SET retired_seq = least(y.retired_seq, retired.seq) FROM retired WHERE y.run = retired.run

-- What is there of a group whose commit ended in doubt. By primary key, no locks.
-- name: find_records
SELECT s.run, s.token, s.generation, s.path, s.name, s.number
FROM json_to_recordset(%(batch)s::json) AS b(run uuid, token bigint, generation bigint, path text, name text, number bigint)
JOIN outlast.step s ON s.run = b.run AND s.generation = b.generation AND s.path = b.path AND s.name = b.name AND s.number = b.number AND s.token = b.token

-- The same for failed attempts, by primary key.
-- name: find_failures
SELECT f.run, f.token, f.generation, f.path, f.name, f.number, f.attempt
FROM json_to_recordset(%(batch)s::json) AS b(run uuid, token bigint, generation bigint, path text, name text, number bigint, attempt bigint)
JOIN outlast.step_failure f ON f.run = b.run AND f.generation = b.generation AND f.path = b.path AND f.name = b.name AND f.number = b.number
    AND f.attempt = b.attempt AND f.token = b.token

-- A run that this token left: ended as it said, or put down, whatever has happened to it since.
-- name: find_changes
SELECT r.id, b.token
FROM json_to_recordset(%(batch)s::json) AS b(id uuid, token bigint, status text)
JOIN outlast.run r ON r.id = b.id
WHERE (r.token = b.token AND r.status = b.status)
    OR (b.status IN ('pending', 'waiting') AND (r.token > b.token OR (r.token = b.token AND r.status IN ('pending', 'waiting'))))

-- What long steps report: one row a step, by primary key; of a hold that is not current nothing is written. What an earlier
-- attempt reported stays until this one reports; that it only goes on is no report.
-- name: record_activity
INSERT INTO outlast.activity AS a (run, generation, path, name, number, attempt, started_at, done, total, note, reports)
SELECT b.run, b.generation, b.path, b.name, b.number, b.attempt, b.started_at, b.done, b.total, b.note, (b.done IS NOT NULL)::int
FROM json_to_recordset(%(batch)s::json) AS b(
    run uuid, token bigint, generation bigint, path text, name text, number bigint, attempt bigint, started_at timestamptz,
    done double precision, total double precision, note text)
CROSS JOIN LATERAL (SELECT * FROM outlast.run WHERE id = b.run OFFSET 0) AS r
WHERE r.token = b.token AND r.generation = b.generation AND r.status = 'running'
ON CONFLICT (run, generation, path, name, number) DO UPDATE
SET attempt = excluded.attempt, started_at = excluded.started_at, done = coalesce(excluded.done, a.done),
    total = CASE WHEN excluded.done IS NULL THEN a.total ELSE excluded.total END,
    note = CASE WHEN excluded.done IS NULL AND excluded.note = '' THEN a.note ELSE excluded.note END, reports = a.reports + excluded.reports
