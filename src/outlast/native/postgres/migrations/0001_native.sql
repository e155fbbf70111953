-- The native engine's tables, in a schema of their own. Instants are timestamptz, values json text kept as it came.
-- Words are text and never change. Text in keys has the C collation: equality and paging are the same in every database.

CREATE SCHEMA IF NOT EXISTS outlast;

-- One row. `id` tells whether two connections reach the same database.
CREATE TABLE outlast.meta (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    version bigint NOT NULL,
    oldest_code bigint NOT NULL
);

CREATE TABLE outlast.lane (
    id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    queue text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    UNIQUE (queue, kind, version)
);

CREATE TABLE outlast.queue (
    name text COLLATE "C" PRIMARY KEY,
    paused_at timestamptz
);

-- Narrow, because each change of status writes the row and an index anew: what is large or rarely changes is in run_body.
CREATE TABLE outlast.run (
    id uuid PRIMARY KEY,
    lane bigint NOT NULL,
    kind text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    priority bigint NOT NULL,
    status text COLLATE "C" NOT NULL,
    due_at timestamptz,
    worker bigint,
    token bigint NOT NULL DEFAULT 0,
    generation bigint NOT NULL DEFAULT 0,
    ending text,
    cancel_requested_at timestamptz,
    attempts bigint NOT NULL DEFAULT 0,
    recoveries bigint NOT NULL DEFAULT 0,
    losses bigint NOT NULL DEFAULT 0,
    strikes bigint NOT NULL DEFAULT 0,
    loss_mark bigint NOT NULL DEFAULT 0,
    deadline_at timestamptz,
    created_at timestamptz NOT NULL,
    started_at timestamptz,
    claimed_at timestamptz,
    finished_at timestamptz
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_analyze_scale_factor = 0.05);

CREATE INDEX run_claim ON outlast.run (lane, priority, due_at, id, losses) WHERE status = 'pending';
CREATE INDEX run_timer ON outlast.run (due_at) WHERE status = 'waiting' AND due_at IS NOT NULL;
CREATE INDEX run_worker ON outlast.run (worker) WHERE status = 'running';
CREATE INDEX run_dead_letter ON outlast.run (id) WHERE status IN ('failed', 'dead');
CREATE INDEX run_deadline ON outlast.run (deadline_at)
    WHERE deadline_at IS NOT NULL AND (status = 'waiting' OR (status = 'pending' AND token = 0));

-- Room is left on each page, so that the end of a run is written beside its input and touches no index.
CREATE TABLE outlast.run_body (
    run uuid PRIMARY KEY,
    input json NOT NULL,
    input_digest text NOT NULL,
    idempotency_key text,
    tags json NOT NULL,
    headers json NOT NULL,
    seed bigint NOT NULL,
    output json,
    error json,
    failed_path text,
    failed_name text,
    failed_number bigint,
    retired_seq bigint,
    cancel_reason text,
    verdict text,
    warnings text[] NOT NULL DEFAULT '{}'
) WITH (fillfactor = 70);

-- Apart from the run, because a key outlives it.
CREATE TABLE outlast.run_key (
    kind text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    run uuid NOT NULL,
    input_digest text NOT NULL,
    ended_status text,
    PRIMARY KEY (kind, key)
) WITH (fillfactor = 90);

-- Final records only; nothing here is ever updated.
CREATE TABLE outlast.step (
    run uuid NOT NULL,
    generation bigint NOT NULL,
    path text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    number bigint NOT NULL,
    seq bigint NOT NULL,
    kind text NOT NULL,
    outcome text NOT NULL,
    digest text NOT NULL,
    attempts bigint NOT NULL,
    token bigint NOT NULL,
    started_at timestamptz,
    finished_at timestamptz NOT NULL,
    result json,
    error json,
    PRIMARY KEY (run, generation, number, path, name)  -- columns of fixed width first: an entry is compared quicker
);

CREATE TABLE outlast.step_failure (
    run uuid NOT NULL,
    generation bigint NOT NULL,
    path text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    number bigint NOT NULL,
    attempt bigint NOT NULL,
    token bigint NOT NULL,
    error json NOT NULL,
    started_at timestamptz NOT NULL,
    failed_at timestamptz NOT NULL,
    retry_at timestamptz,
    is_retired boolean NOT NULL DEFAULT false,
    PRIMARY KEY (run, generation, path, name, number, attempt)
);

CREATE TABLE outlast.activity (
    run uuid NOT NULL,
    generation bigint NOT NULL,
    path text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    number bigint NOT NULL,
    attempt bigint NOT NULL,
    started_at timestamptz NOT NULL,
    done double precision,
    total double precision,
    note text NOT NULL,
    reports bigint NOT NULL,
    PRIMARY KEY (run, generation, path, name, number)
) WITH (fillfactor = 50);

CREATE TABLE outlast.wait (
    run uuid NOT NULL,
    generation bigint NOT NULL,
    path text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    number bigint NOT NULL,
    kind text NOT NULL,
    due_at timestamptz NOT NULL,
    PRIMARY KEY (run, generation, path, name, number)
);

