-- Decisions: questions put to people, and their answers. `found` are the states from which a change may come.

-- Put a question; one with this id that is there already stays as it is. Primary key.
-- name: open_decision
INSERT INTO outlast.decision (id, state, run, generation, step, question, about, digest, options, needs_result, effect, opened_at)
VALUES (%(id)s, 'open', %(run)s, %(generation)s::bigint, %(step)s, %(question)s, %(about)s::json, %(digest)s, %(options)s::text[],
    %(needs_result)s::text[], %(effect)s, coalesce(%(now)s::timestamptz, clock_timestamp()))
ON CONFLICT (id) DO NOTHING

-- One decision, by primary key; no locks.
-- name: find_decision
SELECT d.id, d.state, d.run, d.step, d.question, d.about, d.digest, d.effect, d.answer, d.result, d.answered_by, d.note,
    d.options, d.needs_result, d.opened_at, d.answered_at, d.closed_at
FROM outlast.decision d WHERE d.id = %(id)s

-- The same with its row locked until the commit: whoever answers or closes it meanwhile waits, or made us wait.
-- only here: on SQLite the immediate transaction keeps it as it is.
-- name: lock_decision
SELECT d.id, d.state, d.run, d.step, d.question, d.about, d.digest, d.effect, d.answer, d.result, d.answered_by, d.note,
    d.options, d.needs_result, d.opened_at, d.answered_at, d.closed_at
FROM outlast.decision d WHERE d.id = %(id)s FOR NO KEY UPDATE

-- Answer an open decision that is still about what the caller has seen. Primary key; of two at once the second finds it answered.
-- name: answer_decision
UPDATE outlast.decision d
SET state = 'answered', answer = %(answer)s, result = %(result)s::json, answered_by = %(answered_by)s, note = %(note)s,
    answered_at = coalesce(%(now)s::timestamptz, clock_timestamp())
WHERE d.id = %(id)s AND d.state = 'open' AND d.digest = %(digest)s

-- Close a decision, if it is in one of the states from which it can be closed so. Primary key.
-- name: close_decision
UPDATE outlast.decision d SET state = %(state)s, closed_at = coalesce(%(now)s::timestamptz, clock_timestamp())
WHERE d.id = %(id)s AND d.state = ANY (%(found)s::text[])

-- Withdraw what runs have asked and not used: decision_run.
-- name: withdraw_decisions
UPDATE outlast.decision d SET state = 'withdrawn', closed_at = coalesce(%(now)s::timestamptz, clock_timestamp())
WHERE d.run = ANY (%(runs)s::text[]) AND d.state = ANY (%(found)s::text[])

-- A page of open decisions, the latest asked first: decision_open, walked backwards.
-- name: list_open
SELECT d.id, d.state, d.run, d.step, d.question, d.about, d.digest, d.effect, d.answer, d.result, d.answered_by, d.note,
    d.options, d.needs_result, d.opened_at, d.answered_at, d.closed_at
FROM outlast.decision d
WHERE d.state = 'open' AND d.state = %(state)s
    AND (%(before)s::text IS NULL OR (d.opened_at, d.id) < (SELECT o.opened_at, o.id FROM outlast.decision o WHERE o.id = %(before)s))
ORDER BY d.opened_at DESC, d.id DESC LIMIT %(limit)s::bigint

-- A page of decisions in any state, or in one that is not open, the latest asked first: decision_asked, walked backwards.
-- name: list_decisions
SELECT d.id, d.state, d.run, d.step, d.question, d.about, d.digest, d.effect, d.answer, d.result, d.answered_by, d.note,
    d.options, d.needs_result, d.opened_at, d.answered_at, d.closed_at
FROM outlast.decision d
WHERE (%(state)s::text IS NULL OR d.state = %(state)s)
    AND (%(before)s::text IS NULL OR (d.opened_at, d.id) < (SELECT o.opened_at, o.id FROM outlast.decision o WHERE o.id = %(before)s))
ORDER BY d.opened_at DESC, d.id DESC LIMIT %(limit)s::bigint

-- All that a run has asked, in order: decision_run.
-- name: list_of_run
SELECT d.id, d.state, d.run, d.step, d.question, d.about, d.digest, d.effect, d.answer, d.result, d.answered_by, d.note,
    d.options, d.needs_result, d.opened_at, d.answered_at, d.closed_at
FROM outlast.decision d WHERE d.run = %(run)s ORDER BY d.opened_at, d.id
