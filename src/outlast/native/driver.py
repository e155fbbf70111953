"""NativeDriver: the RunDriver of the built-in engine, between a body, its replay and the checkpoints.

Theory of operation. A driver executes one claim of one run. The body asks through `Context` (`perform`, `wait`,
`give_up`); the replay says what each call finds; what is missing is performed, and its record joins the group commit.
Records that are durable are handed to the body one at a time, each at a standstill. When the body stands still and
only waits, the run parks: the body is closed from outside, and its next execution replays.

One end. `_finish` is entered once, by whatever comes first: the body's end, a park, a changed history, a cancel, a
lost lease, a stop of the worker. It closes the body and writes at most one checkpoint that leaves `running`. What the
database refuses there is read back, because the only lawful reasons are a newer claim and a cancel.

It must never raise anything into a body to park it, never write after the claim was lost, and never start an attempt
once an end was entered.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Any, NoReturn

from outlast.branch import NO_BODY, BranchClosed, Branches
from outlast.context import Context
from outlast.database.borrowed import Kept
from outlast.driver import Handed, RunFacts, StepCall, Timer
from outlast.errors import CancelRequested, HistoryMismatchError, LeaseLostError, OutlastError, PayloadError, StepFailedError, StepStuckError
from outlast.failure import Failure
from outlast.limits import SUSPECT_AFTER_LOSSES
from outlast.step_key import StepKey
from outlast.stillness import Stillness
from outlast.task import Task
from outlast.transaction import OwnDatabase

from .body import Body
from .call import Call, CallState
from .checkpoints import Checkpoints, Landing
from .encoding import headers_from_json
from .ending import Ending, ended_with, failed, parked, released, succeeded
from .history import EMPTY, FailedAttempt, History, Outcome, Record, RecordKind
from .parking import Park, Stuck, parking_of
from .performer import Performer
from .recorder import Recorder
from .replay import NOT_STARTED, Found, Replay
from .replay_log import ReplayLog
from .store import ClaimedRun, StepCheckpoint
from .transacting import ensure_fits

logger = logging.getLogger("outlast")

STUCK = f"{StepStuckError.__module__}.{StepStuckError.__qualname__}"


class Phase(Enum):
    """Where an execution stands."""

    RUNNING = auto()
    TOLD = auto()
    """The body was asked to end, and has not yet."""
    ENDING = auto()
    """The body is closed or has ended; what it leaves behind is being written."""
    OVER = auto()


# Asked for at every step, and the look-up of a member is slow before Python 3.12: all of them were a twentieth of a step.
_RUNNING, _DEFERRED, _PERFORMING = Phase.RUNNING, CallState.DEFERRED, CallState.PERFORMING
_STEP, _NOTHING, _RESULT, _KEPT = RecordKind.STEP, Found.NOTHING, Outcome.RESULT, Landing.KEPT


class NativeDriver:
    """One execution of one claimed run."""

    def __init__(
        self,
        claim: ClaimedRun,
        task: Task[Any, Any],
        *,
        history: History = EMPTY,
        checkpoints: Checkpoints,
        performer: Performer,
        stillness: Stillness,
        services: Any,
        database: OwnDatabase,
        now: Callable[[], datetime],
        on_end: Callable[[NativeDriver, Ending], None],
        is_loop_ending: Callable[[], int] = int,
    ) -> None:
        self.claim = claim
        self.hold = claim.hold
        self.task = task
        self.phase = Phase.RUNNING
        self.is_draining = False
        self.facts = _facts(claim)
        self.services = services
        self.database = database
        self.checkpoints = checkpoints
        self._performer = performer
        self._loop = asyncio.get_running_loop()
        self.clock = now
        self._on_end = on_end
        self._is_loop_ending = is_loop_ending
        self._replay = Replay(history)
        self._recorder = Recorder(claim, history, self._replay, checkpoints, now)
        self._body = Body(self._loop, stillness)
        self._calls: dict[StepKey, Call] = {}
        self._failed_keys: dict[str, StepKey] = {}
        self._now = claim.started_at
        self._told: CancelRequested | None = None
        self._has_progress = False

    @functools.cached_property
    def log(self) -> ReplayLog:
        return ReplayLog(self.claim, lambda: self._replay.is_replaying)

    def get_log(self) -> ReplayLog:
        """The same for an attempt, which seldom asks."""
        return self.log

    # --- what the body asks ------------------------------------------------------------------------------------------
    def now(self) -> datetime:
        return self._now

    @property
    def is_replaying(self) -> bool:
        return self._replay.is_replaying

    def perform(self, key: StepKey, call: StepCall) -> Handed:
        kind = _STEP if call.on is None else RecordKind.TRANSACTION
        if call.on is not None:
            ensure_fits(call)
        return self._ask(Call(key, kind, Handed(loop=self._loop), _DEFERRED, step=call, digest=call.digest))

    def wait(self, key: StepKey, timer: Timer) -> Handed:
        kind = RecordKind.TIMEOUT if timer.is_timeout else RecordKind.SLEEP
        self._body.has_timeout = self._body.has_timeout or timer.is_timeout
        return self._ask(Call(key, kind, Handed(loop=self._loop), CallState.DEFERRED, timer=timer))

    def give_up(self, key: StepKey) -> None:
        call = self._calls.pop(key, None)
        if call is None or not self._is_going_on:
            return
        self._replay.withdraw(key)
        if call.state in (CallState.RECORDED, CallState.GIVEN_UP):
            return
        self._performer.stop(call, "the body gave this step up")
        if call.is_in_doubt:  # what is there decides, at the next replay; not from within the body, which cannot be closed by itself
            self._loop.call_soon(self.lose, f"the body gave transaction {key} up while it was being committed", context=NO_BODY)
            return
        if call.kind is not RecordKind.TIMEOUT and not call.is_recorded:
            self._keep(call, Outcome.GIVEN_UP)
        self._settle()

    def _ask(self, call: Call) -> Handed:
        if self.phase is not _RUNNING or self._is_loop_ending():
            self._refuse()
        try:
            found = self._replay.ask(call.key, call.kind, call.digest, is_inserted=call.is_inserted)
        except HistoryMismatchError as error:
            self._loop.call_soon(self._fail, error, context=NO_BODY)
            return call.future
        self._calls[call.key] = call
        if found is _NOTHING and not self.is_draining:
            self._begin(call)
        elif found is Found.RECORD:
            call.state = CallState.RECORDED
        elif found is Found.GIVEN_UP:
            call.state = CallState.GIVEN_UP
        if call.state is not _PERFORMING:  # its landing is what comes next, and a turn of the loop is saved
            self._settle()
        return call.future

    @property
    def _is_going_on(self) -> bool:
        """False also when the loop is ended around the body: what is canceled then is no more the body's doing than a crash is."""
        return self.phase is _RUNNING and not self._is_loop_ending()

    def _refuse(self) -> NoReturn:
        if self.phase is Phase.TOLD and self._told is not None:
            raise CancelRequested(self._told.reason)
        raise BranchClosed

    # --- performing ----------------------------------------------------------------------------------------------------
    def start(self) -> None:
        """Begin the body. Raises `PayloadError` when its input cannot be decoded."""
        context: Context[Any] = Context(self)
        if self.task.takes_input:
            body = self.task.make_body(context, self.task.input.decode(self.claim.input, "input"))
        else:
            body = self.task.make_body(context)
        self._body.start(body, self._body_ended)

    def _begin(self, call: Call) -> None:
        """Perform what has no record."""
        call.open = self._replay.open_call(call.key)
        if call.open is NOT_STARTED and call.timer is None:
            self._attempt(call)
            return
        call.attempts, call.last_attempt = call.open.attempts, call.open.last_attempt
        if call.timer is not None:
            call.state = CallState.WAITING
            self._set_timer(call, call.open.wait.due_at if call.open.wait is not None else call.timer.due_at)
            return
        retry_at = max((failure.retry_at for failure in call.open.failures if failure.retry_at is not None and not failure.is_retired), default=None)
        if retry_at is not None and retry_at > self.clock():
            call.state = CallState.RETRYING
            self._set_timer(call, retry_at)
        else:
            self._attempt(call)

    def _set_timer(self, call: Call, due_at: datetime) -> None:
        call.due_at = due_at
        seconds = max(0.0, (due_at - self.clock()).total_seconds())
        call.work = self._loop.call_later(seconds, self._timer_due, call, context=NO_BODY)

    def _timer_due(self, call: Call) -> None:
        """A timer came due by this process's estimate of the database's clock; it may wake a little early."""
        if self.phase is not Phase.RUNNING or self._calls.get(call.key) is not call:
            return
        if call.due_at is not None and self.clock() < call.due_at:
            self._set_timer(call, call.due_at)
        elif call.timer is not None:
            call.state = CallState.PERFORMING
            self._keep(call, Outcome.RESULT, result="null")
        elif not self.is_draining:
            self._attempt(call)

    def _attempt(self, call: Call) -> None:
        call.state = _PERFORMING
        self._performer.begin(call, self)

    def attempt_succeeded(self, call: Call, result: str, started_at: datetime) -> None:
        """An attempt ended; called by the performer, with the encoded result."""
        if self._is_awaited(call):
            self._keep(call, _RESULT, result=result, started_at=started_at)

    def attempt_failed(self, call: Call, failure: Failure, started_at: datetime, retry_in: timedelta | None) -> None:
        """An attempt ended with an error; `retry_in` is the delay before the next, None after the last one."""
        if not self._is_awaited(call):
            return
        if call.is_in_doubt:
            self.lose(f"whether transaction {call.key} was committed is not known")
            return
        call.attempts += 1
        call.last_attempt += 1
        if call.seq is not None:
            self._replay.leave_flush(call.seq)
            call.seq = None
        if retry_in is None:
            self._keep(call, Outcome.ERROR, error=failure, started_at=started_at)
            return
        self._recorder.keep_attempt(call, failure, started_at, retry_in, functools.partial(self._failure_landed, call))

    def place_transaction(self, call: Call, result: str, started_at: datetime) -> StepCheckpoint:
        """Return the record of a transaction that is about to write and commit it. Raises where nobody waits for it any more."""
        if not self._is_awaited(call):
            raise LeaseLostError("the body does not wait for this transaction any more: what it wrote is undone")
        return self._recorder.place(call, result, started_at)

    def transaction_kept(self, call: Call, kept: Kept[StepCheckpoint], started_at: datetime) -> None:
        """A transaction has committed: with its record, or in a database of its own, after which the record is still to be kept."""
        if not self._is_awaited(call):
            return
        call.transacting = None
        if kept.record is None:
            self.attempt_succeeded(call, kept.result, started_at)
            return
        record = kept.record.record
        if record.seq != call.seq:
            self.lose(f"transaction {call.key} was committed by an earlier attempt")  # its place among the others is known to a replay only
            return
        call.is_recorded = True
        problem = self._recorder.count(record)
        self._landed(record, Landing.KEPT, None)
        if problem is not None:
            self._loop.call_soon(self._fail, problem, context=NO_BODY)

    def _failure_landed(self, call: Call, attempt: FailedAttempt, landing: Landing, error: OutlastError | None) -> None:
        if landing is not Landing.KEPT:
            self._refused(landing, error, f"a failed attempt of {call.key}")
        elif self._is_awaited(call) and attempt.retry_at is not None:
            call.state = CallState.RETRYING
            self._set_timer(call, attempt.retry_at)
            self._settle()

    def _is_awaited(self, call: Call) -> bool:
        return self.phase is _RUNNING and self._calls.get(call.key) is call and not self._is_loop_ending()

    # --- records ---------------------------------------------------------------------------------------------------------
    def _keep(self, call: Call, outcome: Outcome, *, result: str | None = None, error: Failure | None = None, started_at: datetime | None = None) -> None:
        problem = self._recorder.keep(call, outcome, self._landed, result=result, error=error, started_at=started_at)
        if problem is not None:
            self._loop.call_soon(self._fail, problem, context=NO_BODY)

    def _landed(self, record: Record, landing: Landing, error: OutlastError | None) -> None:
        if landing is not _KEPT:
            self._refused(landing, error, f"the record of {record.key}")
            return
        self._replay.land(record)
        self._has_progress = True
        if self.phase is not _RUNNING:
            return
        if self._body.has_to_be_watched:
            self._settle()
        else:
            self._at_standstill()

    def _refused(self, landing: Landing, error: OutlastError | None, what: str) -> None:
        if landing is Landing.BAD:
            self._fail(error or OutlastError(f"the database cannot store {what}"))
        elif landing is Landing.LOST:
            self.lose("the worker's lease was lost")
        else:
            self._performer.report_refused(self.claim, what)
            self.lose(f"the database refused {what}")

    # --- standstill --------------------------------------------------------------------------------------------------------
    def _settle(self) -> None:
        """Decide what is next as soon as the body stands still."""
        self._body.settle(self._at_standstill)

    def _at_standstill(self) -> None:
        if self.phase is not _RUNNING or self._is_loop_ending() or not self._body.is_awaiting or self._body.is_computing(self._settle):
            return
        record = self._replay.next_record()
        if record is not None:
            self._hand(record)
        elif not self._replay.has_ready and not self._begin_deferred():
            self._consider_parking()

    def _begin_deferred(self) -> bool:
        deferred = [call for call in self._calls.values() if call.state is CallState.DEFERRED]
        if self.is_draining or not deferred:
            return False
        missed = self._replay.find_missed()
        if missed is not None and self.foreign_await() is None:  # a foreign await may still ask for it
            deferred = [call for call in deferred if call.is_inserted]
            if not deferred:
                return self._fail_unless_inserting(missed)
        for call in deferred:
            self._begin(call)
        self._settle()
        return True

    def _fail_unless_inserting(self, missed: Record) -> bool:
        """The body has been handed all that it awaits, and something recorded is still to come: only a call declared as inserted may lie before it."""
        if any(call.is_inserted for call in self._calls.values()):
            return False
        got = next(call.key for call in self._calls.values() if call.state is CallState.DEFERRED)
        self._fail(HistoryMismatchError(f"{missed.key}, which is recorded", str(got)))
        return True

    def _hand(self, record: Record) -> None:
        """Give the body one record; what it does with it decides what comes next."""
        call = self._calls.pop(record.key)
        if call.future.done():  # the body's own task canceled it in this very turn, and withdraws in the next
            self._settle()
            return
        self._now = max(self._now, record.finished_at)
        if self._body.has_to_be_watched or self._replay.has_ready:
            self._settle()
        if record.error is not None and record.outcome is Outcome.ERROR:
            text = str(record.key)
            self._failed_keys[text] = record.key
            kind = StepStuckError if record.error.type == STUCK else StepFailedError
            call.future.set_exception(kind(text, record.attempts, record.error))
            return
        try:
            value = call.step.step.signature.result.decode(record.result or "null", call.step.step.result_field) if call.step is not None else None
        except PayloadError as error:
            self._fail(error)
            return
        call.future.set_result(value)

    def _consider_parking(self) -> None:
        """Leave memory when the body only waits; a body that awaits something of its own stays."""
        if self._replay.has_in_flight:
            return
        decision = parking_of(self._calls.values(), now=self.clock(), is_draining=self.is_draining)
        if decision is None or (not self.is_draining and self.foreign_await() is not None):
            return
        if isinstance(decision, Stuck):
            self._fail(HistoryMismatchError(f"{decision.key} given up", f"{decision.key} awaited"))
        else:
            self._finish(parked(self.claim, decision.due_at, decision.waits) if isinstance(decision, Park) else released(self.claim))

    # --- ends ----------------------------------------------------------------------------------------------------------------
    def _body_ended(self, root: asyncio.Task[Any]) -> None:
        if self._is_loop_ending():
            self.lose("the event loop ends")
        if self.phase is not Phase.RUNNING:
            return
        error = asyncio.CancelledError("the body canceled itself") if root.cancelled() else root.exception()
        try:
            self._replay.check_end()
            if error is not None:
                raise error
            self._finish(succeeded(self.claim, self.task.output.encode(root.result(), f"result of {self.task.name}"), self._replay.warnings))
        except (HistoryMismatchError, PayloadError) as problem:
            if problem is not error:
                problem.__cause__ = error
            self._fail(problem)
        except BaseException as problem:
            self._finish(ended_with(self.claim, self.task.retry, problem, self._failed_keys, self.clock(), self._replay.warnings))

    def _fail(self, error: OutlastError) -> None:
        """End the run as failed without counting an attempt: its code or its stored values do not fit."""
        if self.phase is Phase.RUNNING:
            self._finish(failed(self.claim, error, self._replay.warnings))

    def tell(self, reason: str) -> None:
        """Ask the body and its attempts to end; what it awaits raises `CancelRequested`, and so does whatever it asks for then."""
        if self.phase is not Phase.RUNNING:
            return
        self.phase = Phase.TOLD
        self._told = CancelRequested(reason)
        for call in self._calls.values():
            if not call.future.done():
                call.future.set_exception(CancelRequested(reason))
                call.future.exception()  # a branch that nobody awaits must not be reported as a forgotten error
            self._performer.stop(call, reason)
        self._body.interrupt()

    @property
    def root(self) -> asyncio.Task[Any] | None:
        """The body's own task, once it has begun."""
        return self._body.root

    def end_told(self, ending: Ending) -> None:
        """Enter the end of a body that was told, whether it ended by itself or not."""
        self._finish(ending)

    def lose(self, reason: str) -> None:
        """The claim is not ours any more: tell everything and write nothing."""
        if self.phase is Phase.OVER:
            return
        for call in self._calls.values():
            self._performer.stop(call, reason)
        self._finish(Ending(None, reason))

    def drain(self) -> None:
        """Begin nothing more; leave at the next standstill without an attempt in progress."""
        self.is_draining = True
        if self.phase is Phase.RUNNING:
            self._settle()

    def _finish(self, ending: Ending) -> None:
        if self.phase in (Phase.ENDING, Phase.OVER):
            return
        goes_on_elsewhere = self.phase is Phase.RUNNING and ending.checkpoint is not None
        self.phase = Phase.ENDING
        for call in self._calls.values():
            self._performer.stop(call, "the run left this worker")
        self._body.close()
        if goes_on_elsewhere:
            self._body.when_unwound(functools.partial(self._on_end, self, ending))
            return
        if (thread := self._body.thread) is not None:
            self._performer.linger(self.claim.id, thread)
        self._on_end(self, ending)

    def over(self) -> None:
        """What the execution left behind is written, or refused for good."""
        self.phase = Phase.OVER

    # --- being watched ---------------------------------------------------------------------------------------------------------
    def foreign_await(self, timed: Collection[Branches | None] | None = None) -> str | None:
        """Return where the body awaits something that is not durable; see `Branches.foreign_await`."""
        return self._body.foreign_await(timed)

    def look_again(self) -> None:
        """Decide once more what is next: something has changed that no call shows."""
        if self.phase is Phase.RUNNING:
            self._settle()

    @property
    def is_suspect(self) -> bool:
        """True for a run that lost its worker twice in a row without progress, until it records or reports something."""
        return self.claim.losses >= SUSPECT_AFTER_LOSSES and not self._has_progress

    def note_progress(self) -> None:
        self._has_progress = True

    def time_moved(self) -> None:
        """The clock was moved by hand: set the timers anew."""
        for call in self._calls.values():
            if call.state in (CallState.WAITING, CallState.RETRYING) and call.due_at is not None:
                call.stop()
                self._set_timer(call, call.due_at)

    @property
    def is_performing(self) -> bool:
        """True while a call is being performed or its record is on its way."""
        return any(not call.can_park for call in self._calls.values())


def _facts(claim: ClaimedRun) -> RunFacts:
    return RunFacts(claim.id, claim.kind, claim.version, claim.generation, claim.seed, claim.deadline_at, headers_from_json(claim.headers))
