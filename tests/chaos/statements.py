"""The checker's own SQL: triggers that note every committed change of a row, and the tables as they are at the end.

Each change gets a number while its row is locked, so that for one row the numbers are the order of the commits. A change
that was rolled back leaves none. Between a record and the claim that follows it the order holds too: who takes a worker's
runs away waits for the worker's open transactions.
"""

POSTGRES_AUDIT = """
CREATE SCHEMA chaos;
CREATE TABLE chaos.audit (
    id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    at double precision NOT NULL DEFAULT extract(epoch FROM clock_timestamp()),
    place text NOT NULL,
    old json,
    new json
);
CREATE FUNCTION chaos.note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO chaos.audit (place, old, new) VALUES (TG_TABLE_NAME,
        CASE WHEN TG_OP <> 'INSERT' THEN to_json(OLD) END, CASE WHEN TG_OP <> 'DELETE' THEN to_json(NEW) END);
    RETURN NULL;
END;
$$;
"""
POSTGRES_TRIGGER = "CREATE TRIGGER chaos_note AFTER INSERT OR UPDATE OR DELETE ON outlast.{table} FOR EACH ROW EXECUTE FUNCTION chaos.note()"
POSTGRES_INDEX_CHECK = """
SELECT c.relname, bt_index_check(c.oid) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'outlast' AND c.relkind = 'i'
"""

SQLITE_AUDIT = """
CREATE TABLE chaos_audit (id INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, place TEXT NOT NULL, old TEXT, new TEXT);
CREATE TABLE chaos_scratch (id INTEGER PRIMARY KEY, filler BLOB);
"""
SQLITE_TRIGGER = """
CREATE TRIGGER chaos_note_{table}_{when} AFTER {when} ON {full} BEGIN
    INSERT INTO chaos_audit (at, place, old, new) VALUES ((julianday('now') - 2440587.5) * 86400.0, '{table}', {old}, {new});
END
"""

AUDITED = ("run", "step", "step_failure", "worker")
DUMPED = ("run", "run_body", "run_key", "step", "step_failure", "wait", "activity", "worker")
