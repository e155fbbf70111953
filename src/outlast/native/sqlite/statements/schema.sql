-- The schema row.

-- Whether any migration was.
-- name: has_meta
SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'outlast_meta');

-- The row that says which migrations were applied.
-- name: find_meta
SELECT version, oldest_code FROM outlast_meta;

-- Which database it is, whatever way leads to it.
-- name: find_identity
SELECT schema_id FROM outlast_meta;
