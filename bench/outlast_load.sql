-- name: any_unfinished
-- Whether any run has not ended. It stops at the first, and is asked only when every body of the process has ended.
SELECT EXISTS (SELECT FROM outlast.run WHERE status IN ('pending', 'running', 'waiting'))
