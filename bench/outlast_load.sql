-- name: make_note_table
-- What transactional steps write to: a table of the application's, in the engine's database.
CREATE TABLE IF NOT EXISTS note (number bigint NOT NULL)

-- name: write_note
-- The least that a transactional step can write.
INSERT INTO note (number) VALUES (%s)

-- name: any_unfinished
-- Whether any run has not ended. It stops at the first, and is asked only when every body of the process has ended.
SELECT EXISTS (SELECT FROM outlast.run WHERE status IN ('pending', 'running', 'waiting'))

-- name: count_waiting
-- How many runs wait. Asked before anything is timed.
SELECT count(*) FROM outlast.run WHERE status = 'waiting'
