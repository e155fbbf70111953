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
from datetime import datetime
from typing import Any, NoReturn

from outlast.branch import NO_BODY, BranchClosed, Branches
from outlast.context import Context
from outlast.driver import Awaited, Condition, Handed, Message, Question, RunFacts, StepCall, Timer, TopicWait
from outlast.errors import CancelRequested, HistoryMismatchError, OutlastError, PayloadError
from outlast.failure import Failure
from outlast.limits import SUSPECT_AFTER_LOSSES
from outlast.step_key import StepKey
from outlast.stillness import Stillness
from outlast.task import Task
from outlast.transaction import OwnDatabase

from .alarms import Alarms
from .body import Body
from .call import Call, CallState
from .checkpoints import Checkpoints, Landing
from .concluding import Concluding
from .encoding import headers_from_json
from .ending import Ending, ended_with, failed, parked, released, succeeded
from .handing import error_of, value_of
from .history import EMPTY, History, Outcome, Record, RecordKind
from .parking import Park, Stuck, parking_of
from .performer import Performer
from .phase import Phase
from .recorder import Recorder
from .replay import NOT_STARTED, Found, Replay
from .replay_log import ReplayLog
from .store import ClaimedRun
from .transacting import ensure_fits
from .unheard import Unheard
from .waiting import Waits

logger = logging.getLogger("outlast")


_ASKING = (RecordKind.EFFECT, RecordKind.ASK)
_KINDS = {TopicWait: RecordKind.WAIT, Condition: RecordKind.UNTIL, Question: RecordKind.ASK, Message: RecordKind.SIGNAL}


# Asked for at every step, and the look-up of a member is slow before Python 3.12: all of them were a twentieth of a step.
_RUNNING, _DEFERRED, _PERFORMING = Phase.RUNNING, CallState.DEFERRED, CallState.PERFORMING
_STEP, _SIGNAL, _NOTHING, _KEPT = RecordKind.STEP, RecordKind.SIGNAL, Found.NOTHING, Landing.KEPT


