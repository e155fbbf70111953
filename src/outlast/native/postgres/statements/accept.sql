-- Lanes and runs as they are accepted.

-- Which of these lanes are there. One index probe each on lane's unique key.
-- name: find_lanes
SELECT l.queue, l.kind, l.version, l.id
FROM json_to_recordset(%(batch)s::json) AS b(queue text, kind text, version bigint)
JOIN outlast.lane l ON l.queue = b.queue AND l.kind = b.kind AND l.version = b.version

-- Make lanes; of two callers at once the second waits for the first and then does nothing. Numbers may have gaps.
-- name: insert_lanes
INSERT INTO outlast.lane (queue, kind, version)
SELECT b.queue, b.kind, b.version
FROM json_to_recordset(%(batch)s::json) AS b(queue text, kind text, version bigint)
ORDER BY b.queue, b.kind, b.version
ON CONFLICT DO NOTHING

-- Whose are these keys? A statement after the one that took or met them, so that it sees what was committed meanwhile.
-- name: find_keys
SELECT k.kind, k.key, k.run, k.input_digest
FROM json_to_recordset(%(batch)s::json) AS b(kind text, key text)
JOIN outlast.run_key k ON k.kind = b.kind AND k.key = b.key

-- Accept runs: keys first, and then the runs without a key and those whose key was free. Of callers at once with one key one
-- wins; the others wait for its commit. A run id that is there already is the caller's own call, tried again: nothing is
-- written. The batch comes sorted by kind and key.
-- name: insert_runs
WITH clock AS MATERIALIZED (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now),
batch AS MATERIALIZED (
    SELECT b.*, clock.now
    FROM clock, json_to_recordset(%(batch)s::json) AS b(
        id uuid, lane bigint, kind text, version bigint, priority bigint, due_at timestamptz, deadline_at timestamptz,
        seed bigint, input text, digest text, key text, tags text, headers text)
),
won AS (
    INSERT INTO outlast.run_key (kind, key, run, input_digest)
    SELECT kind, key, id, digest FROM batch WHERE key IS NOT NULL
    ON CONFLICT DO NOTHING
    RETURNING run
),
fresh AS MATERIALIZED (SELECT * FROM batch WHERE key IS NULL OR id IN (SELECT run FROM won)),
bodies AS (
    INSERT INTO outlast.run_body (run, input, input_digest, idempotency_key, tags, headers, seed)
    SELECT id, input::json, digest, key, tags::json, headers::json, seed FROM fresh
    ON CONFLICT DO NOTHING
)
INSERT INTO outlast.run (id, lane, kind, version, priority, status, due_at, deadline_at, created_at)
SELECT id, lane, kind, version, priority, CASE WHEN due_at > now THEN 'waiting' ELSE 'pending' END, coalesce(due_at, now), deadline_at, now
FROM fresh
ON CONFLICT DO NOTHING

-- The digests of the inputs of the runs that were there before this transaction, by primary key.
-- name: list_digests
SELECT b.run, b.input_digest
FROM unnest(%(runs)s::uuid[]) AS wanted(run) JOIN outlast.run_body b ON b.run = wanted.run
WHERE b.xmin <> pg_current_xact_id()::xid
