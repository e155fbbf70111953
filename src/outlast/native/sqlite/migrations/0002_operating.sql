-- What operators do to queues and to what is over. Code of version 1 goes on beside it: nothing that it knows has changed.

-- Where the deed was done to a queue.
ALTER TABLE outlast_action ADD COLUMN queue TEXT;

-- Where it was done to many: how many runs and keys a prune has removed so far.
ALTER TABLE outlast_action ADD COLUMN affected INTEGER;

-- Runs that wait for something other than a time. An ordinary run's life never touches it.
CREATE INDEX outlast_run_untimed ON outlast_run (lane) WHERE status = 'waiting' AND due_at IS NULL;

UPDATE outlast_meta SET version = 2;
