-- The ledger's tables: what effects were planned, attempted and done. Code of version 2 goes on beside them.

-- The last number that was handed outside with an attempt. It only grows, whatever is deleted.
CREATE TABLE outlast_attempt_token (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    last INTEGER NOT NULL
) STRICT;

INSERT INTO outlast_attempt_token (only, last) VALUES (1, 0);

-- No reference to the run: an operation may outlive it, and other engines' runs are no rows here. `run` is empty without an engine.
CREATE TABLE outlast_operation (
    effect TEXT NOT NULL,
    key TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('planned', 'attempting', 'unknown', 'asked', 'done', 'failed')),
    attempt INTEGER NOT NULL DEFAULT 0,
    run TEXT NOT NULL,
    generation INTEGER NOT NULL,
    step TEXT NOT NULL,
    token INTEGER NOT NULL,
    worker INTEGER,
    reconciles INTEGER NOT NULL DEFAULT 0, -- how often in a row the reconciler itself raised
    decision TEXT,
    planned_at INTEGER NOT NULL,
    changed_at INTEGER NOT NULL,
    digest TEXT NOT NULL,
    arguments TEXT CHECK (arguments IS NULL OR json_valid(arguments)),
    result TEXT CHECK (result IS NULL OR json_valid(result)),
    error TEXT,
    UNIQUE (effect, key)
) STRICT;

CREATE INDEX outlast_operation_run ON outlast_operation (run, planned_at) WHERE run <> '';

CREATE TABLE outlast_operation_attempt (
    effect TEXT NOT NULL,
    key TEXT NOT NULL,
    number INTEGER NOT NULL,
    token INTEGER NOT NULL,
    run TEXT NOT NULL,
    run_token INTEGER NOT NULL,
    worker INTEGER,
    started_at INTEGER NOT NULL,
    timeout INTEGER NOT NULL,           -- microseconds, as settle
    settle INTEGER NOT NULL,
    lease_until INTEGER,
    outcome TEXT CHECK (outcome IN ('done', 'not_done', 'unknown')),
    ended_at INTEGER,
    error TEXT,
    late TEXT CHECK (late IS NULL OR json_valid(late)),
    lingers INTEGER NOT NULL DEFAULT 0 CHECK (lingers IN (0, 1)), -- a thread of it goes on, though nobody waits for it any more
    UNIQUE (effect, key, number)
) STRICT;

UPDATE outlast_meta SET version = 3;
