-- What comes due, and what a holder must be told.

-- Move waiting runs whose time has come to the claim index, a page by run_timer; what somebody has locked is left for the
-- next pass. They keep their due time, so that they queue by it.
-- name: wake_due
WITH due AS MATERIALIZED (
    SELECT r.id FROM outlast.run r
    WHERE r.status = 'waiting' AND r.due_at IS NOT NULL AND r.due_at <= coalesce(%(now)s::timestamptz, (SELECT clock_timestamp()))
    ORDER BY r.due_at LIMIT %(limit)s::bigint
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE outlast.run r SET status = 'pending' FROM due WHERE r.id = due.id
RETURNING r.lane

-- Lock a page of runs past their deadline that nobody holds, by run_deadline, skipping what is locked. What ran before and
-- is claimable already only waits for its claim, and a rollback phase has no deadline.
-- name: lock_overdue
SELECT r.id, r.token, r.status, r.deadline_at, b.idempotency_key
FROM outlast.run r JOIN outlast.run_body b ON b.run = r.id
WHERE r.deadline_at IS NOT NULL AND (r.status = 'waiting' OR (r.status = 'pending' AND r.token = 0))
    AND r.deadline_at <= coalesce(%(now)s::timestamptz, (SELECT clock_timestamp())) AND r.ending IS NULL
ORDER BY r.deadline_at LIMIT %(limit)s::bigint
FOR NO KEY UPDATE OF r SKIP LOCKED

-- The held runs of a worker that were canceled or are past their deadline; run_worker, no locks.
-- name: list_flagged
WITH clock AS MATERIALIZED (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now)
SELECT r.id, r.token, r.cancel_requested_at IS NOT NULL, b.cancel_reason, coalesce(r.deadline_at <= clock.now, false)
FROM clock CROSS JOIN outlast.run r JOIN outlast.run_body b ON b.run = r.id
WHERE r.worker = %(worker)s::bigint AND r.status = 'running' AND (r.cancel_requested_at IS NOT NULL OR r.deadline_at <= clock.now)
ORDER BY r.id
