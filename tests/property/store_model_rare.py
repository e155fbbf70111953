"""ModelMachine: all rules, a stretch of ordinary life before hypothesis chooses, and what chance comes to too seldom."""

from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any

from hypothesis.stateful import initialize, rule
from msgspec.structs import replace as with_values

from outlast.failure import Failure
from outlast.native.history import RecordKind
from outlast.native.store import RunCheckpoint
from outlast.payload import digest
from outlast.run import RunStatus

from .store_model_acts import ActRules
from .store_model_base import EVERYTHING
from .store_model_bodies import TRIES
from .store_model_machine import seeds

SECOND = timedelta(seconds=1)
LIFE = 60
PARAMETERS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("wake_due", "end_overdue", "recover", "delete_expired"), ()),
    "claim": ("seed", "limit"),
    "probe": ("seed", "limit", "is_by_age"),
    "look_and_park": ("seed", "is_at_once"),
    "prune": ("older_than",),
    "deliver_all": ("limit",),
    "deliver_a_page": ("limit",),
    "lose_a_worker": ("seed", "end", "beat"),
}
"""What a rule is given, where it is not a seed alone."""
OFTEN = {
    "time_passes": 12,
    "wake_due": 5,
    "end_overdue": 4,
    "record_run": 5,
    "renew": 2,
    "lose_a_worker": 5,
    "recover": 1,
    "poison": 2,
    "claim": 12,
    "probe": 2,
    "record_steps": 6,
    "end": 8,
    "send": 9,
    "deliver_all": 4,
    "deliver_a_page": 3,
    "delete_expired": 2,
    "count_waiting": 1,
    "look_and_park": 12,
    "park": 6,
    "conclude": 10,
    "answer": 6,
    "cancel": 5,
    "begin_again": 6,
    "discard": 2,
    "prune": 1,
    "rare": 14,
}
"""How often each rule comes up before hypothesis chooses: left to itself it does the rare thing as often as what makes it possible."""


