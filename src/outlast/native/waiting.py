"""Waiting: what a claim's named waits do, each until its next conclusion: signals heard, conditions looked at, questions put.

Theory of operation. A wait that has no record looks: is there what it waits for? If so that becomes its record, and what was
used up, a signal by the run's cursor or an answer by its decision, goes in the same commit. If not, the run may park, and
registers what it has seen (`after`), so that the store does not let it park on something newer. A run that cannot park
looks again by itself. Branches that wait on one topic share the run's cursor: the first that looks gets the next signal.

It must never record a time-out while a signal that came before it is there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from outlast.branch import detached
from outlast.database.transaction import Refusal, RefusedError, Transaction
from outlast.decision import DecisionState, DecisionView, decision_of, decision_topic
from outlast.decisions.store import NewDecision
from outlast.driver import Condition, KeptSignal, Question, TopicWait
from outlast.errors import CommitUnknownError, LeaseLostError, OutlastError
from outlast.ids import derived_uuid
from outlast.payload import digest
from outlast.signal import Answer

from .backend import Backend
from .calls import Backoff, Calls, is_passing
from .conclusion import Met, Recorded, Unmet
from .mailbox import Mail
from .store import StepCheckpoint

if TYPE_CHECKING:
    from .call import Call
    from .driver import NativeDriver

R = TypeVar("R")
logger = logging.getLogger("outlast")
_write_json = msgspec.json.Encoder().encode


class Waits:
    """The named waits of one worker."""

    def __init__(
        self, backend: Backend, calls: Calls, at: Callable[[], datetime | None], deliver: Callable[[], Awaitable[None]], spawn: Callable[..., object]
    ) -> None:
        self._backend = backend
        self._calls = calls
        self._at = at
        self._deliver = deliver
        """Makes a delivery pass; what a wait finds undelivered has no number yet."""
        self._spawn = spawn
        self._is_delivering = False

    def begin(self, call: Call, driver: NativeDriver) -> None:
        """Look, and tell the driver what came of it, unless the call was stopped before."""
        call.work = detached(self._go_on(call, driver))

    async def _go_on(self, call: Call, driver: NativeDriver) -> None:
        started_at = driver.clock()
        try:
            match call.awaited:
                case TopicWait():
                    conclusion: Met | Unmet | Recorded = await self._hear(call, driver, call.awaited)
                case Question():
                    conclusion = await Asking(self, call, driver, call.awaited).run()
                case _:
                    raise AssertionError(f"nothing to look at: {call.awaited}")
        except LeaseLostError as error:
            driver.lose(str(error))
        except OutlastError as error:
            driver.fail(error)
        except Exception as error:
            logger.exception("a wait of run %s failed", driver.claim.id)
            driver.fail(OutlastError(f"the engine could not wait for {call.key}: {error!r}"))
        else:
            conclusion.tell(driver, call, started_at)

    def deliver_soon(self) -> None:
        """A body has sent something. One pass at a time, which sees all that is committed when it begins."""
        if not self._is_delivering:
            self._is_delivering = True
            self._spawn(self._deliver_sent())

    async def _deliver_sent(self) -> None:
        await asyncio.sleep(0)  # the other sends of the same flush land in this turn
        self._is_delivering = False
        try:
            await self._deliver()
        except OutlastError as error:
            logger.debug("what a body has sent was not delivered at once: %s", error)

    def withdraw(self, call: Call, driver: NativeDriver) -> None:
        """The body gave a call up: nobody has to answer what it may have asked. What a crash leaves is withdrawn at the run's end."""
        decision_id = decision_of(call.topic)
        if decision_id is not None:
            self._spawn(self._supersede(decision_id, driver))

    async def _supersede(self, decision_id: str, driver: NativeDriver) -> None:
        claim, backend = driver.claim, self._backend

        def supersede(tx: Transaction) -> None:
            if tx.run(*backend.keeping.hold(claim.hold, claim.generation)).first() is not None:
                backend.decisions.close_decision(tx, decision_id, DecisionState.SUPERSEDED, self._at())

        try:
            await self._calls.write("withdraw_question", supersede)
        except OutlastError as error:
            logger.debug("decision %s stays open until run %s is over: %s", decision_id, claim.id, error)

    # --- signals -----------------------------------------------------------------------------------------------------------
    async def _hear(self, call: Call, driver: NativeDriver, wait: TopicWait) -> Met | Unmet:
        while True:
            mail = await self.find_mail(driver, wait.topic)
            if (unheard := driver.unheard.take(wait.topic)) is not None:  # and its cursor has passed it already
                return Met(unheard)
            if mail.signal is None or mail.signal.number > driver.heard.get(wait.topic, 0):
                break
        if mail.signal is not None:
            driver.heard[wait.topic] = mail.signal.number
            kept = KeptSignal(mail.signal.id, msgspec.Raw(mail.signal.payload.encode()), mail.signal.sent_at)
            return Met(_write_json(kept).decode(), (wait.topic, mail.signal.number))
        if wait.due_at is not None and driver.clock() >= wait.due_at:
            return Met("null")
        return Unmet(wait.topic, mail.newest, wait.due_at)

    async def find_mail(self, driver: NativeDriver, topic: str) -> Mail:
        """Return the next signal on a topic that the run has not seen, and the newest there is; everything sent before has its number."""
        run_id, store, backoff = driver.claim.id, self._backend.store, Backoff()
        while True:
            mail = await self.insist(
                lambda: self._calls.read("find_mail", lambda tx: store.find_mail(tx, run_id, topic, driver.heard.get(topic, 0), self._at()))
            )
            if mail.signal is not None or not mail.has_undelivered:
                return mail
            await self.insist(self._deliver)
            await asyncio.sleep(backoff.next())  # where somebody has the topic locked, nothing has changed yet

    # --- conditions ----------------------------------------------------------------------------------------------------------
    async def before_check(self, driver: NativeDriver, condition: Condition) -> int:
        """Return the newest signal that a check can have heard of: what comes later hurries the next check."""
        return 0 if condition.topic is None else (await self.find_mail(driver, condition.topic)).newest

    async def after_check(self, call: Call, driver: NativeDriver, condition: Condition, value: Any, after: int) -> Met | Unmet:
        """Return what a check that did not raise has said."""
        step = condition.check.step
        if value:
            return Met(f"[{step.signature.result.encode(value, step.result_field)}]")
        if call.attempts:  # only failures in a row use the policy's attempts up
            claim, store = driver.claim, self._backend.store
            await self.insist(lambda: self._calls.write("delete_failures", lambda tx: store.delete_failures(tx, claim.hold, claim.generation, call.key)))
            call.attempts = call.last_attempt = 0
        now = driver.clock()
        if condition.due_at is not None and now >= condition.due_at:
            return Met("null")
        look_at = now + condition.every
        return Unmet(condition.topic, after, look_at if condition.due_at is None else min(look_at, condition.due_at))

    # --- the database ----------------------------------------------------------------------------------------------------------
    async def insist(self, call: Callable[[], Awaitable[R]]) -> R:
        """Call until the database answers, or the lease ends and with it this task."""
        backoff = Backoff()
        while True:
            try:
                return await call()
            except OutlastError as error:
                if not is_passing(error):
                    raise
            await asyncio.sleep(backoff.next())

    async def write(self, name: str, function: Callable[[Transaction], R]) -> R:
        return await self._calls.write(name, function)

    async def read(self, name: str, function: Callable[[Transaction], R]) -> R:
        return await self._calls.read(name, function)

    @property
    def backend(self) -> Backend:
        return self._backend

    @property
    def at(self) -> datetime | None:
        return self._at()


