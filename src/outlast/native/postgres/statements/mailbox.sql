-- Signals, and the runs that wait for them by name.

-- Append a signal; the sender's own one, tried again, changes nothing. No locks but the row's own.
-- name: append_signal
INSERT INTO outlast.signal (id, topic, run, payload, sent_at)
VALUES (%(id)s::uuid, %(topic)s, %(run)s::uuid, %(payload)s::json, coalesce(%(now)s::timestamptz, clock_timestamp()))
ON CONFLICT (id) DO NOTHING

-- The topics of the first signals that nobody has delivered, and how many of these signals each has: signal_undelivered, no locks.
-- name: list_undelivered
SELECT head.topic, count(*)
FROM (SELECT s.topic FROM outlast.signal s WHERE NOT s.is_delivered ORDER BY s.sequence LIMIT %(limit)s::bigint) AS head
GROUP BY head.topic

-- Lock topics until the commit, in one order whoever asks: against others that deliver on them, and against parking on them.
-- only here: on SQLite the immediate transaction is the lock.
-- name: lock_topics
SELECT outlast.lock_topics(ARRAY(SELECT json_array_elements_text(%(topics)s::json)))

-- Number the first signals of locked topics in the order of their sends: signal_undelivered, then by primary key. One that
-- somebody has locked is left, and so are the later ones of its topic, for they must not come before it.
-- name: number_signals
WITH head AS MATERIALIZED (
    SELECT s.sequence, s.topic, s.number FROM outlast.signal s WHERE NOT s.is_delivered ORDER BY s.sequence LIMIT %(limit)s::bigint
),
fresh AS MATERIALIZED (
    SELECT head.sequence, head.topic FROM head
    WHERE head.number IS NULL AND head.topic = ANY (ARRAY(SELECT json_array_elements_text(%(topics)s::json)))
),
locked AS MATERIALIZED (
    SELECT fresh.sequence, fresh.topic FROM fresh CROSS JOIN LATERAL (
        SELECT FROM outlast.signal s WHERE s.sequence = fresh.sequence AND s.number IS NULL FOR NO KEY UPDATE SKIP LOCKED
    ) AS found
),
skipped AS MATERIALIZED (
    SELECT fresh.topic, min(fresh.sequence) AS first FROM fresh
    WHERE fresh.sequence NOT IN (SELECT locked.sequence FROM locked) GROUP BY fresh.topic
),
numbered AS MATERIALIZED (
    SELECT ordered.sequence, nextval('outlast.signal_number') AS number FROM (
        SELECT locked.sequence FROM locked LEFT JOIN skipped ON skipped.topic = locked.topic
        WHERE skipped.first IS NULL OR locked.sequence < skipped.first
        ORDER BY locked.sequence OFFSET 0
    ) AS ordered
)
UPDATE outlast.signal s SET number = numbered.number FROM numbered WHERE s.sequence = numbered.sequence

