-- Workers and what they leave behind. The table is small: ended workers are forgotten after a while.

-- Announces a worker.
-- name: insert_worker
INSERT INTO outlast_worker (id, name, process, beat, is_alive, is_idle, lease, lease_until, started_at, lanes, tasks, is_provable)
VALUES (:id, :name, :process, 1, 1, 0, :lease, :now + :lease, :now, :lanes, :tasks, :is_provable);

-- Prolongs a living worker's lease, never to an earlier instant. Primary key.
-- name: renew_worker
UPDATE outlast_worker SET lease_until = max(lease_until, :now + lease), beat = beat + 1, is_provable = :is_provable
WHERE id = :worker AND is_alive = 1;

-- Changes nothing, and so writes nothing, when it is so already: a write would wake everybody who watches the file. Primary key.
-- name: set_idle
UPDATE outlast_worker SET is_idle = :is_idle WHERE id = :worker AND is_alive = 1 AND is_idle <> :is_idle;

-- Whether a living worker of these lanes asked for wake-ups; the table is small.
-- name: has_idle_worker
SELECT EXISTS (
    SELECT 1 FROM outlast_worker AS worker
    WHERE worker.is_alive = 1 AND worker.is_idle = 1
    AND EXISTS (SELECT 1 FROM json_each(worker.lanes) AS own CROSS JOIN json_each(:lanes) AS asked WHERE own.value = asked.value)
);

-- Ends a worker if what its watcher saw still holds. Its open transactions are over: this one is immediate. Primary key.
-- name: end_worker
UPDATE outlast_worker SET is_alive = 0, is_idle = 0, ended_at = :now, ended_as = :end
WHERE id = :worker AND is_alive = 1 AND (:beat IS NULL OR beat = :beat) AND (NOT :is_silent OR lease_until < :now);

-- Runs held are counted up to a bound. Index of run: worker.
-- name: list_workers
SELECT id, name, process, beat, is_alive, lease_until < :now, is_idle, lease, lease_until, started_at, ended_at, ended_as,
    (SELECT count(*) FROM (SELECT 1 FROM outlast_run AS run WHERE run.status = 'running' AND run.worker = outlast_worker.id LIMIT :counted)), tasks, is_provable
FROM outlast_worker
WHERE is_alive = 1 OR NOT :only_alive
ORDER BY is_alive DESC, started_at DESC, id
LIMIT :limit;

-- Runs whose worker ended or is not known any more, and how far they have come. Index of run: worker, entered once for each worker that holds
-- anything; the marks by the primary keys of what hangs on the run.
-- name: list_orphans
WITH RECURSIVE holder (id) AS (
    SELECT min(worker) FROM outlast_run WHERE status = 'running'
    UNION ALL
    SELECT (SELECT min(run.worker) FROM outlast_run AS run WHERE run.status = 'running' AND run.worker > holder.id) FROM holder WHERE holder.id IS NOT NULL
)
SELECT run.id, run.token, run.recoveries, run.losses, run.strikes, run.loss_mark,
    run.reports + (SELECT count(*) FROM outlast_run_step AS step WHERE step.run = run.id AND step.generation = run.generation)
    + (SELECT count(*) FROM outlast_step_failure AS failure WHERE failure.run = run.id AND failure.generation = run.generation),
    worker.ended_as IS NOT 'stopped'
FROM holder LEFT JOIN outlast_worker AS worker ON worker.id = holder.id CROSS JOIN outlast_run AS run
WHERE holder.id IS NOT NULL AND worker.is_alive IS NOT 1 AND run.worker = holder.id AND run.status = 'running'
LIMIT :limit;

-- Lets orphans go, under the token that was listed; of a canceled one nothing delays the end. Primary key.
-- only here: SQLite has no statement that changes several tables; PostgreSQL does this in one with the change of the run.
-- name: recover_runs
UPDATE outlast_run
SET status = iif(outlast_run.cancel_requested_at IS NULL, new.status, 'pending'), due_at = iif(outlast_run.cancel_requested_at IS NULL, new.due_at, :now),
    worker = NULL, recoveries = new.recoveries, losses = new.losses, strikes = new.strikes, loss_mark = new.loss_mark
FROM (
    SELECT value ->> 'run' AS run, value ->> 'token' AS token, value ->> 'status' AS status, value ->> 'due_at' AS due_at,
        value ->> 'recoveries' AS recoveries, value ->> 'losses' AS losses, value ->> 'strikes' AS strikes, value ->> 'loss_mark' AS loss_mark
    FROM json_each(:batch)
) AS new
WHERE outlast_run.id = new.run AND outlast_run.token = new.token AND outlast_run.status = 'running'
RETURNING lane;

-- Counts the last loss of runs that end as dead right after. Primary key, token.
-- name: count_losses
UPDATE outlast_run SET recoveries = new.recoveries, losses = new.losses, strikes = new.strikes, loss_mark = new.loss_mark
FROM (
    SELECT value ->> 'run' AS run, value ->> 'token' AS token, value ->> 'recoveries' AS recoveries, value ->> 'losses' AS losses,
        value ->> 'strikes' AS strikes, value ->> 'loss_mark' AS loss_mark
    FROM json_each(:batch)
) AS new
WHERE outlast_run.id = new.run AND outlast_run.token = new.token AND outlast_run.status = 'running';

-- Forgets workers that ended long ago and hold nothing. Index of run: worker.
-- name: delete_ended_workers
DELETE FROM outlast_worker
WHERE is_alive = 0 AND ended_at <= :before
AND NOT EXISTS (SELECT 1 FROM outlast_run AS run WHERE run.status = 'running' AND run.worker = outlast_worker.id);

-- Lanes that a worker claims from which lives or lived lately. A worker that nobody has declared dead lived until its lease was over at
-- most. Both tables are small.
-- name: list_served_lanes
SELECT queue, kind, version FROM outlast_lane
WHERE id IN (
    SELECT own.value FROM outlast_worker AS worker CROSS JOIN json_each(worker.lanes) AS own
    WHERE coalesce(worker.ended_at, worker.lease_until) > :lived_after
);

-- When a worker was proven dead, by its lock; none for one that lives, was stopped or is only silent. Primary key.
-- name: find_death
SELECT ended_at FROM outlast_worker WHERE id = :worker AND ended_as = 'dead' AND is_alive = 0;

-- Whether a claim is current. Primary key.
-- name: find_claim
SELECT 1 FROM outlast_run WHERE id = :run AND token = :token AND status = 'running';
