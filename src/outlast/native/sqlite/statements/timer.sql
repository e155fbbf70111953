-- What comes due: timers, deadlines, and flags that the holder of a run must be told of.

-- Moves waiting runs whose time has come to the claimable ones, oldest first. Index: timer.
-- name: wake_due
UPDATE outlast_run SET status = 'pending'
WHERE id IN (SELECT id FROM outlast_run WHERE status = 'waiting' AND due_at IS NOT NULL AND due_at <= :now ORDER BY due_at LIMIT :limit)
RETURNING lane;

-- Runs past their deadline that nobody holds and for which something is to be done: a claimable run that ran before is ended by its claim,
-- and a rollback phase has no deadline.
-- Index: deadline, whose condition is repeated word for word.
-- name: lock_overdue
SELECT id, token, deadline_at FROM outlast_run
WHERE deadline_at <= :now AND deadline_at IS NOT NULL AND (status = 'waiting' OR (status = 'pending' AND token = 0)) AND ending IS NULL
ORDER BY deadline_at LIMIT :limit;

-- Makes overdue runs that ran before claimable at once. Primary key; nobody holds them, so that the token is tested and kept.
-- only here: SQLite has no statement that changes several tables; PostgreSQL does this in one with the change of the run.
-- name: wake_overdue
UPDATE outlast_run SET status = 'pending', due_at = :now
FROM (SELECT value ->> 'run' AS run, value ->> 'token' AS token FROM json_each(:batch)) AS found
WHERE outlast_run.id = found.run AND outlast_run.token = found.token AND outlast_run.status = 'waiting';

-- Held runs whose bodies must be told. Index: worker.
-- name: list_flagged
SELECT run.id, run.token, run.cancel_requested_at IS NOT NULL, body.cancel_reason, coalesce(run.deadline_at <= :now, 0)
FROM outlast_run AS run CROSS JOIN outlast_run_body AS body
WHERE run.status = 'running' AND run.worker = :worker AND (run.cancel_requested_at IS NOT NULL OR run.deadline_at <= :now) AND body.run = run.id
ORDER BY run.id;
