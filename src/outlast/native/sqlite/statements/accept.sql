-- Accepting runs. On SQLite one immediate transaction writes at a time, so that nothing here locks a row.

-- Makes the lanes that are not there. Served by the unique index of (queue, kind, version).
-- name: insert_lanes
INSERT INTO outlast_lane (queue, kind, version)
SELECT value ->> 'queue', value ->> 'kind', value ->> 'version' FROM json_each(:lanes) WHERE true
ON CONFLICT (queue, kind, version) DO NOTHING;

-- The numbers of lanes, by the unique index of (queue, kind, version).
-- name: find_lanes
SELECT lane.queue, lane.kind, lane.version, lane.id
FROM json_each(:lanes) CROSS JOIN outlast_lane AS lane
WHERE lane.queue = value ->> 'queue' AND lane.kind = value ->> 'kind' AND lane.version = value ->> 'version';

-- Takes keys; of one that is taken nothing changes. Primary key (kind, key).
-- only here: PostgreSQL takes keys in the statement that accepts the runs.
-- name: insert_keys
INSERT INTO outlast_run_key (kind, key, run, input_digest)
SELECT value ->> 'kind', value ->> 'idempotency_key', value ->> 'id', value ->> 'input_digest' FROM json_each(:runs) WHERE true
ON CONFLICT (kind, key) DO NOTHING
RETURNING run;

-- Whose the keys are now. Primary key (kind, key).
-- only here: PostgreSQL's function tells it of the runs that it did not write.
-- name: find_keys
SELECT owner.kind, owner.key, owner.run, owner.input_digest
FROM json_each(:runs) CROSS JOIN outlast_run_key AS owner
WHERE owner.kind = value ->> 'kind' AND owner.key = value ->> 'idempotency_key';

-- Inserts runs; one whose id is there is the caller's own, tried again. Primary key.
-- name: insert_runs
INSERT INTO outlast_run (id, kind, version, lane, priority, status, due_at, deadline_at, created_at)
SELECT value ->> 'id', value ->> 'kind', value ->> 'version', value ->> 'lane', value ->> 'priority',
    iif(value ->> 'due_at' > :now, 'waiting', 'pending'), coalesce(value ->> 'due_at', :now), value ->> 'deadline_at', :now
FROM json_each(:runs) WHERE true
ON CONFLICT (id) DO NOTHING;

-- Inserts what is large or rarely changes of the same runs. Primary key.
-- only here: SQLite has no statement that changes several tables; PostgreSQL does this in one with the change of the run.
-- name: insert_bodies
INSERT INTO outlast_run_body (run, seed, input, input_digest, idempotency_key, tags, headers)
SELECT value ->> 'id', value ->> 'seed', value ->> 'input', value ->> 'input_digest', value ->> 'idempotency_key', value ->> 'tags', value ->> 'headers'
FROM json_each(:runs) WHERE true
ON CONFLICT (run) DO NOTHING;

-- The digests of the inputs that runs have. Primary key.
-- only here: PostgreSQL's function tells it of the runs that it did not write.
-- name: list_digests
SELECT body.run, body.input_digest FROM json_each(:run_ids) CROSS JOIN outlast_run_body AS body WHERE body.run = value;
