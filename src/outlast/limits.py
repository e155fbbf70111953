"""Every number that bounds something, each with its reason.

A limit that a user may set is the default here and an option elsewhere; nothing else in the library writes a bound down.
"""

from datetime import timedelta

# --- names and values -----------------------------------------------------------------------------------------------
NAME_CHARACTERS_MAX = 200  # names travel in keys, logs and table columns of a terminal; longer ones are data, not names
IDEMPOTENCY_KEY_CHARACTERS_MAX = 512  # a key is an index entry on both databases; PostgreSQL refuses entries above 2.7 kB
PAYLOAD_BYTES_MAX = 1 << 20  # 1 MiB: what is larger is a file, and a path to it is the value
PAYLOAD_DEPTH_MAX = 200  # well under Python's recursion limit, so that a value which was accepted can always be read
INTEGER_MIN, INTEGER_MAX = -(1 << 63), (1 << 63) - 1  # what both databases and other languages read as one number; larger ones are text
ERROR_MESSAGE_CHARACTERS_MAX = 8_000  # a message with a whole document in it must not fill the history
ERROR_TRACEBACK_CHARACTERS_MAX = 16_000  # some 150 frames; the ends are kept, the middle goes
ERROR_CAUSES_MAX = 8  # a chain that is longer tells nothing new, and one that bites its tail never ends
ERROR_MEMBERS_MAX = 32  # errors in all, of nested groups too: the first ones say what happened
ERROR_NAME_CHARACTERS_MAX = 400  # of a class with its module; a longer one is made by a machine
ERROR_BYTES_MAX = 64 << 10  # as JSON, with causes and members: a failed attempt is one row among hundreds in a flush
TAGS_MAX = 32  # tags are for filtering by people
WARNINGS_MAX = 32  # of one run; a body that warns in a loop must not fill its row
HEADER_CHARACTERS_MAX = 8_192  # what proxies and brokers take at most for one
HEADERS_MAX = 64  # headers carry trace context and the like
REASON_CHARACTERS_MAX = 1_000  # a reason is one or two sentences
PRIORITY_MIN, PRIORITY_MAX = -100, 100  # few distinct values keep the search for the oldest run of any priority cheap

# --- history --------------------------------------------------------------------------------------------------------
HISTORY_RECORDS_MAX = 10_000  # a replay of more takes seconds
HISTORY_BYTES_MAX = 64 << 20  # 64 MiB must fit into a worker beside a hundred others' histories

# --- group commit ---------------------------------------------------------------------------------------------------
GROUP_BYTES_MAX = 8 << 20  # 300 results of 1 MiB in one JSON parameter break json_to_recordset on PostgreSQL 15
GROUP_RECORDS_MAX = 500  # keeps a flush well under 100 ms, so that its locks are short
CHECKPOINTS_WAITING_MAX = 10_000  # beyond it callers wait: memory is bounded even when the database is not answering

# --- claims and waiting ---------------------------------------------------------------------------------------------
CONCURRENCY_MAX = 10_000  # more bodies than this in one process starve its event loop
CLAIM_RUNS_MAX = 500  # one claim transaction stays short
LANE_PROBE_FACTOR = 2  # candidates looked at per free slot, so that two workers do not fight over the same rows
OLDEST_FIRST_EVERY = 10  # one claimed run in ten goes by age alone, so that low priority is late and not lost
TIMER_BATCH = 500  # due runs moved in one transaction, for the same reason as CLAIM_RUNS_MAX
TIMER_IN_MEMORY_MAX = timedelta(seconds=2)  # a shorter wait costs less in its slot than a park and a claim
IDLE_POLL = timedelta(seconds=2)  # an idle worker's own look at the queue when no wake-up came; with the watch below under two queries a second
FLAGS_POLL = timedelta(milliseconds=500)  # how often a busy worker looks for cancels and deadlines: told within 1 s
FILE_POLL_BUSY = timedelta(milliseconds=2)  # SQLite, for a second after the last work: 2 ms for ever costs 4 % of a core
FILE_POLL_IDLE = timedelta(milliseconds=20)  # SQLite after that
FOREIGN_AWAIT_REPORTED_AFTER = timedelta(seconds=1)  # a body that awaits something of its own is named once after this

