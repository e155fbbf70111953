-- What runs wait for by name, and what people are asked. Code of version 2 goes on beside it: a wait without a name is what it was.

-- A wait ends at its instant, when its topic is signaled, or at what comes first. `due_at` is NULL for one that only its name ends.
-- `after` is the number of the newest signal that was seen when it was registered: only what is newer ends it.
ALTER TABLE outlast.wait ALTER COLUMN due_at DROP NOT NULL, ADD COLUMN topic text COLLATE "C", ADD COLUMN after bigint NOT NULL DEFAULT 0;

CREATE INDEX wait_topic ON outlast.wait (topic, after) WHERE topic IS NOT NULL;

-- Only appended to. `sequence` is the order of the sends, and `number`, which a delivery gives under the topic's lock, the order
-- that everybody sees: a send that returned before another began has the smaller one. `run` is set on reserved topics, where a
-- signal is for one run and lives as long as that; on the others it lives until `expires_at`.
CREATE TABLE outlast.signal (
    id uuid PRIMARY KEY,
    sequence bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    topic text COLLATE "C" NOT NULL,
    run uuid,
    payload json,
    payload_digest text NOT NULL DEFAULT '',
    headers json,
    idempotency_key text COLLATE "C",
    sent_at timestamptz NOT NULL,
    expires_at timestamptz,
    number bigint,
    is_delivered boolean NOT NULL DEFAULT false
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

CREATE SEQUENCE outlast.signal_number;

-- The only index with that order: who asks for the first ones must not be led through all that was ever delivered.
CREATE INDEX signal_undelivered ON outlast.signal (sequence) WHERE NOT is_delivered;
CREATE INDEX signal_topic ON outlast.signal (topic, number);
CREATE INDEX signal_run ON outlast.signal (run) WHERE run IS NOT NULL;
CREATE INDEX signal_expired ON outlast.signal (expires_at) WHERE expires_at IS NOT NULL;
CREATE UNIQUE INDEX signal_key ON outlast.signal (topic, idempotency_key) WHERE idempotency_key IS NOT NULL;

-- The number of the last signal that a run was given on a topic. It moves in the commit of the record that has the signal.
CREATE TABLE outlast.cursor (
    run uuid NOT NULL,
    topic text COLLATE "C" NOT NULL,
    number bigint NOT NULL,
    PRIMARY KEY (run, topic)
) WITH (fillfactor = 70);

-- Failed and dead runs, the latest first, for the attention list. An ordinary run's life never touches it.
CREATE INDEX run_attention ON outlast.run (finished_at, id) WHERE status IN ('failed', 'dead');

-- No reference to the run: an effect without an engine asks too, and other engines' runs are no rows here. It goes when its run is pruned.
CREATE TABLE outlast.decision (
    id text COLLATE "C" PRIMARY KEY,
    state text COLLATE "C" NOT NULL CHECK (state IN ('open', 'answered', 'consumed', 'superseded', 'withdrawn')),
    run text COLLATE "C",
    generation bigint NOT NULL,
    step text COLLATE "C" NOT NULL,
    question text NOT NULL,
    about json NOT NULL,
    digest text NOT NULL,
    options text[] NOT NULL,
    needs_result text[] NOT NULL,
    effect text,
    opened_at timestamptz NOT NULL,
    answer text,
    result json,
    answered_by text,
    note text NOT NULL DEFAULT '',
    answered_at timestamptz,
    closed_at timestamptz,
    CHECK ((answer IS NULL) = (answered_at IS NULL) AND (answer IS NULL) = (answered_by IS NULL)),
    CHECK (answer IS NOT NULL OR state NOT IN ('answered', 'consumed')),
    CHECK ((closed_at IS NULL) = (state IN ('open', 'answered')))
);

CREATE INDEX decision_open ON outlast.decision (opened_at, id) WHERE state = 'open';
CREATE INDEX decision_asked ON outlast.decision (opened_at, id);
CREATE INDEX decision_run ON outlast.decision (run, opened_at, id) WHERE run IS NOT NULL;

-- Locks topics until the end of the transaction, in one order whoever asks. The space of keys of two numbers is apart from that
-- of the workers' locks; 1869970540 is `outl`. Two topics of one key only wait for each other.
CREATE FUNCTION outlast.lock_topics(topics text[]) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    topic_key integer;
BEGIN
    FOR topic_key IN SELECT DISTINCT hashtext(topic) FROM unnest(topics) AS named(topic) ORDER BY 1 LOOP
        PERFORM pg_advisory_xact_lock(1869970540, topic_key);
    END LOOP;
END;
$$;

UPDATE outlast.meta SET version = 4;
