"""Recorder: what one execution has kept: the records of its calls, in order, and the attempts that will be followed by others.

It numbers and bounds them and hands them to the group commit; what their landing means is the driver's to decide.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial

from outlast.driver import Message
from outlast.errors import LimitExceededError, OutlastError
from outlast.failure import Failure
from outlast.ids import derived_uuid
from outlast.limits import ACTIVITY_EVERY, HISTORY_BYTES_MAX, HISTORY_RECORDS_MAX

from .call import Call
from .checkpoints import Checkpoints, Landing
from .history import FailedAttempt, History, Outcome, Record
from .mailbox import NewSignal
from .replay import NOT_STARTED, Replay
from .store import ClaimedRun, FailureCheckpoint, StepCheckpoint

_RESULT, _GIVEN_UP = Outcome.RESULT, Outcome.GIVEN_UP  # at every step, and the look-up of a member is slow before Python 3.12


class Recorder:
    """The records of one execution."""

    def __init__(self, claim: ClaimedRun, history: History, replay: Replay, checkpoints: Checkpoints, clock: Callable[[], datetime]) -> None:
        self._hold = claim.hold
        self._generation = claim.generation
        self._seed = claim.seed
        self._replay = replay
        self._checkpoints = checkpoints
        self._clock = clock
        self._count = len(history.records)
        self._bytes = history.record_bytes

    def keep(
        self,
        call: Call,
        outcome: Outcome,
        on_landing: Callable[[Record, Landing, OutlastError | None], None],
        *,
        result: str | None = None,
        error: Failure | None = None,
        started_at: datetime | None = None,
        heard: tuple[str, int] | None = None,
    ) -> LimitExceededError | None:
        """Have the end of a call kept; its `seq` is its place in the order of handing over. Returns what forbids it."""
        attempts = call.attempts if outcome is not _RESULT else call.attempts + 1
        record = Record(call.key, self._replay.join_flush(), call.kind, outcome, call.digest, attempts, self._clock(), result, error, started_at)
        call.is_recorded = True
        self._count += 1
        self._bytes += len(result or "")
        if self._count > HISTORY_RECORDS_MAX or self._bytes > HISTORY_BYTES_MAX:
            return _too_long(self._count, self._bytes)
        was_open = call.was_reported or call.open is not NOT_STARTED or outcome is _GIVEN_UP  # and then its attempt may be in progress
        sent = None if call.awaited is None or outcome is not _RESULT else self._sent(call)
        self._checkpoints.add(StepCheckpoint(self._hold, self._generation, record, was_open, heard, sent), partial(on_landing, record))
        return None

    def _sent(self, call: Call) -> NewSignal | None:
        """Return the signal that a body's send is; its id is derived from the call, so that it is one however often it is written."""
        message = call.awaited
        if not isinstance(message, Message):
            return None
        signal_id = str(derived_uuid(self._seed, self._generation, f"$signal {call.key}"))
        return NewSignal(signal_id, message.topic, None, message.payload, ttl=message.ttl)

    def place(self, call: Call, result: str | None, started_at: datetime, error: Failure | None = None, attempts: int | None = None) -> StepCheckpoint:
        """Return the record of a transaction or an effect, which writes it itself; a later try of it has the same place."""
        if call.seq is None:
            call.seq = self._replay.join_flush()
        now, made = self._clock(), call.attempts + 1 if attempts is None else attempts
        outcome = Outcome.RESULT if error is None else Outcome.ERROR
        record = Record(call.key, call.seq, call.kind, outcome, call.digest, made, now, result, error, started_at)
        was_open = call.was_reported or call.open is not NOT_STARTED or now - started_at >= ACTIVITY_EVERY / 2
        return StepCheckpoint(self._hold, self._generation, record, was_open)

    def count(self, record: Record) -> LimitExceededError | None:
        """Count a record that is there already. Returns what forbids another one."""
        self._count += 1
        self._bytes += len(record.result or "")
        return _too_long(self._count, self._bytes) if self._count > HISTORY_RECORDS_MAX or self._bytes > HISTORY_BYTES_MAX else None

    def keep_attempt(
        self, call: Call, failure: Failure, started_at: datetime, retry_in: timedelta, on_landing: Callable[[FailedAttempt, Landing, OutlastError | None], None]
    ) -> None:
        """Have an attempt kept that another one will follow."""
        now = self._clock()
        attempt = FailedAttempt(call.key, call.last_attempt, failure, started_at, now, now + retry_in)
        self._checkpoints.add(FailureCheckpoint(self._hold, self._generation, attempt), partial(on_landing, attempt))


def _too_long(records: int, size: int) -> LimitExceededError:
    return LimitExceededError(
        f"the history has {records:,} records and {size:,} bytes of results; at most {HISTORY_RECORDS_MAX:,} and {HISTORY_BYTES_MAX:,} are kept for a run. "
        "Return less from steps (a path instead of content), or split the task"
    )
