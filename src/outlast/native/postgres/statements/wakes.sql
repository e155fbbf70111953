-- Wake-ups are notifications. PostgreSQL keeps those of different databases apart.

-- Begin to listen on a connection of one's own: on everybody's channel, and on one for testing that this works.
-- only here: SQLite watches its file.
-- name: listen
LISTEN outlast_wake

-- Tell everybody who listens, at the commit.
-- only here: SQLite watches its file.
-- name: notify
SELECT pg_notify(%(channel)s, %(payload)s)

-- Tell everybody who listens, if one of those who may claim from these lanes is idle. By itself, right after a commit.
-- only here: SQLite watches its file.
-- name: wake_idle
SELECT outlast.wake_idle(%(lanes)s::bigint[], %(channel)s, %(payload)s)