-- A renewal changes no indexed column, and finds room on its page.
CREATE TABLE outlast.worker (
    id bigint PRIMARY KEY,
    name text NOT NULL,
    process text NOT NULL,
    lanes bigint[] NOT NULL,
    tasks json NOT NULL,
    lease interval NOT NULL,
    beat bigint NOT NULL DEFAULT 1,
    is_alive boolean NOT NULL DEFAULT true,
    is_idle boolean NOT NULL DEFAULT false,
    lease_until timestamptz NOT NULL,
    started_at timestamptz NOT NULL,
    ended_at timestamptz,
    "end" text,
    is_provable boolean NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

CREATE TABLE outlast.action (
    id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    at timestamptz NOT NULL,
    actor text NOT NULL,
    action text NOT NULL,
    run uuid,
    reason text NOT NULL
);

CREATE INDEX action_run ON outlast.action (run);

-- Voids the transaction unless the worker is alive, and holds off who would end it until the commit. The lock is taken
-- first and the row is read by a statement of its own, for one that began before the lock was had sees the time before it.
CREATE FUNCTION outlast.fence(worker_id bigint) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(worker_id);
    PERFORM FROM outlast.worker WHERE id = worker_id AND is_alive;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'worker % is not alive', worker_id USING ERRCODE = 'OL001';
    END IF;
END;
$$;

-- Accepts runs: keys first, and then the runs without a key and those whose key was free. Of callers at once with one key
-- one wins; the others wait for its commit. A run id that is there already is the caller's own call, tried again: nothing is
-- written. Returns null when all were written, else of each run whose its key is and the digest of the input that is kept:
-- read by a statement after the one that met it, so that it sees what was committed meanwhile. A function keeps its plans,
-- and one that returns a single value costs the least.
CREATE FUNCTION outlast.accept_runs(batch json, batch_count bigint, at timestamptz) RETURNS json LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    accepted_count bigint;
BEGIN
    WITH clock AS MATERIALIZED (SELECT coalesce(at, clock_timestamp()) AS now),
    given AS MATERIALIZED (
        SELECT b.*, clock.now
        FROM clock, json_to_recordset(batch) AS b(
            id uuid, lane bigint, kind text, version bigint, priority bigint, due_at timestamptz, deadline_at timestamptz,
            seed bigint, input text, input_digest text, idempotency_key text, tags text, headers text)
    ),
    won AS (
        INSERT INTO outlast.run_key (kind, key, run, input_digest)
        SELECT g.kind, g.idempotency_key, g.id, g.input_digest FROM given g WHERE g.idempotency_key IS NOT NULL
        ON CONFLICT DO NOTHING
        RETURNING run
    ),
    fresh AS MATERIALIZED (SELECT * FROM given g WHERE g.idempotency_key IS NULL OR g.id IN (SELECT won.run FROM won)),
    bodies AS (
        INSERT INTO outlast.run_body (run, input, input_digest, idempotency_key, tags, headers, seed)
        SELECT f.id, f.input::json, f.input_digest, f.idempotency_key, coalesce(f.tags, '[]')::json, coalesce(f.headers, '{}')::json, f.seed FROM fresh f
        ON CONFLICT DO NOTHING
    )
    INSERT INTO outlast.run (id, lane, kind, version, priority, status, due_at, deadline_at, created_at)
    SELECT f.id, f.lane, f.kind, f.version, f.priority, CASE WHEN f.due_at > f.now THEN 'waiting' ELSE 'pending' END, coalesce(f.due_at, f.now), f.deadline_at, f.now
    FROM fresh f
    ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS accepted_count = ROW_COUNT;
    IF accepted_count = batch_count THEN
        RETURN NULL;
    END IF;
    IF EXISTS (
        SELECT FROM json_to_recordset(batch) AS b(id uuid, kind text, idempotency_key text)
        WHERE b.idempotency_key IS NOT NULL
            AND NOT EXISTS (SELECT FROM outlast.run_key k WHERE k.kind = b.kind AND k.key = b.idempotency_key)
            AND NOT EXISTS (SELECT FROM outlast.run_body r WHERE r.run = b.id)
    ) THEN
        RAISE EXCEPTION 'a key that was taken was pruned in this very moment: try again' USING ERRCODE = 'serialization_failure';
    END IF;
    RETURN (
        SELECT json_agg(json_build_array(b.id, coalesce(k.run, b.id), coalesce(k.input_digest, r.input_digest, b.input_digest)))
        FROM json_to_recordset(batch) AS b(id uuid, kind text, input_digest text, idempotency_key text)
        LEFT JOIN outlast.run_key k ON k.kind = b.kind AND k.key = b.idempotency_key
        LEFT JOIN outlast.run_body r ON r.run = b.id
    );
END;
$$;

-- Wakes whoever asked to be woken for these lanes. After a commit, in a transaction of its own: a worker that says that it is
-- idle looks once more after that, so that either it sees what was committed or it is seen here. Nothing is lost with it, so that
-- it neither waits for a lock for long nor for the disk.
CREATE FUNCTION outlast.wake_idle(wanted bigint[], channel text, payload text) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM set_config('lock_timeout', '100ms', true);
    IF EXISTS (SELECT FROM outlast.worker w WHERE w.is_alive AND w.is_idle AND w.lanes && wanted) THEN
        PERFORM set_config('synchronous_commit', 'off', true), pg_notify(channel, payload);
    END IF;
END;
$$;

-- How far a run has come: it grows with each record, failed attempt and report. A record outweighs every report, because
-- the reports go when the record comes.
CREATE FUNCTION outlast.progress_mark(run_id uuid, run_generation bigint) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT 1000000 * (
            (SELECT count(*) FROM outlast.step WHERE run = run_id AND generation = run_generation)
            + (SELECT count(*) FROM outlast.step_failure WHERE run = run_id AND generation = run_generation))
        + coalesce((SELECT sum(reports) FROM outlast.activity WHERE run = run_id AND generation = run_generation), 0)::bigint
$$;

INSERT INTO outlast.meta (version, oldest_code) VALUES (1, 1);
