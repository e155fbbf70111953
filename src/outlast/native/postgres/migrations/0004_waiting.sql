-- What runs wait for by name, and what people are asked. Code of version 2 goes on beside it: a wait without a name is what it was.

-- A wait ends at its instant, when its topic is signaled, or at what comes first. `due_at` is NULL for one that only its name ends.
ALTER TABLE outlast.wait ALTER COLUMN due_at DROP NOT NULL, ADD COLUMN topic text COLLATE "C";

CREATE INDEX wait_topic ON outlast.wait (topic) WHERE topic IS NOT NULL;

-- Only appended to. `sequence` is the order of the sends, and `number`, which a delivery gives under the topic's lock, the order
-- that everybody sees: a send that returned before another began has the smaller one. `run` is set on reserved topics, where a
-- signal is for one run and lives as long as that.
CREATE TABLE outlast.signal (
    sequence bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    id uuid NOT NULL UNIQUE,
    topic text COLLATE "C" NOT NULL,
    run uuid,
    payload json,
    sent_at timestamptz NOT NULL,
    number bigint,
    is_delivered boolean NOT NULL DEFAULT false
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

CREATE SEQUENCE outlast.signal_number;

CREATE INDEX signal_undelivered ON outlast.signal (sequence) WHERE NOT is_delivered;
CREATE INDEX signal_topic ON outlast.signal (topic, number);
CREATE INDEX signal_run ON outlast.signal (run) WHERE run IS NOT NULL;

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
