-- From the queue into a worker's hands.

-- Void the transaction unless the worker is alive, and hold off who would end it. A shared advisory lock till the commit.
-- name: fence
SELECT outlast.fence(%(worker)s::bigint)

-- What an idle worker looks at. One probe a lane on run_claim, one each on run_timer, run_deadline and signal_undelivered; no locks.
-- name: look
WITH clock AS MATERIALIZED (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now),
timer AS MATERIALIZED (SELECT min(due_at) AS due_at FROM outlast.run WHERE status = 'waiting' AND due_at IS NOT NULL)
SELECT EXISTS (
        SELECT FROM unnest(%(lanes)s::bigint[]) AS wanted(id)
        JOIN outlast.lane l ON l.id = wanted.id
        LEFT JOIN outlast.queue q ON q.name = l.queue
        CROSS JOIN LATERAL (
            SELECT r.due_at FROM outlast.run r
            WHERE r.lane = wanted.id AND r.status = 'pending' AND r.due_at <= clock.now
            ORDER BY r.priority, r.due_at, r.id LIMIT 1
        ) AS found
        WHERE q.paused_at IS NULL
    ),
    coalesce(timer.due_at <= clock.now, false), timer.due_at, clock.now,
    EXISTS (
        SELECT FROM outlast.run r
        WHERE r.deadline_at IS NOT NULL AND (r.status = 'waiting' OR (r.status = 'pending' AND r.token = 0)) AND r.deadline_at <= clock.now AND r.ending IS NULL
    ),
    (SELECT s.sequence FROM outlast.signal s WHERE NOT s.is_delivered ORDER BY s.sequence LIMIT 1) IS NOT NULL
FROM clock, timer

-- The first claimable runs of each lane by priority and due time: one ordered probe a lane on run_claim; no locks.
-- name: probe_lanes
WITH clock AS MATERIALIZED (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now)
SELECT found.id, wanted.id, found.priority, found.due_at, found.losses >= %(suspect)s::bigint
FROM clock CROSS JOIN unnest(%(lanes)s::bigint[]) AS wanted(id)
JOIN outlast.lane l ON l.id = wanted.id
LEFT JOIN outlast.queue q ON q.name = l.queue
CROSS JOIN LATERAL (
    SELECT r.id, r.priority, r.due_at, r.losses FROM outlast.run r
    WHERE r.lane = wanted.id AND r.status = 'pending' AND r.due_at <= clock.now
        AND r.losses < %(losses_below)s::bigint
    ORDER BY r.priority, r.due_at, r.id LIMIT %(limit)s::bigint
) AS found
WHERE q.paused_at IS NULL

-- The claimable runs of each lane that wait longest, whatever their priority: run_claim is entered once for each of the
-- few priorities that a lane has, first to find the next priority, then for its oldest runs. No locks.
-- only here: SQLite asks lane by lane and priority by priority, where a call costs nothing.
-- name: probe_oldest
WITH RECURSIVE clock AS MATERIALIZED (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now),
level AS (
    SELECT wanted.id AS lane, (
        SELECT r.priority FROM outlast.run r WHERE r.lane = wanted.id AND r.status = 'pending' ORDER BY r.priority LIMIT 1
    ) AS priority
    FROM unnest(%(lanes)s::bigint[]) AS wanted(id)
    JOIN outlast.lane l ON l.id = wanted.id
    LEFT JOIN outlast.queue q ON q.name = l.queue
    WHERE q.paused_at IS NULL
    UNION ALL
    SELECT level.lane, (
        SELECT r.priority FROM outlast.run r
        WHERE r.lane = level.lane AND r.status = 'pending' AND r.priority > level.priority ORDER BY r.priority LIMIT 1
    )
    FROM level WHERE level.priority IS NOT NULL
),
oldest AS (
    SELECT found.*, level.lane, level.priority, row_number() OVER (PARTITION BY level.lane ORDER BY found.due_at, found.id) AS place
    FROM clock CROSS JOIN level CROSS JOIN LATERAL (
        SELECT r.id, r.due_at, r.losses FROM outlast.run r
        WHERE r.lane = level.lane AND r.status = 'pending' AND r.priority = level.priority AND r.due_at <= clock.now
            AND r.losses < %(losses_below)s::bigint
        ORDER BY r.due_at, r.id LIMIT %(limit)s::bigint
    ) AS found
)
SELECT id, lane, priority, due_at, losses >= %(suspect)s::bigint FROM oldest WHERE place <= %(limit)s::bigint ORDER BY due_at, id

