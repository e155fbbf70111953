-- Signals, and the runs that wait for them by name. One immediate transaction writes at a time: no topic is locked.

-- Appends a signal; the sender's own one, tried again, changes nothing. Primary key, unique index of id.
-- name: append_signal
INSERT INTO outlast_signal (id, topic, run, payload, sent_at) VALUES (:id, :topic, :run, :payload, :now)
ON CONFLICT (id) DO NOTHING;

-- The topics of the first signals that nobody has delivered, and how many of these signals each has. Index: signal_undelivered.
-- name: list_undelivered
SELECT topic, count(*) FROM (SELECT topic FROM outlast_signal WHERE is_delivered = 0 ORDER BY sequence LIMIT :limit) GROUP BY topic;

-- Numbers the first signals in the order of their sends, which is the order of their commits too. Index: signal_undelivered.
-- name: number_signals
UPDATE outlast_signal SET number = sequence
WHERE number IS NULL AND sequence IN (SELECT sequence FROM outlast_signal WHERE is_delivered = 0 ORDER BY sequence LIMIT :limit);

-- Moves a page of the runs that wait on topics to the claimable ones. Index: wait_topic; primary key of run.
-- name: wake_named
UPDATE outlast_run SET status = 'pending', due_at = min(coalesce(due_at, :now), :now)
WHERE id IN (
    SELECT run.id FROM json_each(:topics) CROSS JOIN outlast_wait AS wait CROSS JOIN outlast_run AS run
    WHERE wait.topic = value AND run.id = wait.run AND run.generation = wait.generation AND run.status = 'waiting'
    LIMIT :limit
)
RETURNING lane;

-- Notes of the first signals that they are delivered, where nobody is left who waits on their topic. Indexes: signal_undelivered, wait_topic.
-- name: mark_delivered
UPDATE outlast_signal SET is_delivered = 1
WHERE sequence IN (SELECT sequence FROM outlast_signal WHERE is_delivered = 0 ORDER BY sequence LIMIT :limit)
AND topic IN (
    SELECT value FROM json_each(:topics)
    WHERE NOT EXISTS (
        SELECT 1 FROM outlast_wait AS wait CROSS JOIN outlast_run AS run
        WHERE wait.topic = value AND run.id = wait.run AND run.generation = wait.generation AND run.status = 'waiting'
    )
);

-- Lets runs that were just parked go on at once, where a signal is there already on one of their topics, delivered or not.
-- Primary key; index: signal_topic.
-- name: wake_parked
UPDATE outlast_run SET status = 'pending', due_at = :now
FROM (
    SELECT parked.value ->> 'run' AS run, parked.value ->> 'token' AS token
    FROM json_each(:batch) AS parked
    WHERE EXISTS (SELECT 1 FROM json_each(parked.value, '$.topics') AS named CROSS JOIN outlast_signal AS signal WHERE signal.topic = named.value)
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
