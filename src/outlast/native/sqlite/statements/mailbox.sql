-- Signals, and the runs that wait for them by name. One immediate transaction writes at a time: no topic is locked.

-- Appends a signal, unless its id is there, or its key on its topic. Unique index of id; index: signal_key.
-- name: append_signal
INSERT INTO outlast_signal (id, topic, run, payload, payload_digest, headers, idempotency_key, sent_at, expires_at)
VALUES (:id, :topic, :run, :payload, :payload_digest, :headers, :idempotency_key, :now, :now + :ttl)
ON CONFLICT DO NOTHING;

-- What an append has met: by id, or by topic and key, and whether that has expired. Unique index of id; index: signal_key.
-- name: find_sent
SELECT id, payload_digest, coalesce(expires_at <= :now, 0) FROM outlast_signal WHERE id = :id
UNION ALL
SELECT id, payload_digest, coalesce(expires_at <= :now, 0) FROM outlast_signal INDEXED BY outlast_signal_key
WHERE topic = :topic AND idempotency_key = :key AND idempotency_key IS NOT NULL AND id <> :id;

-- Forgets a signal that has expired and whose key is wanted anew. Unique index of id.
-- name: delete_signal
DELETE FROM outlast_signal WHERE id = :id AND expires_at <= :now;

-- Sends what records send, where these were kept, in the order of the batch. A send that is there already, by its id, is the same
-- one. Unique index of step; the token is tested by way of the record.
-- name: send_signals
INSERT INTO outlast_signal (id, topic, run, payload, payload_digest, headers, idempotency_key, sent_at, expires_at)
SELECT value ->> 'id', value ->> 'topic', value ->> 'recipient', value ->> 'payload', value ->> 'payload_digest', value ->> 'headers',
    value ->> 'idempotency_key', :now, :now + (value ->> 'ttl')
FROM json_each(:batch) CROSS JOIN outlast_run_step AS step
WHERE step.run = value ->> 'run' AND step.generation = value ->> 'generation' AND step.path = value ->> 'path' AND step.name = value ->> 'name'
AND step.number = value ->> 'number' AND step.token = value ->> 'token'
ORDER BY json_each.key
ON CONFLICT DO NOTHING;

-- Moves the cursors of runs to the signals that their records have used up, where these were kept. Primary key; unique index of
-- step; the token is tested by way of the record.
-- name: move_cursors
INSERT INTO outlast_cursor (run, topic, number)
SELECT value ->> 'run', value ->> 'topic', value ->> 'heard'
FROM json_each(:batch) CROSS JOIN outlast_run_step AS step
WHERE step.run = value ->> 'run' AND step.generation = value ->> 'generation' AND step.path = value ->> 'path' AND step.name = value ->> 'name'
AND step.number = value ->> 'number' AND step.token = value ->> 'token'
ON CONFLICT (run, topic) DO UPDATE SET number = max(number, excluded.number);

-- The next signal on a topic for a run, the newest number there is, and whether one has no number yet. What has expired is passed
-- over. Primary key of cursor; index: signal_topic.
-- name: find_mail
SELECT next.id, next.number, next.payload, next.sent_at,
    coalesce((SELECT max(number) FROM outlast_signal INDEXED BY outlast_signal_topic WHERE topic = :topic), 0),
    EXISTS (
        SELECT 1 FROM outlast_signal INDEXED BY outlast_signal_topic
        WHERE topic = :topic AND number IS NULL AND (expires_at IS NULL OR expires_at > :now)
    )
FROM (SELECT 1) LEFT JOIN (
    SELECT id, number, coalesce(payload, 'null') AS payload, sent_at FROM outlast_signal INDEXED BY outlast_signal_topic
    WHERE topic = :topic AND number > max(:after, coalesce((SELECT number FROM outlast_cursor WHERE run = :run AND topic = :topic), 0))
    AND (expires_at IS NULL OR expires_at > :now)
    ORDER BY number LIMIT 1
) AS next ON true;

