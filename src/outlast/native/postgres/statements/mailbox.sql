-- Signals, and the runs that wait for them by name.

-- Append a signal, unless its id is there, or its key on its topic. No locks but the row's own; an equal key that is not
-- committed yet is waited for.
-- name: append_signal
INSERT INTO outlast.signal (id, topic, run, payload, payload_digest, headers, idempotency_key, sent_at, expires_at)
SELECT %(id)s::uuid, %(topic)s::text, %(run)s::uuid, %(payload)s::json, %(payload_digest)s::text, %(headers)s::json, %(key)s::text, clock.now,
    clock.now + make_interval(secs => %(ttl)s::double precision)
FROM (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now OFFSET 0) AS clock
ON CONFLICT DO NOTHING

-- What an append has met: by id, or by topic and key, and whether that has expired. In a statement after the append, so that it
-- sees what the append has waited for. Primary key and signal_key.
-- name: find_sent
SELECT s.id::text, s.payload_digest, coalesce(s.expires_at <= coalesce(%(now)s::timestamptz, clock_timestamp()), false)
FROM outlast.signal s WHERE s.id = %(id)s::uuid
UNION ALL
SELECT s.id::text, s.payload_digest, coalesce(s.expires_at <= coalesce(%(now)s::timestamptz, clock_timestamp()), false)
FROM outlast.signal s WHERE s.topic = %(topic)s AND s.idempotency_key = %(key)s::text AND s.id <> %(id)s::uuid

-- Forget a signal that has expired and whose key is wanted anew. Primary key.
-- name: delete_signal
DELETE FROM outlast.signal s WHERE s.id = %(id)s::uuid AND s.expires_at <= coalesce(%(now)s::timestamptz, clock_timestamp())

-- Send what records send, where this transaction has kept the record, in the order of the batch: step's primary key. A send that is
-- there already, by its id, is the same one.
-- name: send_signals
INSERT INTO outlast.signal (id, topic, run, payload, payload_digest, headers, idempotency_key, sent_at, expires_at)
SELECT b.id, b.topic, b.recipient, b.payload::json, b.payload_digest, b.headers::json, b.idempotency_key, clock.now, clock.now + make_interval(secs => b.ttl)
FROM (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now OFFSET 0) AS clock
CROSS JOIN json_to_recordset(%(batch)s::json) AS b(
    place bigint, run uuid, token bigint, generation bigint, path text, name text, number bigint, id uuid, topic text, recipient uuid,
    payload text, payload_digest text, headers text, idempotency_key text, ttl double precision)
CROSS JOIN LATERAL (
    SELECT FROM outlast.step k
    WHERE k.run = b.run AND k.generation = b.generation AND k.path = b.path AND k.name = b.name AND k.number = b.number
        AND k.token = b.token AND k.xmin = pg_current_xact_id()::xid OFFSET 0
) AS kept
ORDER BY b.place
ON CONFLICT DO NOTHING

-- Move the cursors of runs to the signals that their records have used up, where this transaction has kept the record. Primary keys.
-- name: move_cursors
INSERT INTO outlast.cursor AS c (run, topic, number)
SELECT b.run, b.topic, max(b.heard)
FROM json_to_recordset(%(batch)s::json) AS b(
    run uuid, token bigint, generation bigint, path text, name text, number bigint, topic text, heard bigint)
CROSS JOIN LATERAL (
    SELECT FROM outlast.step k
    WHERE k.run = b.run AND k.generation = b.generation AND k.path = b.path AND k.name = b.name AND k.number = b.number
        AND k.token = b.token AND k.xmin = pg_current_xact_id()::xid OFFSET 0
) AS kept
GROUP BY b.run, b.topic ORDER BY b.run, b.topic
ON CONFLICT (run, topic) DO UPDATE SET number = greatest(c.number, excluded.number)

