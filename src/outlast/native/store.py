"""Store: the port between the native engine and its tables, and the rows that cross it.

Every method takes an open `Transaction`, does one thing in it, and neither begins nor commits. What a method returns as an
`Answer` is called after the commit. `now` is None for the
database's own clock, which decides what is due; tests pass an instant. Every statement that changes a running run
names its token; the exceptions are listed beside their statements with the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol

import msgspec

from outlast.database.transaction import Answer, Transaction
from outlast.failure import Failure
from outlast.native.history import FailedAttempt, History, Record, Wait
from outlast.native.mailbox import Mailbox, NewSignal
from outlast.native.upkeep import Upkeep
from outlast.run import CancelOutcome, RunStatus, RunView, StepView
from outlast.step_key import StepKey


class LaneName(NamedTuple):
    """What a worker claims from: the runs of one queue, kind and version."""

    queue: str
    kind: str
    version: int


class Hold(NamedTuple):
    """A claim: the right to act for a run until a newer token exists."""

    run_id: str
    token: int


NO_TAGS, NO_HEADERS = "[]", "{}"
"""The defaults of a new run, which the encoder knows by their identity."""


class NewRun(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A run to be accepted. It is sent to PostgreSQL under these names, without what has its default."""

    id: str
    lane: int
    kind: str
    version: int
    priority: int
    due_at: datetime | None
    """When it may first run; None for now. A later instant makes it `waiting`."""
    deadline_at: datetime | None
    seed: int
    input: str
    """JSON text."""
    input_digest: str
    idempotency_key: str | None = None
    tags: str = NO_TAGS
    """JSON text of a list."""
    headers: str = NO_HEADERS
    """JSON text of an object."""


class Accepted(msgspec.Struct, frozen=True, gc=False):
    """What became of one `NewRun`."""

    run_id: str
    """The new run's id, or of the run that its key belongs to."""
    created: bool
    """True also when this very run id is there already: the caller's own call, tried again."""
    stored_digest: str
    """Of the input that the run has."""


class Candidate(NamedTuple):
    """A claimable run that a probe saw, not locked."""

    run_id: str
    lane: int
    priority: int
    due_at: datetime
    is_suspect: bool


class ClaimedRun(msgspec.Struct, frozen=True, gc=False):
    """A run that this worker now holds."""

    id: str
    token: int
    lane: int
    kind: str
    version: int
    generation: int
    attempts: int
    losses: int
    """Workers lost in a row with nothing recorded between; from two on the run is a suspect."""
    seed: int
    ending: RunStatus | None
    """Fixed when the rollback phase has begun: `failed` or `canceled`."""
    input: str
    headers: str
    idempotency_key: str | None
    deadline_at: datetime | None
    started_at: datetime
    """When it was first claimed."""
    claimed_at: datetime
    """The database's time of this claim."""

    @property
    def hold(self) -> Hold:
        return Hold(self.id, self.token)


@dataclass(frozen=True, slots=True)
class ClaimContext:
    """What a later transaction reads for a run that was claimed before: never older than the claim."""

    history: History
    cancel_reason: str | None
    """Set when a cancel was accepted."""
    is_past_deadline: bool


class StepCheckpoint(msgspec.Struct, frozen=True, gc=False):
    """A record to be kept: one that meets a record of its key is refused."""

    hold: Hold
    generation: int
    record: Record
    was_open: bool = True
    """A wait of the call, or what the step reported, may be in the database, and goes with the record."""
    heard: tuple[str, int] | None = None
    """The topic and number of a signal that the record uses up: the run's cursor moves there with it."""
    sent: NewSignal | None = None
    """A signal that is sent with the record."""


@dataclass(frozen=True, slots=True)
class FailureCheckpoint:
    """A failed attempt to be kept."""

    hold: Hold
    generation: int
    failure: FailedAttempt