-- How many runs are parked on a topic, as far as it is counted. Index: wait_topic; primary key of run.
-- name: count_waiting
SELECT count(DISTINCT id) FROM (
    SELECT run.id FROM outlast_wait AS wait INDEXED BY outlast_wait_topic CROSS JOIN outlast_run AS run
    WHERE wait.topic = :topic AND run.id = wait.run AND run.generation = wait.generation AND run.status = 'waiting'
    LIMIT :limit
);

-- Forgets a page of signals whose time to live is over. Index: signal_expired.
-- name: delete_expired
DELETE FROM outlast_signal WHERE sequence IN (
    SELECT sequence FROM outlast_signal INDEXED BY outlast_signal_expired WHERE expires_at <= :now ORDER BY expires_at LIMIT :limit
);

-- The topics of the first signals that nobody has delivered, and how many of these signals each has. Index: signal_undelivered.
-- name: list_undelivered
SELECT topic, count(*)
FROM (SELECT topic FROM outlast_signal INDEXED BY outlast_signal_undelivered WHERE is_delivered = 0 ORDER BY sequence LIMIT :limit)
GROUP BY topic;

-- Numbers the first signals in the order of their sends, which is the order of their commits too. Index: signal_undelivered.
-- name: number_signals
UPDATE outlast_signal SET number = sequence
WHERE number IS NULL AND sequence IN (
    SELECT sequence FROM outlast_signal INDEXED BY outlast_signal_undelivered WHERE is_delivered = 0 ORDER BY sequence LIMIT :limit
);

-- Moves a page of the runs that wait on topics to the claimable ones, unless they have seen what is there, or it has expired.
-- Indexes: signal_undelivered, wait_topic; primary key of run.
-- name: wake_named
UPDATE outlast_run SET status = 'pending', due_at = min(coalesce(due_at, :now), :now)
WHERE id IN (
    SELECT DISTINCT run.id
    FROM (
        SELECT topic, max(number) AS newest FROM (
            SELECT topic, number, expires_at FROM outlast_signal INDEXED BY outlast_signal_undelivered
            WHERE is_delivered = 0 ORDER BY sequence LIMIT :limit
        )
        WHERE expires_at IS NULL OR expires_at > :now GROUP BY topic
    ) AS named CROSS JOIN outlast_wait AS wait CROSS JOIN outlast_run AS run
    WHERE wait.topic = named.topic AND wait.after < named.newest
    AND run.id = wait.run AND run.generation = wait.generation AND run.status = 'waiting'
    LIMIT :limit
)
RETURNING id, lane;

-- Notes in the waits of runs that were just woken that all that is there has woken them, so that the next pass does not walk them again.
-- Primary key of wait; index: signal_topic.
-- only here: SQLite has no statement that changes several tables; PostgreSQL does this in wake_named.
-- name: note_woken
UPDATE outlast_wait
SET after = max(after, coalesce((SELECT max(number) FROM outlast_signal INDEXED BY outlast_signal_topic WHERE topic = outlast_wait.topic), 0))
WHERE topic IS NOT NULL AND run IN (SELECT value FROM json_each(:run_ids));

-- Notes of the first signals that they are delivered, where nobody is left who waits on their topic for what is newer than what he
-- has seen; what has expired nobody waits for. Indexes: signal_undelivered, wait_topic.
-- name: mark_delivered
UPDATE outlast_signal SET is_delivered = 1
WHERE sequence IN (SELECT sequence FROM outlast_signal INDEXED BY outlast_signal_undelivered WHERE is_delivered = 0 ORDER BY sequence LIMIT :limit)
AND topic NOT IN (
    SELECT named.topic
    FROM (
        SELECT topic, max(number) AS newest FROM (
            SELECT topic, number, expires_at FROM outlast_signal INDEXED BY outlast_signal_undelivered
            WHERE is_delivered = 0 ORDER BY sequence LIMIT :limit
        )
        WHERE expires_at IS NULL OR expires_at > :now GROUP BY topic
    ) AS named
    WHERE EXISTS (
        SELECT 1 FROM outlast_wait AS wait CROSS JOIN outlast_run AS run
        WHERE wait.topic = named.topic AND wait.after < named.newest
        AND run.id = wait.run AND run.generation = wait.generation AND run.status = 'waiting'
    )
);

