-- What an application's database keeps of the transactional steps that wrote to it, where the engine has another database.

-- A step that was committed here, with its result: it is never committed again.
CREATE TABLE outlast_step (
    run uuid NOT NULL,
    generation bigint NOT NULL,
    key text COLLATE "C" NOT NULL,
    token bigint NOT NULL,
    result json NOT NULL,
    committed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (run, generation, key)
);

-- The newest claim of a run that has committed here: an older one is refused.
CREATE TABLE outlast_fence (
    run uuid PRIMARY KEY,
    token bigint NOT NULL
);