-- Claim runs by their primary key, in the order given: each is locked unless somebody else has it, then its status and
-- due time are tested again on the locked version, and only then the limit counts. The token is raised. The status comes
-- as a column, for a constant would let the planner walk all of run_claim instead.
-- name: claim_runs
WITH clock AS MATERIALIZED (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now),
wanted AS MATERIALIZED (SELECT given.id, given.place, 'pending' AS status, clock.now FROM clock, unnest(%(ids)s::uuid[]) WITH ORDINALITY AS given(id, place)),
locked AS MATERIALIZED (
    SELECT found.id, wanted.place, wanted.now
    FROM wanted CROSS JOIN LATERAL (
        SELECT r.id FROM outlast.run r
        WHERE r.id = wanted.id AND r.status = wanted.status AND r.due_at <= wanted.now
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS found
    LIMIT %(limit)s::bigint
),
claimed AS (
    UPDATE outlast.run r
    SET status = 'running', worker = %(worker)s::bigint, token = r.token + 1, due_at = NULL, claimed_at = locked.now, started_at = coalesce(r.started_at, locked.now)
    FROM locked WHERE r.id = locked.id
    RETURNING r.*, locked.place
)
SELECT c.id, c.token, c.lane, c.kind, c.version, c.generation, c.attempts, c.losses, b.seed, c.ending, b.input, b.headers, b.idempotency_key,
    c.deadline_at, c.started_at, c.claimed_at
FROM claimed c JOIN outlast.run_body b ON b.run = c.id
ORDER BY c.place

-- What the database says this worker holds; run_worker, no locks.
-- name: list_held
SELECT r.id, r.token, r.lane, r.kind, r.version, r.generation, r.attempts, r.losses, b.seed, r.ending, b.input, b.headers, b.idempotency_key,
    r.deadline_at, r.started_at, r.claimed_at
FROM outlast.run r JOIN outlast.run_body b ON b.run = r.id
WHERE r.worker = %(worker)s::bigint AND r.status = 'running'
ORDER BY r.id

-- Which holds are current, and what a claimed run is told at once; the last column says whether it has any history, for most
-- runs have none when they are claimed. By primary keys.
-- name: read_holds
SELECT r.id, r.token, r.cancel_requested_at IS NOT NULL, b.cancel_reason,
    coalesce(r.deadline_at <= coalesce(%(now)s::timestamptz, clock_timestamp()), false), b.retired_seq,
    EXISTS (SELECT FROM outlast.step s WHERE s.run = r.id AND s.generation = r.generation)
    OR EXISTS (SELECT FROM outlast.step_failure f WHERE f.run = r.id AND f.generation = r.generation)
    OR EXISTS (SELECT FROM outlast.wait w WHERE w.run = r.id AND w.generation = r.generation)
    OR EXISTS (SELECT FROM outlast.activity a WHERE a.run = r.id AND a.generation = r.generation)
FROM json_to_recordset(%(batch)s::json) AS h(run uuid, token bigint)
CROSS JOIN LATERAL (SELECT * FROM outlast.run WHERE id = h.run OFFSET 0) AS r
JOIN outlast.run_body b ON b.run = r.id
WHERE r.token = h.token AND r.status = 'running'

-- The four parts of a history, each by its table's primary key; no locks, for only the holder writes here.
-- name: read_records
SELECT s.run, s.path, s.name, s.number, s.seq, s.kind, s.outcome, s.digest, s.attempts, s.finished_at, s.result, s.error, s.started_at
FROM unnest(%(runs)s::uuid[]) AS h(run) JOIN outlast.run r ON r.id = h.run
JOIN outlast.step s ON s.run = r.id AND s.generation = r.generation
ORDER BY s.run, s.seq

-- Failed attempts, oldest first, by step_failure's primary key.
-- name: read_failures
SELECT f.run, f.path, f.name, f.number, f.attempt, f.error, f.started_at, f.failed_at, f.retry_at, f.is_retired
FROM unnest(%(runs)s::uuid[]) AS h(run) JOIN outlast.run r ON r.id = h.run
JOIN outlast.step_failure f ON f.run = r.id AND f.generation = r.generation
ORDER BY f.run, f.path, f.name, f.number, f.attempt

-- Open waits, by wait's primary key.
-- name: read_waits
SELECT w.run, w.path, w.name, w.number, w.kind, w.due_at, w.topic, w.after
FROM unnest(%(runs)s::uuid[]) AS h(run) JOIN outlast.run r ON r.id = h.run
JOIN outlast.wait w ON w.run = r.id AND w.generation = r.generation
ORDER BY w.run, w.due_at, w.path, w.name, w.number

-- What long steps last said, by activity's primary key.
-- name: read_progress
SELECT a.run, a.path, a.name, a.number, a.attempt, a.started_at, a.done, a.total, a.note
FROM unnest(%(runs)s::uuid[]) AS h(run) JOIN outlast.run r ON r.id = h.run
JOIN outlast.activity a ON a.run = r.id AND a.generation = r.generation
ORDER BY a.run, a.path, a.name, a.number
