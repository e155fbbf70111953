-- Decisions: questions put to people, and their answers. `found` are the states from which a change may come.

-- Puts a question; one with this id that is there already stays as it is. Primary key.
-- name: open_decision
INSERT INTO outlast_decision (id, state, run, generation, step, question, about, digest, options, needs_result, effect, opened_at)
VALUES (:id, 'open', :run, :generation, :step, :question, :about, :digest, :options, :needs_result, :effect, :now)
ON CONFLICT (id) DO NOTHING;

-- One decision. Primary key.
-- name: find_decision
SELECT id, state, run, step, question, about, digest, effect, answer, result, answered_by, note, options, needs_result, opened_at, answered_at, closed_at
FROM outlast_decision WHERE id = :id;

-- Answers an open decision that is still about what the caller has seen. Primary key; of two at once the second finds it answered.
-- name: answer_decision
UPDATE outlast_decision
SET state = 'answered', answer = :answer, result = :result, answered_by = :answered_by, note = :note, answered_at = :now
WHERE id = :id AND state = 'open' AND digest = :digest;

-- Closes a decision, if it is in one of the states from which it can be closed so. Primary key.
-- name: close_decision
UPDATE outlast_decision SET state = :state, closed_at = :now WHERE id = :id AND state IN (SELECT value FROM json_each(:found));

-- Withdraws what runs have asked and not used. Index: decision_run.
-- name: withdraw_decisions
UPDATE outlast_decision SET state = 'withdrawn', closed_at = :now
WHERE run IN (SELECT value FROM json_each(:runs)) AND state IN (SELECT value FROM json_each(:found));

-- A page of open decisions, the latest asked first. Index: decision_open, walked backwards.
-- name: list_open
SELECT id, state, run, step, question, about, digest, effect, answer, result, answered_by, note, options, needs_result, opened_at, answered_at, closed_at
FROM outlast_decision INDEXED BY outlast_decision_open
WHERE state = 'open' AND state = :state
AND (:before IS NULL OR (opened_at, id) < (SELECT other.opened_at, other.id FROM outlast_decision AS other WHERE other.id = :before))
ORDER BY opened_at DESC, id DESC LIMIT :limit;

-- A page of decisions in any state, or in one that is not open, the latest asked first. Index: decision_asked, walked backwards.
-- name: list_decisions
SELECT id, state, run, step, question, about, digest, effect, answer, result, answered_by, note, options, needs_result, opened_at, answered_at, closed_at
FROM outlast_decision INDEXED BY outlast_decision_asked
WHERE (:state IS NULL OR state = :state)
AND (:before IS NULL OR (opened_at, id) < (SELECT other.opened_at, other.id FROM outlast_decision AS other WHERE other.id = :before))
ORDER BY opened_at DESC, id DESC LIMIT :limit;

-- All that a run has asked, in order. Index: decision_run.
-- name: list_of_run
SELECT id, state, run, step, question, about, digest, effect, answer, result, answered_by, note, options, needs_result, opened_at, answered_at, closed_at
FROM outlast_decision WHERE run = :run ORDER BY opened_at, id;
