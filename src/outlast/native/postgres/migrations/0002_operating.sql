-- What operators do to queues and to what is over. Code of version 1 goes on beside it: nothing that it knows has changed.

-- `queue` where the deed was done to one, `affected` where it was done to many: how many runs and keys a prune has removed so far.
ALTER TABLE outlast.action ADD COLUMN queue text COLLATE "C", ADD COLUMN affected bigint;

-- Runs that wait for something other than a time. An ordinary run's life never touches it.
CREATE INDEX run_untimed ON outlast.run (lane) WHERE status = 'waiting' AND due_at IS NULL;

UPDATE outlast.meta SET version = 2;