class ModelMachine(ActRules):
    """All rules."""

    @initialize(seed=seeds)
    def live(self, seed: int) -> None:
        """A stretch of ordinary life, from one seed."""
        random = Random(seed)
        self.bodies.random = Random(seed)
        self.begin()
        for name in random.choices(list(OFTEN), list(OFTEN.values()), k=LIFE):
            self.do(name, random)

    def do(self, name: str, random: Random) -> None:
        if {
            "record_steps": self.holds,
            "end": self.holds,
            "look_and_park": self.holds,
            "conclude": self.holds,
            "park": self.looks,
            "answer": self.model.decisions,
        }.get(name, True):
            drawn: dict[str, list[Any]] = {
                "limit": [EVERYTHING] if name == "claim" else [1, 2],
                "is_by_age": [True, False],
                "is_at_once": [True, False],
                "older_than": [7.0, 40.0],
            }
            drawn |= {
                "end": ["stopped", "stopped", "dead", "silent", "silent"],
                "beat": [None, None, 1],
                "lease": [1.0, 30.0],
                "seed": [random.getrandbits(32)],
            }
            rule = getattr(self, name)
            rule(**{each: random.choice(drawn[each]) for each in PARAMETERS.get(name, ("seed",))})

    # --- what is rare --------------------------------------------------------------------------------------------------------
    @rule(seed=seeds)
    def rare(self, seed: int) -> None:
        """One of the things that need several calls in a row."""
        random = self.draw(seed)
        several = (self._dead, self._ended, self._ended, self._every_state, self._heard_in_a_row, self._overdue, self._silent, self._time_out)
        random.choice([*several, self._recorded_twice, self._same_key_twice])()

    def _same_key_twice(self) -> None:
        """A key that is taken, with another payload, and once more when its signal has expired in the same instant; the same for a run's."""
        first = replace(self.bodies.new_signal(), idempotency_key="once", ttl=5 * SECOND)
        self._send(first)
        self._send(replace(first, id=self.bodies.next_id(), idempotency_key=None))
        self.send_this(replace(first, id=self.bodies.next_id(), payload="3", payload_digest=digest("3")))
        self.deliver_all(EVERYTHING)
        self.stores.pass_by(5 * SECOND)
        self.send_this(replace(first, id=self.bodies.next_id()))
        self.deliver_all(EVERYTHING)
        for holder in [hold for _, hold in self.holds if self.model.is_current(hold)][:1]:
            self.look(holder, first.topic)
        lane, run = self.bodies.new_run(self.now)
        for text in ("1", "2"):
            self.record_this_run(lane, with_values(run, id=self.bodies.next_id(), idempotency_key="once", input=text, input_digest=digest(text)))

    def _every_state(self) -> None:
        """Something is done to a run in each state that there is, and to one that is not there."""
        chosen = {run.status: run.id for run in self.bodies.random.sample(list(self.model.runs.values()), len(self.model.runs))}
        for run_id in [*chosen.values(), self.bodies.next_id()]:
            for act in self.bodies.random.sample([self.cancel_this, self.retry_this, self.resume_this, self.discard_this], 2):
                act(run_id)

    def _dead(self) -> None:
        """Three strikes, and what a person does then."""
        self.poison_some()
        for run in [run for run in self.model.runs.values() if run.status is RunStatus.DEAD][:1]:
            self._act_on(run.id)

    def _ended(self) -> None:
        """A step fails a run that has asked something, or it succeeds all the same, and what a person does then."""
        self.claim_some(EVERYTHING)
        worker, hold = self.some_hold()
        key, run_key = self.bodies.next_key(hold.run_id, (), "work"), self.model.runs[hold.run_id].idempotency_key
        if self.bodies.some(0.5):
            self._ask(hold, 2)
        failing = self.bodies.record(hold, key, RecordKind.STEP, self.now, None, TRIES)
        failed = RunCheckpoint(hold, 0, RunStatus.FAILED, error=Failure("a.Error", ""), failed_key=key, idempotency_key=run_key)
        succeeded = RunCheckpoint(hold, 0, RunStatus.SUCCEEDED, output="1", idempotency_key=run_key, may_have_asked=self.bodies.has_asked(hold))
        self.stores.commit(worker, [failing, self.bodies.random.choice([failed, failed, succeeded])])
        if self.bodies.some(0.3):  # a second end of the same claim
            self.stores.commit(worker, [failed])
        self._act_on(hold.run_id)

    def _act_on(self, run_id: str) -> None:
        """To cancel what is over changes nothing."""
        self.cancel_this(run_id)
        self.bodies.random.choice([self.retry_this, self.resume_this, self.discard_this])(run_id)

    def _time_out(self) -> None:
        """A run parks for a second, and goes on when that is over, unless it was signaled."""
        self.claim_some(EVERYTHING)
        body = self.some_body()
        if body is None or not self.model.is_current(body[1]) or 0 not in self.bodies.branches(body[1].run_id):
            return
        worker, hold = body
        wait = self.bodies.wait(hold.run_id, 0, self.look(hold, self.bodies.waiting(hold.run_id, 0)[2]).newest, self.now)
        self.stores.commit(worker, [self.bodies.park(hold, (replace(wait, due_at=self.now + SECOND),))])
        self.stores.pass_by(SECOND)
        self.wake_due()
        alive = next(name for name, one in self.model.workers.items() if one.is_alive)
        self.claim_these(alive, [hold.run_id], 1)
        self._hear(*self.holds[-1], 0)

    def _heard_in_a_row(self) -> None:
        """A run hears one signal after the other, on a topic where it has heard before too."""
        self.claim_some(EVERYTHING)
        body = self.some_body()
        for _ in range(4 if body is not None else 0):
            worker, hold = body or self.holds[-1]
            self._send(replace(self.bodies.new_signal(), topic=self.bodies.waiting(hold.run_id, 0)[2], idempotency_key=None))
            self.deliver_all(EVERYTHING)
            self._hear(worker, hold, 0)

    def _overdue(self) -> None:
        """A run reaches its deadline before it ever ran; or it sleeps past it, unless it is canceled."""
        lane, new = self.bodies.new_run(self.now)
        new = with_values(new, deadline_at=self.now + SECOND, due_at=self.bodies.after(self.now, None, None, 40.0), idempotency_key=None)
        self.record_this_run(lane, new)
        if new.due_at is None and self.bodies.some(0.8):
            self.claim_these(next(iter(self.model.workers)), [new.id], 1)
            worker, hold = self.holds[-1]
            self.stores.commit(worker, [RunCheckpoint(hold, 0, RunStatus.WAITING, self.now + 40 * SECOND)])
        if self.bodies.some(0.4):
            self.cancel_this(new.id)
        self.stores.pass_by(SECOND)
        self.end_overdue()

    def _silent(self) -> None:
        """A worker is silent only after its lease."""
        worker = self.record_a_worker(1.0)
        self.claim_these(worker, list(self.model.runs), 1)
        for delay in (SECOND, timedelta(microseconds=1)):
            self.stores.pass_by(delay)
            self.end_a_worker(worker, "silent")
        self.recover()

    def _recorded_twice(self) -> None:
        """A record meets one of its key: all of its group is undone."""
        self.claim_some(EVERYTHING)
        worker, hold = self.some_hold()
        key, other = self.bodies.next_key(hold.run_id, (), "work"), self.bodies.next_key(hold.run_id, (1,), "work")
        self.stores.commit(worker, [self.bodies.record(hold, key, RecordKind.STEP, self.now, "0")])
        self.stores.commit(worker, [self.bodies.record(hold, one, RecordKind.STEP, self.now, "1") for one in (other, key)])
