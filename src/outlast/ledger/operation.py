"""Operation: the record of one effect, plan -> attempt -> result, and the one table of its allowed changes. Pure.

Theory of operation. An effect is never attempted before its plan and the attempt are durable, so that whoever comes after a
crash finds the attempt and asks what became of it before anything is done again. An operation belongs to one owner at a
time, the claim that acts for it; a change names the owner's token and the attempt's number, and both are tested in the
statement that makes it: a frozen worker's token is old, and an attempt that timed out is not the current one any more.

    -- planned --> planned -- begun --> attempting
    attempting, unknown -- result, found done --> done
    attempting, unknown -- not done --> planned
    attempting -- doubt --> unknown -- asked --> asked
    asked -- asked again --> asked
    asked -- answered: done, again, fail --> done, planned, failed
    planned -- given up --> failed -- revived --> planned
    unknown, asked, failed -- resumed --> done

It must never let an operation leave `done`, and never begin an attempt but from `planned`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType

import msgspec

from outlast.errors import UsageError
from outlast.failure import Failure
from outlast.limits import OPERATION_NAME_BYTES_MAX


class OperationStatus(StrEnum):
    """Where an operation stands. The words are persisted and never change."""

    PLANNED = "planned"
    """Nothing was attempted, or what was is known not to have been done."""
    ATTEMPTING = "attempting"
    """An attempt is under way, or a crash has cut it off."""
    UNKNOWN = "unknown"
    """The attempt is over, and nobody knows whether it was done."""
    ASKED = "asked"
    """A person is asked."""
    DONE = "done"
    FAILED = "failed"
    """Not done, and not tried again."""


class Change(StrEnum):
    """What can happen to an operation. The words are shown, and never change."""

    BEGIN = "begin"
    """An attempt begins."""
    RESULT = "result"
    """The current attempt was done."""
    NOT_DONE = "not_done"
    """The current attempt is known not to have been done."""
    DOUBT = "doubt"
    """The current attempt ended, and nobody knows how."""
    FOUND_DONE = "found_done"
    """The reconciler, or an attempt that ended late, says that it was done."""
    ASK = "ask"
    ASK_AGAIN = "ask_again"
    """What was answered did not fit, or the question was withdrawn with its run: another one is put."""
    ANSWER_DONE = "answer_done"
    ANSWER_AGAIN = "answer_again"
    ANSWER_FAIL = "answer_fail"
    GIVE_UP = "give_up"
    """No attempts are left."""
    REVIVE = "revive"
    """The run was retried, or another one uses the same key."""
    RESUME = "resume"
    """A person gave the result of what had failed its run; nobody need know what its attempt did."""


S = OperationStatus
ALLOWED: Mapping[Change, tuple[frozenset[OperationStatus], OperationStatus]] = MappingProxyType(
    {
        Change.BEGIN: (frozenset({S.PLANNED}), S.ATTEMPTING),
        Change.RESULT: (frozenset({S.ATTEMPTING, S.UNKNOWN}), S.DONE),
        Change.NOT_DONE: (frozenset({S.ATTEMPTING, S.UNKNOWN}), S.PLANNED),
        Change.DOUBT: (frozenset({S.ATTEMPTING}), S.UNKNOWN),
        Change.FOUND_DONE: (frozenset({S.ATTEMPTING, S.UNKNOWN}), S.DONE),
        Change.ASK: (frozenset({S.ATTEMPTING, S.UNKNOWN}), S.ASKED),
        Change.ASK_AGAIN: (frozenset({S.ASKED}), S.ASKED),
        Change.ANSWER_DONE: (frozenset({S.ASKED}), S.DONE),
        Change.ANSWER_AGAIN: (frozenset({S.ASKED}), S.PLANNED),
        Change.ANSWER_FAIL: (frozenset({S.ASKED}), S.FAILED),
        Change.GIVE_UP: (frozenset({S.PLANNED}), S.FAILED),
        Change.REVIVE: (frozenset({S.FAILED}), S.PLANNED),
        Change.RESUME: (frozenset({S.UNKNOWN, S.ASKED, S.FAILED}), S.DONE),
    }
)


class AttemptOutcome(StrEnum):
    """How an attempt ended; an attempt under way has none. The words are persisted and never change."""

    DONE = "done"
    NOT_DONE = "not_done"
    UNKNOWN = "unknown"


OUTCOMES: Mapping[Change, AttemptOutcome] = MappingProxyType(
    {
        Change.RESULT: AttemptOutcome.DONE,
        Change.FOUND_DONE: AttemptOutcome.DONE,
        Change.ANSWER_DONE: AttemptOutcome.DONE,
        Change.NOT_DONE: AttemptOutcome.NOT_DONE,
        Change.ANSWER_AGAIN: AttemptOutcome.NOT_DONE,
        Change.ANSWER_FAIL: AttemptOutcome.NOT_DONE,
        Change.DOUBT: AttemptOutcome.UNKNOWN,
        Change.ASK: AttemptOutcome.UNKNOWN,
    }
)
"""What a change says of the current attempt; the last word stands."""


class OperationName(msgspec.Struct, frozen=True):
    """Which operation: two effects may use one key."""

    effect: str
    key: str


class Owner(msgspec.Struct, frozen=True):
    """The claim that acts for an operation. Without an engine: `run` is "", and `token` the caller's own number."""

    run: str
    generation: int
    step: str
    """The text form of the step's key."""
    token: int
    """The fencing token of the run's claim."""
    worker: int | None
    """Of the claim: its proven death shortens how long "not done" is not believed."""


