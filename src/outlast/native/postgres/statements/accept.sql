-- Lanes and runs as they are accepted.

-- Which of these lanes are there. One index probe each on lane's unique key.
-- name: find_lanes
SELECT l.queue, l.kind, l.version, l.id
FROM json_to_recordset(%(batch)s::json) AS b(queue text, kind text, version bigint)
JOIN outlast.lane l ON l.queue = b.queue AND l.kind = b.kind AND l.version = b.version

-- Make lanes; of two callers at once the second waits for the first and then does nothing. Numbers may have gaps.
-- name: insert_lanes
INSERT INTO outlast.lane (queue, kind, version)
SELECT b.queue, b.kind, b.version
FROM json_to_recordset(%(batch)s::json) AS b(queue text, kind text, version bigint)
ORDER BY b.queue, b.kind, b.version
ON CONFLICT DO NOTHING

-- Accept runs; null, or when not all of them were written: of each its id, whose its key is, and the digest of the input that
-- is kept. A key that was met and is pruned in this very moment is a serialization failure. It locks keys of callers at once, until the commit of the first. The batch comes sorted by kind and key.
-- name: insert_runs
SELECT outlast.accept_runs(%(batch)s::json, %(count)s::bigint, %(now)s::timestamptz)
