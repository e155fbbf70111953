"""MailModel: what waits by name and what is asked, as rules on plain objects: signals, cursors, the waits of parked runs, decisions."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime

from outlast.decision import DecisionState, decision_topic
from outlast.native.history import Wait
from outlast.native.mailbox import NewSignal, Sent
from outlast.run import RunStatus
from outlast.step_key import StepKey

from .store_model_state import ModelDecision, ModelRun, ModelSignal, ModelState, ModelWait, call_of


@dataclass(frozen=True)
class ModelMail:
    """What there is for a run on a topic."""

    signal_id: str | None
    number: int
    newest: int
    has_undelivered: bool


class MailModel(ModelState):
    """The rules of signals and decisions."""

    # --- signals -------------------------------------------------------------------------------------------------------------
    def append(self, new: NewSignal, now: datetime) -> Sent:
        """Append a signal: the same id is the same call, the same key on a topic the same signal until that has expired."""
        if new.id in self.signals:
            return Sent(new.id, True, self.signals[new.id].payload_digest)
        owner = self.owner_of_key(new)
        if owner is not None and not self.signals[owner].is_expired(now):
            return Sent(owner, False, self.signals[owner].payload_digest)
        if owner is not None:
            del self.signals[owner]
        self.keep(new, now)
        return Sent(new.id, True, new.payload_digest)

    def owner_of_key(self, new: NewSignal) -> str | None:
        if new.idempotency_key is None:
            return None
        found = (name for name, one in self.signals.items() if (one.topic, one.idempotency_key) == (new.topic, new.idempotency_key))
        return next(found, None)

    def keep(self, new: NewSignal, now: datetime) -> None:
        expires_at = None if new.ttl is None else now + new.ttl
        self.signals[new.id] = ModelSignal(new.topic, new.run, new.payload, new.payload_digest, new.idempotency_key, now, expires_at)

    def expired(self, now: datetime) -> list[str]:
        """Return what has outlived its time, the first to do so first."""
        gone = [name for name, one in self.signals.items() if one.is_expired(now)]
        return sorted(gone, key=lambda name: str(self.signals[name].expires_at))

    def delete_expired(self, now: datetime) -> int:
        gone = self.expired(now)
        for name in gone:
            del self.signals[name]
        return len(gone)

    def mail(self, run_id: str, topic: str, after: int, now: datetime) -> ModelMail:
        """Return the next signal past the cursor and past `after` that has not expired, and how far the topic has come."""
        seen = max(after, self.cursors.get((run_id, topic), 0))
        there = [(one.number, name) for name, one in self.signals.items() if one.topic == topic and one.number is not None]
        next_one = min(((number, name) for number, name in there if number > seen and not self.signals[name].is_expired(now)), default=(0, None))
        is_new = any(one.topic == topic and one.number is None and not one.is_expired(now) for one in self.signals.values())
        return ModelMail(next_one[1], next_one[0], max((number for number, _ in there), default=0), is_new)

    # --- delivery ------------------------------------------------------------------------------------------------------------
    def undelivered(self, limit: int) -> list[str]:
        return [name for name, one in self.signals.items() if not one.is_delivered][:limit]

    def waiters(self, names: Collection[str], now: datetime) -> list[ModelRun]:
        """Return, once for each wait, the parked runs that wait on a topic of these signals for what is newer than what they have seen."""
        newest: dict[str, int] = {}
        for name in names:
            signal = self.signals[name]
            if not signal.is_expired(now):
                newest[signal.topic] = max(newest.get(signal.topic, 0), signal.number or 0)
        return [
            self.runs[run_id]
            for (run_id, *_), wait in self.waits.items()
            if wait.topic in newest and wait.after < newest[wait.topic] and self.runs[run_id].status is RunStatus.WAITING
        ]

    def number(self, names: Iterable[str]) -> None:
        for name in names:
            if self.signals[name].number is None:
                self.last_number += 1
                self.signals[name].number = self.last_number

    def deliver(self, limit: int, now: datetime) -> int:
        """Number the first signals, wake who waits for them, and return how many runs that were. Nobody is left who waits: all are delivered."""
        names = self.undelivered(limit)
        self.number(names)
        woken = {run.id: run for run in self.waiters(names, now)}
        for run in woken.values():
            run.status, run.due_at = RunStatus.PENDING, min(run.due_at or now, now)
        for name in names:
            self.signals[name].is_delivered = True
        return len(woken)

    # --- waits ---------------------------------------------------------------------------------------------------------------
    def register_waits(self, run: ModelRun, waits: Collection[Wait], now: datetime) -> bool:
        """Keep what a run that was just parked waits for, and return whether it goes on at once, because something is there already.

        A wait that is there keeps its instant while it has the same name. A run that waits for a time only waits for no name any more.
        """
        if not waits:
            self.forget_named_waits(run)
        for wait in waits:
            call, known = call_of(run.id, wait.key), self.waits.get(call_of(run.id, wait.key))
            if known is None:
                self.waits[call] = ModelWait(wait.kind, wait.due_at, wait.topic, wait.after)
                continue
            if known.topic != wait.topic:
                known.topic, known.due_at = wait.topic, wait.due_at
            known.after = wait.after
        if not any(self._has_news(wait, now) for wait in waits if wait.topic is not None):
            return False
        run.status, run.due_at = RunStatus.PENDING, now
        return True

    def _has_news(self, wait: Wait, now: datetime) -> bool:
        return any(one.topic == wait.topic and not one.is_expired(now) and (one.number is None or one.number > wait.after) for one in self.signals.values())

    def forget_named_waits(self, run: ModelRun) -> None:
        for call in [call for call, wait in self.waits.items() if call[0] == run.id and wait.topic is not None]:
            del self.waits[call]

    def forget_heard(self, run_id: str, key: StepKey) -> None:
        """The call that waited on a reserved topic has its record: what was delivered there for its run goes."""
        wait = self.waits.get(call_of(run_id, key))
        for name in [name for name, one in self.signals.items() if wait and one.topic == wait.topic and one.run == run_id and one.is_delivered]:
            del self.signals[name]

    # --- decisions -----------------------------------------------------------------------------------------------------------
    def open_decision(self, decision_id: str, run_id: str, digest: str, now: datetime) -> None:
        self.decisions.setdefault(decision_id, ModelDecision(run_id, digest, now))

    def answer(self, decision_id: str, digest: str, option: str, signal_id: str, now: datetime) -> bool:
        """Answer an open question that is still about the same, and send what wakes its run."""
        decision = self.decisions[decision_id]
        if decision.state is not DecisionState.OPEN or decision.digest != digest:
            return False
        decision.state, decision.answer, decision.answered_at = DecisionState.ANSWERED, option, now
        self.append(NewSignal(signal_id, decision_topic(decision_id), decision.run), now)
        return True

    def consume(self, decision_id: str, now: datetime) -> bool:
        decision = self.decisions[decision_id]
        if decision.state is not DecisionState.ANSWERED:
            return False
        decision.state, decision.closed_at = DecisionState.CONSUMED, now
        return True

    def withdraw(self, run_id: str, now: datetime) -> None:
        """A run is over without having used what it asked: nobody is asked any more, and nothing is kept for it."""
        for decision in self.decisions.values():
            if decision.run == run_id and decision.state in (DecisionState.OPEN, DecisionState.ANSWERED):
                decision.state, decision.closed_at = DecisionState.WITHDRAWN, now
        for name in [name for name, one in self.signals.items() if one.run == run_id]:
            del self.signals[name]
