-- A transactional step in an application's transaction. Every statement goes by primary key.

-- What tells this transaction from every other: a function that commits or rolls back by itself is found out by it.
-- name: mark
SELECT pg_current_xact_id()::text

-- Still the same transaction?
-- name: check_mark
SELECT pg_current_xact_id()::text

-- What this step left here, if it was committed before.
-- name: find_step
SELECT result::text FROM outlast_step
WHERE run = CAST(%(run)s AS uuid) AND generation = CAST(%(generation)s AS bigint) AND key = CAST(%(key)s AS text)

-- Raise the fence; returns nothing for a claim that is older than one that has committed here.
-- name: raise_fence
INSERT INTO outlast_fence AS f (run, token) VALUES (CAST(%(run)s AS uuid), CAST(%(token)s AS bigint))
ON CONFLICT (run) DO UPDATE SET token = excluded.token WHERE f.token <= excluded.token
RETURNING token

-- Remember the step. One that is there already is an error, never passed over.
-- name: insert_step
INSERT INTO outlast_step (run, generation, key, token, result)
VALUES (CAST(%(run)s AS uuid), CAST(%(generation)s AS bigint), CAST(%(key)s AS text), CAST(%(token)s AS bigint), CAST(%(result)s AS json))