class Asking:
    """One question of one claim. Its id is derived from the call, so that nobody is asked twice for it."""

    def __init__(self, waits: Waits, call: Call, driver: NativeDriver, question: Question) -> None:
        self._waits = waits
        self._call = call
        self._driver = driver
        self._question = question
        self._started_at = driver.clock()
        self.may_commit = False
        """Its record is being committed, and nothing that is decided here can stop it."""
        call.transacting = self

    async def run(self) -> Unmet | Recorded:
        """Put the question, or see whether it was answered; at its time-out it is withdrawn."""
        number = 0
        while True:
            decision = await self._put(self._new(number))
            if decision.state in (DecisionState.OPEN, DecisionState.ANSWERED):
                break
            number += 1  # it was withdrawn when the run was over, and the run was retried: ask anew
        if decision.state is DecisionState.ANSWERED:
            answer = Answer(decision.answer or "", decision.answered_by or "", decision.note, decision.answered_at or self._started_at)
            return await self._record(decision.id, DecisionState.CONSUMED, _write_json(answer).decode())
        due_at = self._question.due_at
        if due_at is not None and self._driver.clock() >= due_at:
            return await self._record(decision.id, DecisionState.SUPERSEDED, "null")
        return Unmet(decision_topic(decision.id), 0, due_at)

    async def _put(self, new: NewDecision) -> DecisionView:
        return await self._waits.insist(lambda: self._waits.write("ask_question", lambda tx: self._open(tx, new)))

    def _new(self, number: int) -> NewDecision:
        facts, question = self._driver.facts, self._question
        label = f"$ask {self._call.key}" if not number else f"$ask {self._call.key} {number}"
        return NewDecision(
            id=str(derived_uuid(facts.seed, facts.generation, label)),
            run=facts.run_id,
            generation=facts.generation,
            step=str(self._call.key),
            question=question.text,
            about=question.about,
            digest=digest(question.about),
            options=question.options,
        )

    def _open(self, tx: Transaction, new: NewDecision) -> DecisionView:
        self._ensure_held(tx)
        decisions = self._waits.backend.decisions
        decisions.open_decision(tx, new, self._waits.at)
        found = decisions.find_decision(tx, new.id)
        if found is None:
            raise OutlastError(f"decision {new.id} is gone in the transaction that opened it")
        return found

    def _ensure_held(self, tx: Transaction) -> None:
        claim = self._driver.claim
        if tx.run(*self._waits.backend.keeping.hold(claim.hold, claim.generation)).first() is None:
            raise LeaseLostError("the run is not this worker's any more: nothing of its question is recorded")

    async def _record(self, decision_id: str, state: DecisionState, result: str) -> Unmet | Recorded:
        """Use the answer up, or withdraw the question, in the commit of the record."""
        checkpoint = self._driver.place(self._call, result, self._started_at)
        self.may_commit, backoff, in_doubt = True, Backoff(), False
        while True:
            try:
                is_recorded = await self._waits.write("record_answer", lambda tx: self._close(tx, decision_id, state, checkpoint))
            except OutlastError as error:
                is_duplicate = isinstance(error, RefusedError) and error.refusal is Refusal.DUPLICATE
                if not is_passing(error) and not is_duplicate:
                    raise
                in_doubt = in_doubt or is_duplicate or isinstance(error, CommitUnknownError)
                await asyncio.sleep(backoff.next())
            else:
                if is_recorded or (in_doubt and await self._is_kept(checkpoint)):
                    return Recorded(checkpoint)
                self.may_commit = False  # answered in the very moment of its time-out: look again
                self._driver.withdraw_place(self._call)
                return await self.run()

    def _close(self, tx: Transaction, decision_id: str, state: DecisionState, checkpoint: StepCheckpoint) -> bool:
        self._ensure_held(tx)
        backend = self._waits.backend
        locked = backend.decisions.lock_decision(tx, decision_id)
        if locked is None or (state is DecisionState.SUPERSEDED and locked.state is not DecisionState.OPEN):
            return False
        if not backend.decisions.close_decision(tx, decision_id, state, self._waits.at):
            return False
        if backend.store.commit_checkpoints(tx, [checkpoint], self._waits.at)():
            raise LeaseLostError("the record of an answer was refused: its claim is not current any more")
        return True

    async def _is_kept(self, checkpoint: StepCheckpoint) -> bool:
        store = self._waits.backend.store
        return bool(await self._waits.insist(lambda: self._waits.read("find_answer_record", lambda tx: store.find_kept(tx, [checkpoint]))))