class Plan(msgspec.Struct, frozen=True):
    """What is to be recorded before anything is done."""

    name: OperationName
    arguments: str
    """JSON text."""
    digest: str
    owner: Owner

    def __post_init__(self) -> None:
        """Raise UsageError for a name that one of the databases could not have in its index."""
        effect, key = (len(part.encode(errors="replace")) for part in (self.name.effect, self.name.key))
        if effect + key > OPERATION_NAME_BYTES_MAX:
            part = "the key: use a digest of what it stands for" if key > effect else "the effect's name, by @effect(name=)"
            sizes = f"the name has {effect:,} bytes in UTF-8 and the key {key:,}; together at most {OPERATION_NAME_BYTES_MAX:,} are allowed"
            raise UsageError(f"effect {self.name.effect:.80} with key {self.name.key:.80}: {sizes}, so shorten {part}")


class OperationAttempt(msgspec.Struct, frozen=True):
    """One attempt, as the ledger keeps it."""

    number: int
    token: int
    """From the store-wide sequence."""
    run: str
    run_token: int
    worker: int | None
    started_at: datetime
    timeout: timedelta
    settle: timedelta
    lease_until: datetime | None
    """Of an attempt without an engine: it is under way until then."""
    outcome: AttemptOutcome | None = None
    ended_at: datetime | None = None
    error: Failure | None = None
    late: str | None = None
    """JSON text of a result that came when the attempt was not current any more, and was refused."""
    lingers: bool = False
    """A thread of it goes on, though nobody waits for it any more."""


class Operation(msgspec.Struct, frozen=True):
    """An operation as the ledger has it."""

    name: OperationName
    status: OperationStatus
    arguments: str
    digest: str
    owner: Owner
    planned_at: datetime
    changed_at: datetime
    now: datetime
    """The database's time when this was read."""
    attempt: OperationAttempt | None = None
    """The current one, the last that began."""
    result: str | None = None
    """JSON text."""
    error: Failure | None = None
    """Of the last attempt that failed, or why it failed for good."""
    reconciles: int = 0
    """How often in a row the reconciler itself raised."""
    decision: str | None = None
    """The id of the question, while it is `asked`."""


@dataclass(frozen=True, slots=True)
class OperationChange:
    """A change to be made, refused unless owner, attempt and status are what it says."""

    name: OperationName
    change: Change
    owner: Owner
    attempt: int
    """The number of the current attempt; 0 before any."""
    result: str | None = None
    error: Failure | None = None
    decision: str | None = None


# --- what is next -----------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Return:
    """It is done: hand its result over, and do nothing."""

    result: str


@dataclass(frozen=True, slots=True)
class Begin:
    """Begin an attempt; from `failed` it is revived before."""

    is_revived: bool = False


@dataclass(frozen=True, slots=True)
class Reconcile:
    """Ask what became of the attempt."""

    attempt: OperationAttempt


@dataclass(frozen=True, slots=True)
class Await:
    """A person was asked: nothing is done before the answer."""

    decision: str


@dataclass(frozen=True, slots=True)
class InProgress:
    """Somebody else acts for it, and may yet finish."""

    run: str


Move = Return | Begin | Reconcile | Await | InProgress


def next_move(operation: Operation, caller: Owner, *, is_owner_active: bool) -> Move:
    """Decide what the caller may do with an operation that it has locked.

    `is_owner_active`: the owner is another claim, and it is current; or an attempt without an engine whose lease goes on.
    """
    match operation.status:
        case S.DONE:
            return Return(operation.result or "null")
        case S.ASKED if operation.decision is not None:
            return Await(operation.decision)
        case S.FAILED:
            return Begin(is_revived=True)  # nobody's, whoever failed at it and whatever he does now
        case _ if is_owner_active and not is_same(operation.owner, caller):
            return InProgress(operation.owner.run)
        case S.PLANNED:
            return Begin()
        case _:
            assert operation.attempt is not None  # only an attempt leads here
            return Reconcile(operation.attempt)


def is_leased(operation: Operation) -> bool:
    """Tell whether a caller without an engine acts for it: he renews the lease of its attempt until he has an answer."""
    attempt = operation.attempt
    if operation.owner.run or operation.status not in (S.PLANNED, S.ATTEMPTING, S.UNKNOWN):
        return False
    return attempt is not None and attempt.lease_until is not None and attempt.lease_until > operation.now


def is_same(one: Owner, other: Owner) -> bool:
    """Tell whether two owners are one call of one claim."""
    return (one.run, one.generation, one.step, one.token) == (other.run, other.generation, other.step, other.token)


def believable_at(attempt: OperationAttempt, died_at: datetime | None) -> datetime:
    """Return from when on "not done" is believed: when nothing of the attempt can be under way any more.

    Its client stops at the time-out, or when it is dead, which is proven by its worker's lock (never by silence); what the
    client had sent may be served for `settle` longer.
    """
    ended_at = attempt.started_at + attempt.timeout
    return (ended_at if died_at is None else min(ended_at, max(died_at, attempt.started_at))) + attempt.settle
