-- The ledger's tables: what effects were planned, attempted and done. Code of version 2 goes on beside them.

-- Handed outside with each attempt, so that a later attempt of whatever operation has a greater one. Never cached: numbers of
-- one session before those of another would not grow.
CREATE SEQUENCE outlast.attempt_token CACHE 1;

-- Written three times or more in its life, never in an indexed column but when another run takes it over: room is left on each page.
-- `run` is empty without an engine; an operation may outlive its run, and other engines' runs are no rows here.
CREATE TABLE outlast.operation (
    effect text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    status text COLLATE "C" NOT NULL,
    attempt bigint NOT NULL DEFAULT 0,
    run text COLLATE "C" NOT NULL,
    generation bigint NOT NULL,
    step text COLLATE "C" NOT NULL,
    token bigint NOT NULL,
    worker bigint,
    reconciles bigint NOT NULL DEFAULT 0,
    decision text COLLATE "C",
    planned_at timestamptz NOT NULL,
    changed_at timestamptz NOT NULL,
    digest text COLLATE "C" NOT NULL,
    arguments json,
    result json,
    error json,
    PRIMARY KEY (effect, key)
) WITH (fillfactor = 70);

CREATE INDEX operation_run ON outlast.operation (run, planned_at) WHERE run <> '';

-- `timeout` and `settle` are microseconds: an interval of days would be read as the session's style says. `lingers`: a thread of it goes
-- on, though nobody waits for it any more.
CREATE TABLE outlast.operation_attempt (
    effect text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    number bigint NOT NULL,
    token bigint NOT NULL,
    run text COLLATE "C" NOT NULL,
    run_token bigint NOT NULL,
    worker bigint,
    started_at timestamptz NOT NULL,
    timeout bigint NOT NULL,
    settle bigint NOT NULL,
    lease_until timestamptz,
    outcome text COLLATE "C",
    ended_at timestamptz,
    error json,
    late json,
    lingers boolean NOT NULL DEFAULT false,
    PRIMARY KEY (effect, key, number)
) WITH (fillfactor = 70);

UPDATE outlast.meta SET version = 3;