-- Lets runs that were just parked go on at once, where a signal is there already on one of their topics that is newer than what
-- they have seen, or has no number yet, and has not expired. Primary key; index: signal_topic.
-- name: wake_parked
UPDATE outlast_run SET status = 'pending', due_at = :now
FROM (
    SELECT parked.value ->> 'run' AS run, parked.value ->> 'token' AS token
    FROM json_each(:batch) AS parked
    WHERE EXISTS (
        SELECT 1 FROM json_each(parked.value, '$.waits') AS named CROSS JOIN outlast_signal AS signal INDEXED BY outlast_signal_topic
        WHERE signal.topic = named.value ->> 'topic' AND signal.number > named.value ->> 'after'
        AND (signal.expires_at IS NULL OR signal.expires_at > :now)
    ) OR EXISTS (
        SELECT 1 FROM json_each(parked.value, '$.waits') AS named CROSS JOIN outlast_signal AS signal INDEXED BY outlast_signal_topic
        WHERE signal.topic = named.value ->> 'topic' AND signal.number IS NULL AND (signal.expires_at IS NULL OR signal.expires_at > :now)
    )
) AS new
WHERE outlast_run.id = new.run AND outlast_run.token = new.token AND outlast_run.status = 'waiting';

-- Takes the named waits of runs that were just put down until a time only, such as those that back off: they wait for no name
-- any more. Primary key.
-- only here: SQLite has no statement that changes several tables; PostgreSQL does this in one with the change of the run.
-- name: delete_named_waits
DELETE FROM outlast_wait WHERE topic IS NOT NULL AND run IN (
    SELECT run.id FROM json_each(:run_ids) CROSS JOIN outlast_run AS run WHERE run.id = value AND run.status = 'waiting'
);

-- Forgets signals that were for a run, once the call that waited for them has its record, before the wait is taken away.
-- Primary key of wait; index: signal_topic. The token is tested by way of the record.
-- name: delete_heard
DELETE FROM outlast_signal WHERE sequence IN (
    SELECT signal.sequence
    FROM json_each(:batch) CROSS JOIN outlast_run_step AS step CROSS JOIN outlast_wait AS wait CROSS JOIN outlast_signal AS signal
    WHERE step.run = value ->> 'run' AND step.generation = value ->> 'generation' AND step.path = value ->> 'path' AND step.name = value ->> 'name'
    AND step.number = value ->> 'number' AND step.token = value ->> 'token'
    AND wait.run = step.run AND wait.generation = step.generation AND wait.path = step.path AND wait.name = step.name AND wait.number = step.number
    AND signal.topic = wait.topic AND signal.run = wait.run AND signal.is_delivered = 1
);

-- Withdraws what runs that have ended without success have asked and not used. Index: decision_run.
-- only here: SQLite has no statement that changes several tables; PostgreSQL does this in one with the signals.
-- name: withdraw_decisions
UPDATE outlast_decision SET state = 'withdrawn', closed_at = :now
WHERE run IN (SELECT value FROM json_each(:run_ids)) AND state IN ('open', 'answered');

-- Forgets signals for runs that are over. Index: signal_run.
-- only here: SQLite has no statement that changes several tables; PostgreSQL does this in one with the decisions.
-- name: delete_signals
DELETE FROM outlast_signal WHERE run IN (SELECT value FROM json_each(:run_ids));

-- Forgets how far pruned runs have come on their topics. Primary key.
-- only here: SQLite has no statement that changes several tables; PostgreSQL deletes all in one.
-- name: delete_cursors
DELETE FROM outlast_cursor WHERE run IN (SELECT value FROM json_each(:run_ids));

-- Forgets what pruned runs have asked. Index: decision_run.
-- only here: SQLite has no statement that changes several tables; PostgreSQL deletes all in one.
-- name: delete_decisions
DELETE FROM outlast_decision WHERE run IN (SELECT value FROM json_each(:run_ids));

-- The open decisions of runs. Index: decision_run.
-- name: list_questions
SELECT decision.run, decision.id, decision.question, decision.options
FROM json_each(:run_ids) CROSS JOIN outlast_decision AS decision
WHERE decision.run = value AND decision.state = 'open'
ORDER BY decision.run, decision.opened_at, decision.id;
