-- A transactional step in an application's transaction. Every statement goes by primary key.

-- A place in this transaction that a commit or a rollback takes away: a function that does either is found out by it.
-- name: mark
SAVEPOINT outlast_transaction;

-- Still the same transaction? An error if not.
-- name: check_mark
RELEASE SAVEPOINT outlast_transaction;

-- What this step left here, if it was committed before.
-- name: find_step
SELECT result FROM outlast_step WHERE run = :run AND generation = :generation AND key = :key;

-- Raise the fence; returns nothing for a claim that is older than one that has committed here.
-- name: raise_fence
INSERT INTO outlast_fence (run, token) VALUES (:run, :token)
ON CONFLICT (run) DO UPDATE SET token = excluded.token WHERE outlast_fence.token <= excluded.token
RETURNING token;

-- Remember the step. One that is there already is an error, never passed over.
-- name: insert_step
INSERT INTO outlast_step (run, generation, key, token, result) VALUES (:run, :generation, :key, :token, :result);