class RunCheckpoint(msgspec.Struct, frozen=True, gc=False):
    """A held run leaves `running`: ended, parked, delayed for another attempt of its body, or handed back.

    Refused when the token is not the current one, and, unless `passes_cancel`, when a cancel was accepted.
    """

    hold: Hold
    generation: int
    status: RunStatus
    """`pending` hands it back, `waiting` parks it, a terminal one ends it."""
    due_at: datetime | None = None
    """When a waiting run comes due; None with `waiting` means by name only, and with `pending` now."""
    waits: tuple[Wait, ...] = ()
    """Open waits to be registered; one that is registered already keeps its instant while it waits for the same name. Where a signal is
    on one of their topics already, the run is `pending` at once."""
    attempts: int = 0
    """The run's count after this."""
    output: str | None = None
    """JSON text; None with `succeeded` stands for null and writes nothing."""
    error: Failure | None = None
    failed_key: StepKey | None = None
    """The step whose failure ended the body: an operator's retry retires its record."""
    retire: StepKey | None = None
    """Retire this record now, so that the step has fresh attempts: the body is retried by its own policy."""
    verdict: str | None = None
    warnings: tuple[str, ...] = ()
    """To be added to the run's."""
    passes_cancel: bool = False
    idempotency_key: str | None = None
    may_have_asked: bool = False
    """Its body gave a question up, which may still be open: it is withdrawn with the run's end, however that is."""


Checkpoint = StepCheckpoint | FailureCheckpoint | RunCheckpoint


@dataclass(frozen=True, slots=True)
class ActivityRow:
    """What a step that has been going for more than a second last said of itself."""

    hold: Hold
    generation: int
    key: StepKey
    attempt: int
    started_at: datetime
    done: float | None
    total: float | None
    note: str


@dataclass(frozen=True, slots=True)
class NewWorker:
    """A worker incarnation that announces itself."""

    id: int
    name: str
    """A label for people: host name and process id."""
    process: str
    """`ids.process_nonce()`: who shares it shares file locks."""
    lease: timedelta
    lanes: tuple[int, ...]
    tasks: str
    """JSON text: kinds and versions, queues and concurrency, for people."""
    is_provable: bool = True
    """Its process holds the lock that ends with it, so that its death can be proven; else only silence tells."""


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """A worker as others see it."""

    id: int
    name: str
    process: str
    beat: int
    is_alive: bool
    is_lease_over: bool
    """By the database's clock."""
    is_idle: bool
    lease: timedelta
    lease_until: datetime
    started_at: datetime
    ended_at: datetime | None
    end: str | None
    """`stopped`, `dead` or `silent`."""
    running: int
    """Runs that it holds, counted up to a bound."""
    tasks: str
    is_provable: bool = True
    """It held its lock when it last said so: a lock that is free now means something."""
    is_lock_free: bool | None = None
    """Looked at by the statement that read the beat, and after it; None where it was not, or where locks are not the database's."""


@dataclass(frozen=True, slots=True)
class Orphan:
    """A running run whose worker is not alive, locked by the transaction that listed it."""

    hold: Hold
    recoveries: int
    losses: int
    strikes: int
    loss_mark: int
    """How much had been recorded and reported at the last loss; 0 before any."""
    progress_mark: int
    """The same now."""
    has_ended_worker: bool
    """The worker was lost, as opposed to stopped by itself."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """What becomes of an orphan: `pending`, `waiting` (backing off) or `dead`."""

    hold: Hold
    status: RunStatus
    delay: timedelta
    recoveries: int
    losses: int
    strikes: int
    loss_mark: int
    error: Failure | None


class Flagged(NamedTuple):
    """A held run whose body must be told."""

    hold: Hold
    cancel_reason: str | None
    is_past_deadline: bool


class Look(NamedTuple):
    """What an idle worker sees in one statement."""

    has_pending: bool
    has_due: bool
    next_due_at: datetime | None
    now: datetime
    has_overdue: bool = False
    """A run that nobody holds has reached its deadline."""
    has_undelivered: bool = False
    """A signal was sent, and not everybody who waits for it was woken."""


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs to list; None means any."""

    status: RunStatus | None = None
    kind: str | None = None
    queue: str | None = None


