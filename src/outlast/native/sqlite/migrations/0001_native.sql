-- The tables of the native engine. They share the file with the application's own, so each name begins with outlast_.
-- Instants are microseconds since 1970 in UTC. Rows that are written often and small are WITHOUT ROWID: one tree each.

CREATE TABLE outlast_meta (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    schema_id TEXT NOT NULL,            -- random: tells this database from every other
    version INTEGER NOT NULL,           -- the last migration that was applied
    oldest_code INTEGER NOT NULL        -- the oldest code that works with it
) STRICT;

CREATE TABLE outlast_queue (
    name TEXT NOT NULL PRIMARY KEY,
    paused_at INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE outlast_lane (
    id INTEGER PRIMARY KEY,
    queue TEXT NOT NULL,
    kind TEXT NOT NULL,
    version INTEGER NOT NULL,
    UNIQUE (queue, kind, version)
) STRICT;

CREATE TABLE outlast_run (
    id TEXT NOT NULL PRIMARY KEY,
    kind TEXT NOT NULL,
    version INTEGER NOT NULL,
    lane INTEGER NOT NULL REFERENCES outlast_lane (id),
    priority INTEGER NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('pending', 'running', 'waiting', 'succeeded', 'failed', 'canceled', 'dead')),
    due_at INTEGER,
    worker INTEGER,
    token INTEGER NOT NULL DEFAULT 0,
    generation INTEGER NOT NULL DEFAULT 0,
    ending TEXT CHECK (ending IN ('failed', 'canceled')),
    cancel_requested_at INTEGER,
    attempts INTEGER NOT NULL DEFAULT 0,
    recoveries INTEGER NOT NULL DEFAULT 0,
    losses INTEGER NOT NULL DEFAULT 0,
    strikes INTEGER NOT NULL DEFAULT 0,
    loss_mark INTEGER NOT NULL DEFAULT 0,
    reports INTEGER NOT NULL DEFAULT 0, -- how often a step reported progress in this generation; begun anew with loss_mark
    deadline_at INTEGER,
    created_at INTEGER NOT NULL,
    started_at INTEGER,                 -- of the first claim
    claimed_at INTEGER,                 -- of the last one
    finished_at INTEGER,
    CHECK ((status = 'running') = (worker IS NOT NULL)),
    CHECK ((status IN ('succeeded', 'failed', 'canceled', 'dead')) = (finished_at IS NOT NULL)),
    CHECK (status <> 'pending' OR due_at IS NOT NULL)
) STRICT, WITHOUT ROWID;

CREATE INDEX outlast_run_claim ON outlast_run (lane, priority, due_at, id) WHERE status = 'pending';
CREATE INDEX outlast_run_timer ON outlast_run (due_at) WHERE status = 'waiting' AND due_at IS NOT NULL;
CREATE INDEX outlast_run_worker ON outlast_run (worker) WHERE status = 'running';
CREATE INDEX outlast_run_attention ON outlast_run (id) WHERE status IN ('failed', 'dead');
CREATE INDEX outlast_run_deadline ON outlast_run (deadline_at)
    WHERE deadline_at IS NOT NULL AND (status = 'waiting' OR (status = 'pending' AND token = 0));

CREATE TABLE outlast_run_body (
    run TEXT NOT NULL PRIMARY KEY REFERENCES outlast_run (id),
    seed INTEGER NOT NULL,
    input TEXT NOT NULL,
    input_digest TEXT NOT NULL,
    idempotency_key TEXT,
    tags TEXT NOT NULL,
    headers TEXT NOT NULL,
    output TEXT,
    error TEXT,
    failed_path TEXT,
    failed_name TEXT,
    failed_number INTEGER,
    retired_seq INTEGER,                -- the lowest seq of a record that a retry took out of the history
    cancel_reason TEXT,
    verdict TEXT,
    warnings TEXT NOT NULL DEFAULT '[]'
) STRICT;

-- Outlives its run, which may be pruned; therefore no foreign key.
CREATE TABLE outlast_run_key (
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    run TEXT NOT NULL,
    input_digest TEXT NOT NULL,
    ended_status TEXT,
    PRIMARY KEY (kind, key)
) STRICT, WITHOUT ROWID;

-- Final records. Named apart from outlast_step, which exactly-once steps in another database of the application use.
CREATE TABLE outlast_run_step (
    run TEXT NOT NULL REFERENCES outlast_run (id),
    generation INTEGER NOT NULL,
    path TEXT NOT NULL,
    name TEXT NOT NULL,
    number INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('step', 'transaction', 'effect', 'wait', 'until', 'ask', 'signal', 'sleep', 'timeout')),
    outcome TEXT NOT NULL CHECK (outcome IN ('result', 'error', 'resumed', 'given_up')),
    digest TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    token INTEGER NOT NULL,
    started_at INTEGER,
    finished_at INTEGER NOT NULL,
    error TEXT,
    result TEXT,
    UNIQUE (run, generation, path, name, number)
) STRICT;

CREATE TABLE outlast_step_failure (
    run TEXT NOT NULL REFERENCES outlast_run (id),
    generation INTEGER NOT NULL,
    path TEXT NOT NULL,
    name TEXT NOT NULL,
    number INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    token INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    failed_at INTEGER NOT NULL,
    retry_at INTEGER,
    is_retired INTEGER NOT NULL,
    error TEXT NOT NULL,
    PRIMARY KEY (run, generation, path, name, number, attempt)
) STRICT, WITHOUT ROWID;

CREATE TABLE outlast_activity (
    run TEXT NOT NULL REFERENCES outlast_run (id),
    generation INTEGER NOT NULL,
    path TEXT NOT NULL,
    name TEXT NOT NULL,
    number INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    done REAL,
    total REAL,
    note TEXT NOT NULL,
    PRIMARY KEY (run, generation, path, name, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE outlast_wait (
    run TEXT NOT NULL REFERENCES outlast_run (id),
    generation INTEGER NOT NULL,
    path TEXT NOT NULL,
    name TEXT NOT NULL,
    number INTEGER NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('sleep', 'timeout')),
    due_at INTEGER NOT NULL,
    PRIMARY KEY (run, generation, path, name, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE outlast_worker (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    process TEXT NOT NULL,
    beat INTEGER NOT NULL,
    is_alive INTEGER NOT NULL,
    is_idle INTEGER NOT NULL,
    lease INTEGER NOT NULL,             -- microseconds
    lease_until INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    ended_at INTEGER,
    ended_as TEXT CHECK (ended_as IN ('stopped', 'dead', 'silent')),
    lanes TEXT NOT NULL,                -- JSON list of lane numbers
    tasks TEXT NOT NULL,
    is_provable INTEGER NOT NULL        -- it holds a lock that ends with its process
) STRICT;

CREATE TABLE outlast_action (
    id INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    run TEXT,
    reason TEXT NOT NULL
) STRICT;

CREATE INDEX outlast_action_run ON outlast_action (run);

INSERT INTO outlast_meta (only, schema_id, version, oldest_code) VALUES (1, lower(hex(randomblob(16))), 1, 1);
