-- What an application's database keeps of the transactional steps that wrote to it, where the engine has another database.

-- A step that was committed here, with its result: it is never committed again.
CREATE TABLE outlast_step (
    run TEXT NOT NULL,
    generation INTEGER NOT NULL,
    key TEXT NOT NULL,
    token INTEGER NOT NULL,
    result TEXT NOT NULL,
    committed_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    PRIMARY KEY (run, generation, key)
) WITHOUT ROWID;

-- The newest claim of a run that has committed here: an older one is refused.
CREATE TABLE outlast_fence (
    run TEXT PRIMARY KEY,
    token INTEGER NOT NULL
) WITHOUT ROWID;