-- The next signal on a topic for a run, the newest number there is, and whether one has no number yet; all in one view of the
-- database, so that nothing is between them. cursor's primary key and signal_topic; what has expired is passed over.
-- name: find_mail
WITH clock AS MATERIALIZED (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now),
seen AS MATERIALIZED (
    SELECT greatest(%(after)s::bigint, (SELECT c.number FROM outlast.cursor c WHERE c.run = %(run)s::uuid AND c.topic = %(topic)s)) AS number
)
SELECT next.id, next.number, next.payload, next.sent_at,
    coalesce((SELECT s.number FROM outlast.signal s WHERE s.topic = %(topic)s AND s.number IS NOT NULL ORDER BY s.number DESC LIMIT 1), 0),
    (
        SELECT s.sequence FROM outlast.signal s
        WHERE s.topic = %(topic)s AND s.number IS NULL AND (s.expires_at IS NULL OR s.expires_at > clock.now) LIMIT 1
    ) IS NOT NULL
FROM clock CROSS JOIN seen LEFT JOIN LATERAL (
    SELECT s.id::text, s.number, coalesce(s.payload::text, 'null') AS payload, s.sent_at FROM outlast.signal s
    WHERE s.topic = %(topic)s AND s.number > seen.number AND (s.expires_at IS NULL OR s.expires_at > clock.now)
    ORDER BY s.number LIMIT 1
) AS next ON true

-- How many runs are parked on a topic, as far as it is counted: wait_topic, then by primary key.
-- name: count_waiting
SELECT count(DISTINCT found.id) FROM (
    SELECT parked.id
    FROM (SELECT w.run, w.generation FROM outlast.wait w WHERE w.topic = %(topic)s OFFSET 0) AS waiter
    CROSS JOIN LATERAL (
        SELECT r.id FROM outlast.run r WHERE r.id = waiter.run AND r.generation = waiter.generation AND r.status = 'waiting' OFFSET 0
    ) AS parked
    LIMIT %(limit)s::bigint
) AS found

-- Forget a page of signals whose time to live is over: signal_expired, then by primary key. What is locked goes later.
-- name: delete_expired
WITH clock AS MATERIALIZED (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now),
gone AS MATERIALIZED (
    SELECT found.id FROM clock CROSS JOIN LATERAL (
        SELECT o.id FROM outlast.signal o WHERE o.expires_at <= clock.now ORDER BY o.expires_at LIMIT %(limit)s::bigint FOR UPDATE SKIP LOCKED
    ) AS found
)
DELETE FROM outlast.signal s WHERE s.id = ANY (ARRAY(SELECT gone.id FROM gone))

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
    SELECT s.id, s.sequence, s.topic, s.number FROM outlast.signal s WHERE NOT s.is_delivered ORDER BY s.sequence LIMIT %(limit)s::bigint
),
fresh AS MATERIALIZED (
    SELECT head.id, head.sequence, head.topic FROM head
    WHERE head.number IS NULL AND head.topic = ANY (ARRAY(SELECT json_array_elements_text(%(topics)s::json)))
),
locked AS MATERIALIZED (
    SELECT fresh.id, fresh.sequence, fresh.topic FROM fresh CROSS JOIN LATERAL (
        SELECT FROM outlast.signal s WHERE s.id = fresh.id AND s.number IS NULL FOR NO KEY UPDATE SKIP LOCKED
    ) AS found
),
skipped AS MATERIALIZED (
    SELECT fresh.topic, min(fresh.sequence) AS first FROM fresh
    WHERE fresh.id NOT IN (SELECT locked.id FROM locked) GROUP BY fresh.topic
),
numbered AS MATERIALIZED (
    SELECT ordered.id, nextval('outlast.signal_number') AS number FROM (
        SELECT locked.id FROM locked LEFT JOIN skipped ON skipped.topic = locked.topic
        WHERE skipped.first IS NULL OR locked.sequence < skipped.first
        ORDER BY locked.sequence OFFSET 0
    ) AS ordered
)
UPDATE outlast.signal s SET number = numbered.number FROM numbered WHERE s.id = numbered.id

