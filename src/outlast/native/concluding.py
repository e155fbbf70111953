"""Concluding: how attempts and waits of an execution end, as their performers tell it. The part of the driver that they know.

Each method first asks whether the body still awaits the call: what comes for one that was given up, or after the end of the
execution was entered, changes nothing.
"""

from __future__ import annotations

import asyncio
import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import datetime, timedelta

from outlast.branch import NO_BODY
from outlast.database.borrowed import Kept
from outlast.errors import LeaseLostError, OutlastError
from outlast.failure import Failure
from outlast.limits import DECISION_POLL
from outlast.step_key import StepKey

from .alarms import Alarms
from .call import Call, CallState
from .checkpoints import Landing
from .history import FailedAttempt, Outcome, Record
from .recorder import Recorder
from .replay import Replay
from .store import ClaimedRun, StepCheckpoint


class Concluding(ABC):
    """What performers of attempts and waits tell."""

    claim: ClaimedRun
    clock: Callable[[], datetime]
    heard: dict[str, int]
    """The number of the last signal that this execution was given, by topic."""
    _loop: asyncio.AbstractEventLoop
    _calls: dict[StepKey, Call]
    _replay: Replay
    _recorder: Recorder
    _alarms: Alarms

    def attempt_succeeded(self, call: Call, result: str, started_at: datetime) -> None:
        """An attempt ended; called by the performer, with the encoded result."""
        if self._is_awaited(call):
            self._keep(call, Outcome.RESULT, result=result, started_at=started_at)

    def attempt_failed(self, call: Call, failure: Failure, started_at: datetime, retry_in: timedelta | None) -> None:
        """An attempt ended with an error; `retry_in` is the delay before the next, None after the last one."""
        if not self._is_awaited(call):
            return
        if call.is_in_doubt:
            self.lose(f"whether {call.key} was committed is not known")
            return
        due_at = None if call.awaited is None else call.awaited.due_at
        if due_at is not None and self.clock() >= due_at:  # a condition whose check fails at its time-out has timed out
            self._keep(call, Outcome.RESULT, result="null", started_at=started_at)
            return
        if due_at is not None and retry_in is not None:
            retry_in = min(retry_in, due_at - self.clock())
        call.attempts += 1
        call.last_attempt += 1
        self.withdraw_place(call)
        if retry_in is None:
            self._keep(call, Outcome.ERROR, error=failure, started_at=started_at)
            return
        self._recorder.keep_attempt(call, failure, started_at, retry_in, functools.partial(self._failure_landed, call))

    def place(self, call: Call, result: str | None, started_at: datetime, *, error: Failure | None = None, attempts: int | None = None) -> StepCheckpoint:
        """Return the record that a transaction or an effect is about to commit itself. Raises where nobody waits for it any more."""
        if not self._is_awaited(call):
            raise LeaseLostError("the body does not wait for this call any more: nothing of it is recorded")
        return self._recorder.place(call, result, started_at, error, attempts)

    def withdraw_place(self, call: Call) -> None:
        """Take note that a record which was placed is not written."""
        if call.seq is not None:
            self._replay.leave_flush(call.seq)
            call.seq = None
            self._settle()  # what waited behind it may be handed over

    def record_kept(self, call: Call, kept: Kept[StepCheckpoint], started_at: datetime) -> None:
        """A transaction or an effect has committed its record; or a transaction in a database of its own, and its record is still to be kept."""
        if not self._is_awaited(call):
            return
        call.transacting = None
        if kept.record is None:
            self.attempt_succeeded(call, kept.result, started_at)
            return
        record = kept.record.record
        if record.seq != call.seq:
            self.lose(f"{call.key} was committed by an earlier attempt")  # its place among the others is known to a replay only
            return
        call.is_recorded = True
        problem = self._recorder.count(record)
        self._landed(record, Landing.KEPT, None)
        if problem is not None:
            self._loop.call_soon(self.fail, problem, context=NO_BODY)

    def wait_until(self, call: Call, due_at: datetime) -> None:
        """An effect can go on at an instant; meanwhile the run may park."""
        if self._is_awaited(call):
            call.state, call.topic = CallState.RETRYING, None
            self._alarms.set(call, due_at)
            self._settle()

    def wait_for_topic(self, call: Call, topic: str | None, due_at: datetime | None, after: int = 0) -> None:
        """A call can go on when a topic is signaled, or at an instant. A run that cannot park looks again and again by itself."""
        if self._is_awaited(call):
            call.state, call.topic, call.after, call.due_at = CallState.WAITING, topic, after, due_at
            self._alarms.look_by(call, DECISION_POLL)
            self._settle()

    def wait_met(self, call: Call, result: str, started_at: datetime, heard: tuple[str, int] | None) -> None:
        """A wait has what it waited for, or its time is over."""
        if self._is_awaited(call):
            call.state, call.met = CallState.PERFORMING, result
            self._keep(call, Outcome.RESULT, result=result, started_at=started_at, heard=heard)

    def _failure_landed(self, call: Call, attempt: FailedAttempt, landing: Landing, error: OutlastError | None) -> None:
        if landing is not Landing.KEPT:
            self._refused(landing, error, f"a failed attempt of {call.key}")
        elif self._is_awaited(call) and attempt.retry_at is not None:
            call.state = CallState.RETRYING
            self._alarms.set(call, attempt.retry_at)
            self._settle()

    def _is_awaited(self, call: Call) -> bool:
        return self._is_going_on and self._calls.get(call.key) is call

    # --- what the driver does with it ----------------------------------------------------------------------------------
    @property
    @abstractmethod
    def _is_going_on(self) -> bool: ...

    @abstractmethod
    def _keep(
        self,
        call: Call,
        outcome: Outcome,
        *,
        result: str | None = None,
        error: Failure | None = None,
        started_at: datetime | None = None,
        heard: tuple[str, int] | None = None,
    ) -> None: ...

    @abstractmethod
    def _landed(self, record: Record, landing: Landing, error: OutlastError | None) -> None: ...

    @abstractmethod
    def _refused(self, landing: Landing, error: OutlastError | None, what: str) -> None: ...

    @abstractmethod
    def _settle(self) -> None: ...

    @abstractmethod
    def fail(self, error: OutlastError, failed_key: StepKey | None = None) -> None: ...

    @abstractmethod
    def lose(self, reason: str) -> None: ...