-- Move a page of the runs that wait on topics with numbered signals to the claim index: wait_topic, then by primary key. The
-- caller has the topics locked. What somebody has locked is left for a later pass, for which the signal stays undelivered.
-- name: wake_named
WITH clock AS MATERIALIZED (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now),
head AS MATERIALIZED (
    SELECT s.topic, s.number FROM outlast.signal s WHERE NOT s.is_delivered ORDER BY s.sequence LIMIT %(limit)s::bigint
),
named AS MATERIALIZED (
    SELECT DISTINCT head.topic, 'waiting' AS status FROM head
    WHERE head.number IS NOT NULL AND head.topic = ANY (ARRAY(SELECT json_array_elements_text(%(topics)s::json)))
),
locked AS MATERIALIZED (
    SELECT found.id FROM named
    CROSS JOIN LATERAL (SELECT w.run, w.generation FROM outlast.wait w WHERE w.topic = named.topic OFFSET 0) AS waiter
    CROSS JOIN LATERAL (
        SELECT r.id FROM outlast.run r
        WHERE r.id = waiter.run AND r.generation = waiter.generation AND r.status = named.status
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS found
    LIMIT %(limit)s::bigint
)
UPDATE outlast.run r SET status = 'pending', due_at = least(r.due_at, clock.now) FROM clock, locked WHERE r.id = locked.id
RETURNING r.lane

-- Note of the first signals of locked topics that they are delivered, where nobody is left who waits on their topic:
-- signal_undelivered and wait_topic, then by primary keys.
-- name: mark_delivered
WITH head AS MATERIALIZED (
    SELECT s.sequence, s.topic FROM outlast.signal s WHERE NOT s.is_delivered AND s.number IS NOT NULL ORDER BY s.sequence LIMIT %(limit)s::bigint
),
named AS MATERIALIZED (
    SELECT DISTINCT head.topic, 'waiting' AS status FROM head WHERE head.topic = ANY (ARRAY(SELECT json_array_elements_text(%(topics)s::json)))
),
settled AS MATERIALIZED (
    SELECT named.topic FROM named
    WHERE NOT EXISTS (
        SELECT FROM (SELECT w.run, w.generation FROM outlast.wait w WHERE w.topic = named.topic OFFSET 0) AS waiter
        CROSS JOIN LATERAL (
            SELECT FROM outlast.run r WHERE r.id = waiter.run AND r.generation = waiter.generation AND r.status = named.status OFFSET 0
        ) AS found
    )
),
locked AS MATERIALIZED (
    SELECT head.sequence FROM head JOIN settled ON settled.topic = head.topic CROSS JOIN LATERAL (
        SELECT FROM outlast.signal s WHERE s.sequence = head.sequence FOR NO KEY UPDATE SKIP LOCKED
    ) AS found
)
UPDATE outlast.signal s SET is_delivered = true FROM locked WHERE s.sequence = locked.sequence

-- Let runs that this transaction has just parked go on at once, where a signal is there already on one of their topics, delivered
-- or not. A statement after the one that locked the topics, so that it sees what was committed before. Primary key, signal_topic.
-- name: wake_parked
WITH clock AS MATERIALIZED (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now),
batch AS MATERIALIZED (
    SELECT b.id, b.token FROM json_to_recordset(%(batch)s::json) AS b(id uuid, token bigint, topics json)
    WHERE EXISTS (
        SELECT FROM json_array_elements_text(b.topics) AS named(topic)
        CROSS JOIN LATERAL (SELECT FROM outlast.signal s WHERE s.topic = named.topic LIMIT 1) AS found
    )
)
UPDATE outlast.run r SET status = 'pending', due_at = clock.now FROM clock, batch b
WHERE r.id = b.id AND r.token = b.token AND r.status = 'waiting' AND r.xmin = pg_current_xact_id()::xid

-- Forget signals that were for a run, once the call that waited for them has its record, which this transaction has just kept:
-- before close_calls takes the wait away. By primary keys, then signal_topic.
-- name: delete_heard
DELETE FROM outlast.signal s
USING json_to_recordset(%(batch)s::json) AS b(run uuid, token bigint, generation bigint, path text, name text, number bigint)
JOIN outlast.step k ON k.run = b.run AND k.generation = b.generation AND k.path = b.path AND k.name = b.name AND k.number = b.number
    AND k.token = b.token AND k.xmin = pg_current_xact_id()::xid
JOIN outlast.wait w ON w.run = b.run AND w.generation = b.generation AND w.path = b.path AND w.name = b.name AND w.number = b.number
WHERE s.topic = w.topic AND s.run = w.run AND s.is_delivered

-- What follows for its questions and its mail when a run has ended without success in this transaction: decisions that are not used
-- yet are withdrawn, and signals for it go. decision_run and signal_run.
-- only here: SQLite has no statement that changes several tables, and does this in two.
-- name: withdraw_questions
WITH ended AS MATERIALIZED (
    SELECT r.id, coalesce(%(now)s::timestamptz, clock_timestamp()) AS now
    FROM json_to_recordset(%(batch)s::json) AS b(id uuid, token bigint)
    JOIN outlast.run r ON r.id = b.id
    WHERE r.token = b.token AND r.finished_at IS NOT NULL AND r.xmin = pg_current_xact_id()::xid
),
withdrawn AS (
    UPDATE outlast.decision d SET state = 'withdrawn', closed_at = ended.now FROM ended WHERE d.run = ended.id::text AND d.state IN ('open', 'answered')
)
DELETE FROM outlast.signal s USING ended WHERE s.run = ended.id

-- The open decisions of runs: decision_run, no locks.
-- name: list_questions
SELECT d.run, d.id, d.question, d.options
FROM unnest(%(runs)s::text[]) AS wanted(run) JOIN outlast.decision d ON d.run = wanted.run
WHERE d.state = 'open' ORDER BY d.run, d.opened_at, d.id