-- Move a page of the runs that wait on topics with numbered signals to the claim index, unless they have seen these, or the
-- signals have expired: wait_topic, then by primary key. The caller has the topics locked. What somebody has locked is left for a
-- later pass, for which the signal stays undelivered. The waits note what has woken them, so that the next pass does not walk them
-- again. With each lane comes how many waits the page has, of which a run may have several.
-- name: wake_named
WITH clock AS MATERIALIZED (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now),
head AS MATERIALIZED (
    SELECT s.topic, s.number, s.expires_at FROM outlast.signal s WHERE NOT s.is_delivered ORDER BY s.sequence LIMIT %(limit)s::bigint
),
named AS MATERIALIZED (
    SELECT head.topic, max(head.number) AS newest, 'waiting' AS status FROM head CROSS JOIN clock
    WHERE head.number IS NOT NULL AND head.topic = ANY (ARRAY(SELECT json_array_elements_text(%(topics)s::json)))
        AND (head.expires_at IS NULL OR head.expires_at > clock.now)
    GROUP BY head.topic
),
locked AS MATERIALIZED (
    SELECT found.id, waiter.*, named.newest FROM named
    CROSS JOIN LATERAL (
        SELECT w.run, w.generation, w.path, w.name, w.number FROM outlast.wait w WHERE w.topic = named.topic AND w.after < named.newest OFFSET 0
    ) AS waiter
    CROSS JOIN LATERAL (
        SELECT r.id FROM outlast.run r
        WHERE r.id = waiter.run AND r.generation = waiter.generation AND r.status = named.status
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS found
    LIMIT %(limit)s::bigint
),
noted AS (
    UPDATE outlast.wait w SET after = l.newest FROM locked l
    WHERE w.run = l.run AND w.generation = l.generation AND w.path = l.path AND w.name = l.name AND w.number = l.number
),
woken AS (
    UPDATE outlast.run r SET status = 'pending', due_at = least(r.due_at, clock.now) FROM clock, locked WHERE r.id = locked.id
    RETURNING r.lane
)
SELECT woken.lane, (SELECT count(*) FROM locked) FROM woken

-- Note of the first signals of locked topics that they are delivered, where nobody is left who waits on their topic for what is
-- newer than what he has seen; what has expired nobody waits for. signal_undelivered and wait_topic, then by primary keys.
-- name: mark_delivered
WITH clock AS MATERIALIZED (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now),
head AS MATERIALIZED (
    SELECT s.id, s.topic, s.number, s.expires_at FROM outlast.signal s
    WHERE NOT s.is_delivered AND s.number IS NOT NULL ORDER BY s.sequence LIMIT %(limit)s::bigint
),
named AS MATERIALIZED (
    SELECT head.topic, max(head.number) FILTER (WHERE head.expires_at IS NULL OR head.expires_at > clock.now) AS newest, 'waiting' AS status
    FROM head CROSS JOIN clock WHERE head.topic = ANY (ARRAY(SELECT json_array_elements_text(%(topics)s::json))) GROUP BY head.topic
),
settled AS MATERIALIZED (
    SELECT named.topic FROM named
    WHERE NOT EXISTS (
        SELECT FROM (SELECT w.run, w.generation FROM outlast.wait w WHERE w.topic = named.topic AND w.after < named.newest OFFSET 0) AS waiter
        CROSS JOIN LATERAL (
            SELECT FROM outlast.run r WHERE r.id = waiter.run AND r.generation = waiter.generation AND r.status = named.status OFFSET 0
        ) AS found
    )
),
locked AS MATERIALIZED (
    SELECT head.id FROM head JOIN settled ON settled.topic = head.topic CROSS JOIN LATERAL (
        SELECT FROM outlast.signal s WHERE s.id = head.id FOR NO KEY UPDATE SKIP LOCKED
    ) AS found
)
UPDATE outlast.signal s SET is_delivered = true FROM locked WHERE s.id = locked.id

-- Let runs that this transaction has just parked go on at once, where a signal is there already on one of their topics that is newer
-- than what they have seen, or has no number yet, and has not expired. A statement after the one that locked the topics, so that
-- it sees what was committed before. Primary key, signal_topic.
-- name: wake_parked
WITH clock AS MATERIALIZED (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now),
batch AS MATERIALIZED (
    SELECT b.id, b.token FROM clock CROSS JOIN json_to_recordset(%(batch)s::json) AS b(id uuid, token bigint, waits json)
    WHERE EXISTS (
        SELECT FROM json_to_recordset(b.waits) AS w(topic text, after bigint)
        CROSS JOIN LATERAL (
            (
                SELECT 1 FROM outlast.signal s
                WHERE s.topic = w.topic AND s.number > w.after AND (s.expires_at IS NULL OR s.expires_at > clock.now) ORDER BY s.number LIMIT 1
            )
            UNION ALL
            (
                SELECT 1 FROM outlast.signal s
                WHERE s.topic = w.topic AND s.number IS NULL AND (s.expires_at IS NULL OR s.expires_at > clock.now) ORDER BY s.number LIMIT 1
            )
        ) AS found
    )
)
UPDATE outlast.run r SET status = 'pending', due_at = clock.now FROM clock, batch b
WHERE r.id = b.id AND r.token = b.token AND r.status = 'waiting' AND r.xmin = pg_current_xact_id()::xid

-- Forget signals that were for a run, once the call that waited for them has its record, which this transaction has just kept:
-- before close_calls takes the wait away. By primary keys, then signal_topic.
-- name: delete_heard
DELETE FROM outlast.signal s
USING json_to_recordset(%(batch)s::json) AS b(run uuid, token bigint, generation bigint, path text, name text, number bigint)
CROSS JOIN LATERAL (
    SELECT FROM outlast.step k
    WHERE k.run = b.run AND k.generation = b.generation AND k.path = b.path AND k.name = b.name AND k.number = b.number
        AND k.token = b.token AND k.xmin = pg_current_xact_id()::xid OFFSET 0
) AS kept
CROSS JOIN LATERAL (
    SELECT o.topic FROM outlast.wait o
    WHERE o.run = b.run AND o.generation = b.generation AND o.path = b.path AND o.name = b.name AND o.number = b.number OFFSET 0
) AS w
WHERE s.topic = w.topic AND s.run = b.run AND s.is_delivered

-- What follows for its questions and its mail when a run has ended so, without success, under this token: decisions that are not used
-- yet are withdrawn, and signals for it go. A refused end of a run that had ended otherwise changes nothing. decision_run and signal_run.
-- only here: SQLite has no statement that changes several tables, and does this in two.
-- name: withdraw_questions
WITH ended AS MATERIALIZED (
    SELECT r.id FROM json_to_recordset(%(batch)s::json) AS b(id uuid, token bigint, status text)
    CROSS JOIN LATERAL (SELECT o.id FROM outlast.run o WHERE o.id = b.id AND o.token = b.token AND o.status = b.status AND o.finished_at IS NOT NULL OFFSET 0) AS r
),
withdrawn AS (
    UPDATE outlast.decision d SET state = 'withdrawn', closed_at = coalesce(%(now)s::timestamptz, clock_timestamp())
    WHERE d.run = ANY (ARRAY(SELECT id::text FROM ended)) AND d.state IN ('open', 'answered')
)
DELETE FROM outlast.signal s WHERE s.run = ANY (ARRAY(SELECT id FROM ended))

-- The open decisions of runs: decision_run, no locks.
-- name: list_questions
SELECT d.run, d.id, d.question, d.options
FROM unnest(%(runs)s::text[]) AS wanted(run) JOIN outlast.decision d ON d.run = wanted.run
WHERE d.state = 'open' ORDER BY d.run, d.opened_at, d.id