# --- operating -----------------------------------------------------------------------------------------------------------
PRUNE_PAGE = 500  # runs or keys looked at, and at most deleted, in one transaction
PRUNE_RECORDS_MAX = 10_000  # what hangs on the runs of one such transaction, unless one run alone has more: it stays well under a second
LANE_COUNT_MAX = 1_000  # runs of a lane are counted so far: whether there are 1,000 or a million is the same to a person
LANE_SAMPLE_MAX = 10_000  # held and sleeping runs that are looked at to say which lanes they belong to: some ten milliseconds
STRANDED_AFTER = timedelta(seconds=60)  # a deploy that replaces workers leaves a lane without one for less than this

# --- leases ---------------------------------------------------------------------------------------------------------
LEASE = timedelta(seconds=30)  # longer than the longest hold of the interpreter lock that was measured (23.5 s)
LEASE_MIN = timedelta(seconds=1)  # below it ordinary scheduling delays look like silence
RENEWALS_PER_LEASE = 10  # ten chances: nine renewals in a row may fail
WATCH_EVERY = timedelta(seconds=1.5)  # a watcher's tick; a second look at a suspicion follows by itself, so a death shows within 3 s
DEATH_LOOKS_APART = timedelta(seconds=1.5)  # a lock that is free twice this far apart was not just re-opened
STRAYS_EVERY = timedelta(seconds=10)  # rows held in the database and by no body are let go this often
RECOVERY_PAGE = 500  # runs taken from a dead worker in one transaction
RECOVERY_DELAY_MAX = timedelta(seconds=60)  # a run that keeps losing its worker comes back at most this late
SUSPECT_AFTER_LOSSES = 2  # one loss is the machine's, the second in a row without progress may be the run's
STRIKES_MAX = 3  # three workers lost while they executed it as their only suspect: the run is dead

# --- calls ----------------------------------------------------------------------------------------------------------
ENQUEUE_TIMEOUT = timedelta(seconds=10)  # an enqueue that cannot be stored says so within this
STOP_TIMEOUT = timedelta(seconds=30)  # what a deploy usually allows before it kills
CONNECTIONS_MAX = 4  # claim, flush, enqueue and read; the lease and the listener have their own
LOCK_TIMEOUT = timedelta(milliseconds=100)  # a flush never waits longer for a stranger's row
TRANSACTION_TRIES_MAX = 10  # of one attempt of a transactional step, for another transaction's sake; more is contention that a person has to see
LOOP_ANSWER_TIMEOUT = timedelta(seconds=60)  # a blocked event loop; a transaction that waits for longer is undone
IDLE_IN_TRANSACTION_TIMEOUT = timedelta(seconds=2)  # a frozen worker's open transaction is ended by the server
STATEMENT_TIMEOUT = timedelta(seconds=10)  # nothing here should take a second; ten mean that the server is ill
ANSWER_TIMEOUT = timedelta(seconds=20)  # the server itself ends a statement long before: nobody is there who would answer
RENEWAL_ANSWERS_PER_LEASE = 3  # a renewal waits a third of a lease for its answer: then another connection is tried while the lease lasts
SQLITE_BUSY_TIMEOUT = timedelta(seconds=10)  # how long a write waits for another process's
CANCEL_GRACE = timedelta(seconds=10)  # how long a told process body may clean up before it is killed
ACTIVITY_EVERY = timedelta(seconds=1)  # progress is written at most once a second, for steps longer than that
PAGE = 100  # rows of a listing at once
PAGE_MAX = 1_000

# --- worker processes -----------------------------------------------------------------------------------------------
RESTART_DELAY = timedelta(seconds=1)  # a worker process that died is started again after this, then twice as long each time
RESTART_DELAY_MAX = timedelta(seconds=60)  # what dies at every start is tried once a minute
RESTART_FORGIVEN_AFTER = timedelta(seconds=60)  # a process that lived this long was not broken from the start
STOP_GRACE = timedelta(seconds=5)  # what a process may take beyond its stop time-out to leave its services and end
PORTAL_END = timedelta(seconds=5)  # what the own loop of engine.blocking may take to end after the engine was closed
OVERDUE_EVERY = timedelta(seconds=5)  # a busy worker's sweep for runs that reached their deadline while nobody held them; an idle one sees them as it looks
WORKERS_FORGOTTEN_AFTER = timedelta(days=1)  # ended workers stay listed that long, for people who look into an incident
HOUSEKEEPING_EVERY = timedelta(minutes=10)  # what only tidies up has time

