-- What runs wait for by name, and what people are asked. Code of version 2 goes on beside it: a wait without a name is what it was.

-- A wait ends at its instant, when its topic is signaled, or at what comes first. `due_at` is NULL for one that only its name ends.
-- `after` is the number of the newest signal that was seen when it was registered: only what is newer ends it.
-- The table is made anew, because SQLite cannot take a NOT NULL away.
CREATE TABLE outlast_wait_by_name (
    run TEXT NOT NULL REFERENCES outlast_run (id),
    generation INTEGER NOT NULL,
    path TEXT NOT NULL,
    name TEXT NOT NULL,
    number INTEGER NOT NULL,
    kind TEXT NOT NULL,
    due_at INTEGER,
    topic TEXT,
    after INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (run, generation, path, name, number)
) STRICT, WITHOUT ROWID;

INSERT INTO outlast_wait_by_name (run, generation, path, name, number, kind, due_at)
SELECT run, generation, path, name, number, kind, due_at FROM outlast_wait;

DROP TABLE outlast_wait;

ALTER TABLE outlast_wait_by_name RENAME TO outlast_wait;

CREATE INDEX outlast_wait_topic ON outlast_wait (topic, after) WHERE topic IS NOT NULL;

-- Only appended to. `sequence` is the order of the sends, and `number`, which a delivery gives, the order that everybody sees.
-- `run` is set on reserved topics, where a signal is for one run and lives as long as that; on the others it lives until `expires_at`.
CREATE TABLE outlast_signal (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    topic TEXT NOT NULL,
    run TEXT,
    payload TEXT CHECK (payload IS NULL OR json_valid(payload)),
    payload_digest TEXT NOT NULL DEFAULT '',
    headers TEXT CHECK (headers IS NULL OR json_valid(headers)),
    idempotency_key TEXT,
    sent_at INTEGER NOT NULL,
    expires_at INTEGER,
    number INTEGER,
    is_delivered INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE INDEX outlast_signal_undelivered ON outlast_signal (sequence) WHERE is_delivered = 0;
CREATE INDEX outlast_signal_topic ON outlast_signal (topic, number);
CREATE INDEX outlast_signal_run ON outlast_signal (run) WHERE run IS NOT NULL;
CREATE INDEX outlast_signal_expired ON outlast_signal (expires_at) WHERE expires_at IS NOT NULL;
CREATE UNIQUE INDEX outlast_signal_key ON outlast_signal (topic, idempotency_key) WHERE idempotency_key IS NOT NULL;

-- The number of the last signal that a run was given on a topic. It moves in the commit of the record that has the signal.
CREATE TABLE outlast_cursor (
    run TEXT NOT NULL REFERENCES outlast_run (id),
    topic TEXT NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (run, topic)
) STRICT, WITHOUT ROWID;

-- Failed and dead runs, the latest first, for the attention list. An ordinary run's life never touches it.
CREATE INDEX outlast_run_ended_badly ON outlast_run (finished_at, id) WHERE status IN ('failed', 'dead');

-- No reference to the run: an effect without an engine asks too, and other engines' runs are no rows here. It goes when its run is pruned.
CREATE TABLE outlast_decision (
    id TEXT NOT NULL PRIMARY KEY,
    state TEXT NOT NULL CHECK (state IN ('open', 'answered', 'consumed', 'superseded', 'withdrawn')),
    run TEXT,
    generation INTEGER NOT NULL,
    step TEXT NOT NULL,
    question TEXT NOT NULL,
    about TEXT NOT NULL CHECK (json_valid(about)),
    digest TEXT NOT NULL,
    options TEXT NOT NULL,              -- JSON list, as needs_result
    needs_result TEXT NOT NULL,
    effect TEXT,
    opened_at INTEGER NOT NULL,
    answer TEXT,
    result TEXT CHECK (result IS NULL OR json_valid(result)),
    answered_by TEXT,
    note TEXT NOT NULL DEFAULT '',
    answered_at INTEGER,
    closed_at INTEGER,
    CHECK ((answer IS NULL) = (answered_at IS NULL) AND (answer IS NULL) = (answered_by IS NULL)),
    CHECK (answer IS NOT NULL OR state NOT IN ('answered', 'consumed')),
    CHECK ((closed_at IS NULL) = (state IN ('open', 'answered')))
) STRICT;

CREATE INDEX outlast_decision_open ON outlast_decision (opened_at, id) WHERE state = 'open';
CREATE INDEX outlast_decision_asked ON outlast_decision (opened_at, id);
CREATE INDEX outlast_decision_run ON outlast_decision (run, opened_at, id) WHERE run IS NOT NULL;

UPDATE outlast_meta SET version = 4;