class NativeDriver(Concluding):
    """One execution of one claimed run."""

    def __init__(
        self,
        claim: ClaimedRun,
        task: Task[Any, Any],
        *,
        history: History = EMPTY,
        checkpoints: Checkpoints,
        performer: Performer,
        waits: Waits,
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
        self._waits = waits
        self.unheard = Unheard()
        self.heard: dict[str, int] = {}
        """The number of the last signal that this execution was given, by topic."""
        self._loop = asyncio.get_running_loop()
        self.clock = now
        self._on_end = on_end
        self._is_loop_ending = is_loop_ending
        self._replay = Replay(history)
        self._recorder = Recorder(claim, history, self._replay, checkpoints, now)
        self._body = Body(self._loop, stillness)
        self._alarms = Alarms(self._loop, now, self._due)
        self._calls: dict[StepKey, Call] = {}
        self._failed_keys: dict[str, StepKey] = {}
        self._now = claim.started_at
        self._may_have_asked = any(record.kind in _ASKING and record.outcome is Outcome.GIVEN_UP for record in history.records)
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
        if call.effect is not None:
            kind = RecordKind.EFFECT
        if call.on is not None:
            ensure_fits(call)
        return self._ask(Call(key, kind, Handed(loop=self._loop), _DEFERRED, step=call, digest=call.digest))

    def wait(self, key: StepKey, timer: Timer) -> Handed:
        kind = RecordKind.TIMEOUT if timer.is_timeout else RecordKind.SLEEP
        self._body.has_timeout = self._body.has_timeout or timer.is_timeout
        return self._ask(Call(key, kind, Handed(loop=self._loop), CallState.DEFERRED, timer=timer))

    def wait_for(self, key: StepKey, awaited: Awaited) -> Handed:
        step = awaited.check if isinstance(awaited, Condition) else None
        return self._ask(Call(key, _KINDS[type(awaited)], Handed(loop=self._loop), _DEFERRED, step=step, awaited=awaited, digest=awaited.digest))

    def give_up(self, key: StepKey) -> None:
        call = self._calls.pop(key, None)
        if call is None or not self._is_going_on:
            return
        if call.kind is RecordKind.WAIT:
            self.unheard.put(call, self._replay.find_ready(key))
        self._replay.withdraw(key)
        if call.state in (CallState.RECORDED, CallState.GIVEN_UP):
            return
        self._performer.stop(call, "the body gave this step up")
        if call.kind in _ASKING:
            self._may_have_asked = True
            self._waits.withdraw(call, self)
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
            self._loop.call_soon(self.fail, error, context=NO_BODY)
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
            self._alarms.set(call, call.open.wait.due_at if call.open.wait is not None and call.open.wait.due_at is not None else call.timer.due_at)
            return
        retry_at = max((failure.retry_at for failure in call.open.failures if failure.retry_at is not None and not failure.is_retired), default=None)
        if retry_at is not None and retry_at > self.clock():
            call.state = CallState.RETRYING
            self._alarms.set(call, retry_at)
        else:
            self._attempt(call)

    def _due(self, call: Call) -> None:
        """What a call waited for in memory has come, or is to be looked at."""
        if self.phase is not Phase.RUNNING or self._calls.get(call.key) is not call:
            return
        if call.timer is not None:
            call.state = CallState.PERFORMING
            self._keep(call, Outcome.RESULT, result="null")
        elif not self.is_draining:
            self._attempt(call)

    def _attempt(self, call: Call) -> None:
        call.state = _PERFORMING
        if call.step is not None:
            self._performer.begin(call, self)
        elif isinstance(call.awaited, Message):
            self._keep(call, Outcome.RESULT, result="null")
        else:
            self._waits.begin(call, self)

    # --- records ---------------------------------------------------------------------------------------------------------
    def _keep(
        self,
        call: Call,
        outcome: Outcome,
        *,
        result: str | None = None,
        error: Failure | None = None,
        started_at: datetime | None = None,
        heard: tuple[str, int] | None = None,
    ) -> None:
        problem = self._recorder.keep(call, outcome, self._landed, result=result, error=error, started_at=started_at, heard=heard)
        if problem is not None:
            self._loop.call_soon(self.fail, problem, context=NO_BODY)

    def _landed(self, record: Record, landing: Landing, error: OutlastError | None) -> None:
        if landing is not _KEPT:
            self._refused(landing, error, f"the record of {record.key}")
            return
        self._replay.land(record)
        self._has_progress = True
        if record.kind is _SIGNAL:
            self._waits.deliver_soon()
        if self.phase is not _RUNNING:
            return
        if self._body.has_to_be_watched:
            self._settle()
        else:
            self._at_standstill()

    def _refused(self, landing: Landing, error: OutlastError | None, what: str) -> None:
        if landing is Landing.BAD:
            self.fail(error or OutlastError(f"the database cannot store {what}"))
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
        self.fail(HistoryMismatchError(f"{missed.key}, which is recorded", str(got)))
        return True

    def _hand(self, record: Record) -> None:
        """Give the body one record; what it does with it decides what comes next."""
        call = self._calls.pop(record.key)
        if call.future.done():  # the body's own task canceled it in this very turn, and withdraws in the next
            self.unheard.put(call, record)
            self._settle()
            return
        self._now = max(self._now, record.finished_at)
        if self._body.has_to_be_watched or self._replay.has_ready:
            self._settle()
        error = None if record.error is None else error_of(record)
        if error is not None:
            self._failed_keys[error.step] = record.key
            call.future.set_exception(error)
            return
        if record.kind is RecordKind.WAIT:
            self.unheard.heard(call, record)
        try:
            value = value_of(call, record)
        except PayloadError as problem:
            if call.awaited is not None:  # what a stranger sent is for the body to judge
                call.future.set_exception(problem)
                return
            self.fail(problem, failed_key=record.key if record.outcome is Outcome.RESUMED else None)
            return
        call.future.set_result(value)

    def _consider_parking(self) -> None:
        """Leave memory when the body only waits; a body that awaits something of its own stays."""
        if self._replay.has_in_flight or self._look_at_unheard():
            return
        decision = parking_of(self._calls.values(), now=self.clock(), is_draining=self.is_draining)
        if decision is None or (not self.is_draining and self.foreign_await() is not None):
            return
        if isinstance(decision, Stuck):
            self.fail(HistoryMismatchError(f"{decision.key} given up", f"{decision.key} awaited"))
        else:
            self._finish(parked(self.claim, decision.due_at, decision.waits) if isinstance(decision, Park) else released(self.claim))

    def _look_at_unheard(self) -> bool:
        """Let waits look again for whose topic another branch has left a signal: the store knows nothing of it, and would let them sleep."""
        waiting = [call for call in self._calls.values() if call.kind is RecordKind.WAIT and call.state is CallState.WAITING]
        left = [call for call in waiting if call.topic is not None and self.unheard.has(call.topic)]
        for call in left:
            call.stop()
            self._attempt(call)
        return bool(left)

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
            output = self.task.output.encode(root.result(), f"result of {self.task.name}")
            self._finish(succeeded(self.claim, output, self._replay.warnings, may_have_asked=self._may_have_asked))
        except (HistoryMismatchError, PayloadError) as problem:
            if problem is not error:
                problem.__cause__ = error
            self.fail(problem)
        except BaseException as problem:
            self._finish(ended_with(self.claim, self.task.retry, problem, self._failed_keys, self.clock(), self._replay.warnings))

    def fail(self, error: OutlastError, failed_key: StepKey | None = None) -> None:
        """End the run as failed without counting an attempt: its code or its stored values do not fit.

        `failed_key` names a record that a person gave, and may give anew.
        """
        if self.phase is Phase.RUNNING:
            self._finish(failed(self.claim, error, self._replay.warnings, failed_key))

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
        self._alarms.set_anew(self._calls.values())

    @property
    def is_performing(self) -> bool:
        """True while a call is being performed or its record is on its way."""
        return any(not call.can_park for call in self._calls.values())


def _facts(claim: ClaimedRun) -> RunFacts:
    return RunFacts(claim.id, claim.kind, claim.version, claim.generation, claim.seed, claim.deadline_at, headers_from_json(claim.headers))