# --- doctor ---------------------------------------------------------------------------------------------------------
DOCTOR_CHECK_TIMEOUT = timedelta(seconds=10)  # one check; what a healthy database answers takes milliseconds
DOCTOR_TIMEOUT = timedelta(seconds=60)  # all checks together: people wait for it
LISTENER_TEST_TIMEOUT = timedelta(seconds=4)  # a wake-up that takes longer is worth less than the poll behind it
CLOCK_OFFSET_WARNED = timedelta(seconds=1)  # machines that follow a time server are a thousand times closer
CLOCK_OFFSET_MAX = timedelta(seconds=30)  # a whole lease: deadlines and logs mislead people
SNAPSHOT_AGE_WARNED = timedelta(minutes=5)  # longer than any transaction of a service, shorter than a report
SNAPSHOT_TRANSACTIONS_WARNED = 1_000_000  # so many may each have left dead rows that nobody can remove
DEAD_ROWS_WARNED = 100_000  # below it claims do not notice
WAL_BYTES_WARNED = 256 << 20  # SQLite begins its log anew at some 4 MiB, unless a reader holds it
KEYS_COUNTED_MAX = 100_000  # SQLite has no estimate, and counting more than this takes too long for a reader
KEYS_BYTES_WARNED = 10 << 30  # idempotency keys are kept for ever, and look-ups begin to miss the memory

# --- effects ----------------------------------------------------------------------------------------------------------
EFFECT_TIMEOUT = timedelta(seconds=60)  # every effect has one, because until then nobody believes that it was not done; what a slow provider takes
EFFECT_SETTLE = timedelta(seconds=10)  # a request of a dead client waits in a provider's queue for seconds, not for minutes
OPERATION_POLL = timedelta(seconds=5)  # how often one asks again after an operation that somebody else has under way
DECISION_POLL = timedelta(seconds=5)  # how often a run that cannot park looks whether it was answered; one that is parked is woken
COPY_TIMEOUT = timedelta(days=1)  # of one attempt of a ready-made copy or move: 100 GB at the pace of a slow disk take hours
COPY_CHUNK_BYTES = 1 << 20  # 1 MiB: large enough for any disk's full pace, and a cancel is seen and progress told after each
OPERATION_NAME_BYTES_MAX = 2_600  # effect and key are one index entry, of which PostgreSQL takes 2,704 bytes with what it adds; SQLite is held to the same
LEDGER_LEASE = timedelta(seconds=30)  # of an attempt made without an engine: as long as a worker's
LEDGER_RENEWALS_PER_LEASE = 6  # five renewals in a row may fail
LEDGER_POLL_MAX = timedelta(seconds=2)  # between two looks of a caller who waits for another; the first ones come sooner
LEDGER_THREADS_MAX = 32  # effects that are plain functions, at once in one process; the others wait their turn
ATTENTION_PAGE_MAX = 500  # rows of the attention list in one page
QUESTION_CHARACTERS_MAX = 2_000  # what a person is asked fits a screen; what it is about is data beside it
OPTIONS_MAX = 32  # more is not a choice but a form
SIGNAL_BATCH = 500  # waits moved in one delivery transaction, as timers are
TOPIC_CHARACTERS_MAX = 300  # of a name with a run's id before it; topics are index entries on both databases
SIGNAL_BYTES_MAX = 64 << 10  # a signal is a message; what is larger is a value that somebody stores, and its name is sent
SIGNAL_TTL = timedelta(days=7)  # how long an unheard signal is kept: over a long weekend, and not for ever
SIGNAL_TTL_MAX = timedelta(days=366)  # what is to be kept longer belongs into a table of the application's
SIGNAL_DELIVERY_WAIT = timedelta(seconds=1)  # a sender waits no longer for its own delivery, which any worker makes up for
WAITING_COUNTED_MAX = 1_000  # of the runs that wait for one signal, for its receipt
UNTIL_EVERY_MIN = timedelta(seconds=3)  # a wait of less than two never parks; a look takes some time too, and then less would be left
