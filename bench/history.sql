-- Copies every run that is there, all of them finished, with what belongs to it, under new ids. It names only the
-- columns that hold a run's id, so that it goes on working when others are added.

-- name: copy_runs
INSERT INTO outlast.run
SELECT (jsonb_populate_record(run, jsonb_build_object('id', md5(run.id::text || copy)::uuid))).*
FROM outlast.run, generate_series(1, %(copies)s) AS copy;

-- name: copy_bodies
INSERT INTO outlast.run_body
SELECT (jsonb_populate_record(body, jsonb_build_object('run', md5(body.run::text || copy)::uuid))).*
FROM outlast.run_body AS body, generate_series(1, %(copies)s) AS copy;

-- name: copy_steps
INSERT INTO outlast.step
SELECT (jsonb_populate_record(step, jsonb_build_object('run', md5(step.run::text || copy)::uuid))).*
FROM outlast.step, generate_series(1, %(copies)s) AS copy;

-- name: tidy_up
VACUUM ANALYZE outlast.run, outlast.run_body, outlast.step