class Store(Upkeep, Mailbox, Protocol):
    """The native engine's tables; `Upkeep` has what operators do to queues and to what is over, `Mailbox` what is waited for by name.

    Both databases pass the same suite, `outlast.testing.store_suite`.
    """

    # --- accepting -----------------------------------------------------------------------------------------------
    def ensure_lanes(self, tx: Transaction, lanes: Sequence[LaneName]) -> dict[LaneName, int]:
        """Return the number of each lane, making those that are not there."""
        ...

    def record_runs(self, tx: Transaction, runs: Sequence[NewRun], now: datetime | None = None) -> Answer[list[Accepted]]:
        """Accept runs and answer in their order. Keys are inserted first, so that of callers at once one wins.

        No two of one call share (kind, key); the caller sees to it. A run with a later `due_at` begins as `waiting`.
        """
        ...

    # --- claiming ------------------------------------------------------------------------------------------------
    def fence(self, tx: Transaction, worker_id: int) -> None:
        """Void the transaction with `LeaseLostError` unless the worker is alive, and hold off who would end it till the commit.

        First in every transaction that claims or flushes.
        """
        ...

    def look(self, tx: Transaction, lanes: Sequence[int], now: datetime | None = None) -> Look:
        """Tell in one statement whether there is anything to claim, to wake or to end, and when the next timer comes due."""
        ...

    def probe_lanes(self, tx: Transaction, lanes: Sequence[int], limit: int, *, with_suspects: bool, now: datetime | None = None) -> Answer[list[Candidate]]:
        """Return up to `limit` claimable runs of each lane by priority, then due time; nothing is locked."""
        ...

    def probe_oldest(self, tx: Transaction, lanes: Sequence[int], limit: int, *, with_suspects: bool, now: datetime | None = None) -> Answer[list[Candidate]]:
        """Return up to `limit` claimable runs of each lane by due time alone, whatever their priority."""
        ...

    def claim_runs(self, tx: Transaction, worker_id: int, run_ids: Sequence[str], limit: int, now: datetime | None = None) -> Answer[list[ClaimedRun]]:
        """Claim at most `limit` of these, in their order, that are still claimable and that nobody else has locked.

        Each gets a token that is greater by one. Status and due time are tested again under the lock.
        """
        ...

    def read_contexts(self, tx: Transaction, holds: Sequence[Hold], now: datetime | None = None) -> dict[Hold, ClaimContext]:
        """Read what happened before in claimed runs. A hold that is not current any more is absent from the answer.

        In a transaction of its own, after the claim's: in the claim's own the history can be older than the row.
        """
        ...

    def list_held(self, tx: Transaction, worker_id: int) -> list[ClaimedRun]:
        """Return what the database says this worker holds, to compare with what it knows."""
        ...

    # --- committing ----------------------------------------------------------------------------------------------
    def commit_checkpoints(self, tx: Transaction, checkpoints: Sequence[Checkpoint], now: datetime | None = None) -> Answer[list[Checkpoint]]:
        """Write a group after a fence, and answer what was refused.

        Of one run a group holds steps and failures first and at most one `RunCheckpoint`. What a record uses up and
        what it sends goes with it, and only where this transaction keeps the record. A record that meets one of its key
        raises `RefusedError` with `duplicate`: the whole group is undone, and the caller halves it.
        """
        ...

    def find_kept(self, tx: Transaction, checkpoints: Sequence[Checkpoint]) -> list[Checkpoint]:
        """Return those that are there, found by token: how the unknown outcome of a commit is resolved."""
        ...

    def delete_failures(self, tx: Transaction, hold: Hold, generation: int, key: StepKey) -> int:
        """Forget the failed attempts of one call of a held run, which begins anew; return how many. Of a hold that is not current nothing goes."""
        ...

    def record_activity(self, tx: Transaction, rows: Sequence[ActivityRow]) -> None:
        """Write what long steps report; of a hold that is not current nothing is written."""
        ...

    # --- timers, flags -------------------------------------------------------------------------------------------
    def wake_due(self, tx: Transaction, limit: int, now: datetime | None = None) -> set[int]:
        """Move at most `limit` waiting runs whose time has come to `pending`, skipping what is locked; return their lanes."""
        ...

    def end_overdue(self, tx: Transaction, limit: int, now: datetime | None = None) -> int:
        """Deal with runs past their deadline that nobody holds: fail what never ran, wake the others. Return how many."""
        ...

    def list_flagged(self, tx: Transaction, worker_id: int, now: datetime | None = None) -> list[Flagged]:
        """Return the held runs that were canceled or are past their deadline."""
        ...

    # --- workers -------------------------------------------------------------------------------------------------
    def record_worker(self, tx: Transaction, worker: NewWorker, now: datetime | None = None) -> None: ...

    def renew_worker(self, tx: Transaction, worker_id: int, now: datetime | None = None, *, is_provable: bool = True) -> datetime | None:
        """Prolong the lease, raise `beat` and say whether the lock is held; return the database's time, or None when the worker is not alive any more."""
        ...

    def set_idle(self, tx: Transaction, worker_id: int, is_idle: bool) -> None:
        """Ask for wake-ups, or stop asking."""
        ...

    def has_idle_worker(self, tx: Transaction, lanes: Sequence[int]) -> bool:
        """Tell whether a living worker of one of these lanes asked for wake-ups."""
        ...

    def end_worker(self, tx: Transaction, worker_id: int, end: str, *, beat: int | None = None, is_silent: bool = False, now: datetime | None = None) -> bool:
        """Mark a worker as not alive, after waiting for its open transactions; False when that does not hold any more.

        `beat`: only if it has not moved since. `is_silent`: only if the lease is over by the database's clock.
        """
        ...

    def list_workers(self, tx: Transaction, *, only_alive: bool, counts_runs: bool = True, now: datetime | None = None) -> list[WorkerRow]:
        """Return workers, the living first. Counting what they run walks an index as long as that is: a watcher does without.

        Where the database holds the locks that prove life, a watcher's listing looks at them too.
        """
        ...

    def find_death(self, tx: Transaction, worker_id: int) -> datetime | None:
        """Return from when on a worker that was declared dead surely does nothing any more; None for one that lives, was stopped, or is silent.

        On SQLite that is its death, which its file's lock proves. On PostgreSQL a lock is also free when its connection was cut,
        so that it is the end of its lease, by which a living process has told its bodies to end.
        """
        ...

    def is_claimed(self, tx: Transaction, hold: Hold) -> bool:
        """Tell whether a claim of any worker is current: the run is running under this token. Nothing is locked."""
        ...

    def list_orphans(self, tx: Transaction, limit: int, now: datetime | None = None) -> list[Orphan]:
        """Lock and return running runs whose worker is not alive, skipping what is locked."""
        ...

    def recover_runs(self, tx: Transaction, recoveries: Sequence[Recovery], now: datetime | None = None) -> set[int]:
        """Let orphans go as decided, in the transaction that listed them; return their lanes."""
        ...

    def try_watch(self, tx: Transaction) -> bool:
        """Become the one watcher until this transaction ends, or return False at once."""
        ...

    def delete_ended_workers(self, tx: Transaction, older_than: timedelta, now: datetime | None = None) -> int:
        """Forget workers that ended long ago and hold nothing."""
        ...

    # --- reading and acting ----------------------------------------------------------------------------------------
    def find_run(self, tx: Transaction, run_id: str, now: datetime | None = None, *, explains: bool = True) -> RunView | None:
        """Return a run. `explains=False` leaves out why it does not move and its current step: one look-up, for who waits for its end."""
        ...

    def find_key(self, tx: Transaction, kind: str, key: str) -> tuple[str, RunStatus | None] | None:
        """Return the run that a key belongs to and, once it is over, how it ended."""
        ...

    def find_ended(self, tx: Transaction, run_ids: Sequence[str]) -> set[str]:
        """Return those that are over or not there: what a waiting `result()` asks."""
        ...

    def list_runs(self, tx: Transaction, filter: RunFilter, limit: int, before: str | None, now: datetime | None = None) -> list[RunView]:
        """Return a page, newest first; `before` is the last id of the page before."""
        ...

    def list_steps(self, tx: Transaction, run_id: str) -> list[StepView]:
        """Return the records of the run's generation by `seq`, then what is open: failures, waits, activity."""
        ...

    def request_cancel(self, tx: Transaction, run_id: str, reason: str, now: datetime | None = None) -> tuple[CancelOutcome, int | None] | None:
        """Cancel: on the spot what never ran, else mark it and let whoever holds it, or the next claim, end it.

        Returns the outcome and the worker to tell, or None when there is no such run. The second cancel changes nothing.
        """
        ...

    def retry_run(self, tx: Transaction, run_id: str, actor: str, reason: str, now: datetime | None = None) -> tuple[RunStatus, int] | None:
        """Make a `failed`, `dead` or `canceled` run pending again, its failed record retired; in another state nothing changes.

        Returns the state that it was found in and its lane, or None when there is no such run.
        """
        ...
