"""ActRules: the rest of what happens to a store: signals and waits, questions to people, and what callers and operators do."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from outlast.decision import DecisionState
from outlast.decisions.store import NewAnswer, NewDecision
from outlast.native.history import RecordKind, Wait
from outlast.native.mailbox import NewSignal
from outlast.native.store import Hold
from outlast.run import RunStatus

from .store_model_base import EVERYTHING
from .store_model_bodies import TOPICS
from .store_model_machine import RunRules, seeds
from .store_model_mail import ModelMail


class ActRules(RunRules):
    """What is waited for by name, and what callers and operators do."""

    def __init__(self) -> None:
        super().__init__()
        self.looks: list[tuple[int, Hold, tuple[Wait, ...]]] = []
        """What bodies have looked at before they park, however long ago."""

    # --- signals -------------------------------------------------------------------------------------------------------------
    @rule(seed=seeds)
    def send(self, seed: int) -> None:
        self.draw(seed)
        new = self.bodies.new_signal()
        if self.model.signals and self.bodies.some(0.05):  # the sender's own call, tried again
            new = replace(new, id=self.bodies.random.choice(list(self.model.signals)))
        self.send_this(new)
        if self.bodies.some(0.5):
            self.deliver_all(EVERYTHING)

    def send_this(self, new: NewSignal) -> None:
        owner = self.model.owner_of_key(new)
        was_expired = owner is not None and self.model.signals[owner].is_expired(self.now)
        sent = self._send(new)
        self.stores.note("signal with a key that is taken", not sent.created)
        self.stores.note("signal key conflict", not sent.created and sent.payload_digest != new.payload_digest)
        self.stores.note("signal with a key that is free again", was_expired and sent.created)

    def _send(self, new: NewSignal) -> Any:
        return self.stores.write("send", f"{new}", lambda side, tx: side.store.append_signal(tx, new, self.now), lambda: self.model.append(new, self.now))

    @rule(limit=st.sampled_from([1, 2, EVERYTHING]))
    def deliver_all(self, limit: int) -> None:
        """Passes until there is no more to do; which of several that wait a page wakes is the store's affair, and the end is the same."""

        def deliver(side: Any, tx: Any) -> bool:
            while side.store.deliver_signals(tx, limit, self.now).has_more:
                pass
            return True

        def model() -> bool:
            self.stores.note("signal that woke", self.model.deliver(EVERYTHING, self.now))
            return True

        self.stores.write("deliver", f"{limit}", deliver, model)

    @rule(limit=st.sampled_from([1, 2]))
    def deliver_a_page(self, limit: int) -> None:
        """One pass: it numbers as many signals as it may, and wakes everybody who waits for these, where they are not more than it may wake."""
        first = self.model.undelivered(limit)
        coming = {self.model.signals[name].topic for name in first}
        if sum(wait.topic in coming for wait in self.model.waits.values()) > limit:
            return
        self.stores.write(
            "deliver page",
            f"{limit}",
            lambda side, tx: side.store.deliver_signals(tx, limit, self.now).count,
            lambda: (self.model.deliver(limit, self.now), len(first))[1],
        )

    @rule()
    def delete_expired(self) -> None:
        self.stores.note("expired", self.model.expired(self.now))
        self.stores.write("expire", "", lambda side, tx: side.store.delete_expired(tx, EVERYTHING, self.now), lambda: self.model.delete_expired(self.now))

    @rule(seed=seeds)
    def count_waiting(self, seed: int) -> None:
        topic = self.draw(seed).choice(TOPICS)
        waiting = {call[0] for call, wait in self.model.waits.items() if wait.topic == topic and self.model.runs[call[0]].status is RunStatus.WAITING}
        self.stores.read("waiting", topic, lambda side, tx: side.store.count_waiting(tx, topic, EVERYTHING), lambda: len(waiting))

    # --- bodies that wait ----------------------------------------------------------------------------------------------------
    def look(self, hold: Hold, topic: str) -> ModelMail:
        """Read what there is for a run on a topic, in the model's numbers."""

        def find(side: Any, tx: Any) -> list[Any]:
            mail = side.store.find_mail(tx, hold.run_id, topic, 0, self.now)
            signal = mail.signal and (mail.signal.id, self.stores.model_number(side, mail.signal.number), mail.signal.sent_at)
            return [signal or None, self.stores.model_number(side, mail.newest), mail.has_undelivered]

        mail = self.model.mail(hold.run_id, topic, 0, self.now)
        signal = None if mail.signal_id is None else [mail.signal_id, mail.number, self.model.signals[mail.signal_id].sent_at]
        self.stores.read("look", f"{hold} {topic}", find, lambda: [signal, mail.newest, mail.has_undelivered])
        past = self.model.cursors.get((hold.run_id, topic), 0)
        skipped = [one for one in self.model.signals.values() if one.topic == topic and one.number and past < one.number < mail.number]
        self.stores.note("expired unheard", skipped)
        return mail

    def some_body(self) -> tuple[int, Hold] | None:
        worker, hold = self.some_hold()
        return None if self.model.runs[hold.run_id].is_over else (worker, hold)

    @precondition(lambda self: self.holds)
    @rule(seed=seeds, is_at_once=st.booleans())
    def look_and_park(self, seed: int, is_at_once: bool) -> None:
        """A body looks at what it waits for, and parks with what it saw: at once, or when other things have happened between."""
        self.draw(seed)
        body = self.some_body()
        if body is None:
            return
        worker, hold = body
        waits = []
        for branch in self.bodies.branches(hold.run_id):
            self._ask(hold, branch)
            topic = self.bodies.waiting(hold.run_id, branch)[2]
            waits.append(self.bodies.wait(hold.run_id, branch, self.look(hold, topic).newest, self.now))
        if not self.bodies.some(0.1) or not any(wait.due_at is None for wait in waits):
            self.looks.append((worker, hold, tuple(waits)))
        if self.looks and is_at_once:
            self._park(-1)

    @precondition(lambda self: self.looks)
    @rule(seed=seeds)
    def park(self, seed: int) -> None:
        self._park(self.draw(seed).randrange(len(self.looks)))

    def _park(self, place: int) -> None:
        worker, hold, waits = self.looks.pop(place)
        run = self.model.runs[hold.run_id]
        if any(wait.key != self.bodies.waiting(run.id, wait.key.path[0])[0] for wait in waits):
            return  # what it had looked at has its record by now
        is_current = self.model.is_current(hold)
        refused = self.stores.commit(worker, [self.bodies.park(hold, waits)])
        self.stores.note("signal before park", refused == [] and run.status is RunStatus.PENDING)
        self.stores.note("parked", refused == [] and run.status is RunStatus.WAITING)
        self.stores.note("refused by cancel", refused and is_current)

    @precondition(lambda self: self.holds)
    @rule(seed=seeds)
    def conclude(self, seed: int) -> None:
        """A body that goes on: of each branch the next signal is recorded, the time-out, or a person's answer; what is left parks again."""
        self.draw(seed)
        body = self.some_body()
        if body is None:
            return
        worker, hold = body
        for branch in self.bodies.branches(hold.run_id):
            if branch == 2:
                self._use_answer(worker, hold)
            else:
                self._hear(worker, hold, branch)

    def _hear(self, worker: int, hold: Hold, branch: int) -> None:
        key, kind, topic = self.bodies.waiting(hold.run_id, branch)
        mail, due_at = self.look(hold, topic), self.bodies.wait(hold.run_id, branch, 0, self.now).due_at
        is_over = due_at is not None and due_at <= self.now
        if mail.signal_id is None and not is_over:
            return
        heard = None if mail.signal_id is None else (topic, mail.number)
        refused = self.stores.commit(worker, [self.bodies.record(hold, key, kind, self.now, "null" if heard is None else f'"{mail.signal_id}"', heard=heard)])
        self.stores.note("time-out" if heard is None else "signal heard", refused == [])

    # --- questions -----------------------------------------------------------------------------------------------------------
    def _ask(self, hold: Hold, branch: int) -> None:
        """A question is put before its run parks for the answer, and once, however often it is asked."""
        key = self.bodies.waiting(hold.run_id, branch)[0]
        if branch != 2 or not self.model.is_current(hold):
            return
        decision_id = f"{hold.run_id}/{key}"
        new = NewDecision(decision_id, hold.run_id, 0, str(key), "Go on?", "{}", "d", ("yes", "no"))
        self.stores.write(
            "ask",
            decision_id,
            lambda side, tx: side.backend.decisions.open_decision(tx, new, self.now),
            lambda: self.model.open_decision(decision_id, hold.run_id, "d", self.now),
        )

    @precondition(lambda self: self.model.decisions)
    @rule(seed=seeds)
    def answer(self, seed: int) -> None:
        random = self.draw(seed)
        open_ones = [name for name, one in self.model.decisions.items() if one.state is DecisionState.OPEN]
        decision_id = random.choice(open_ones if open_ones and self.bodies.some(0.8) else list(self.model.decisions))
        seen, option, signal_id = random.choice(["d", "d", "d", "older"]), random.choice(["yes", "no"]), self.bodies.next_id()
        run_id = self.model.decisions[decision_id].run

        def answer(side: Any, tx: Any) -> bool:
            is_answered = side.backend.decisions.answer_decision(tx, decision_id, seen, NewAnswer(option, "ann"), self.now)
            if is_answered:
                side.store.append_signal(tx, NewSignal(signal_id, f"$decision:{decision_id}", run_id), self.now)
            return bool(is_answered)

        self.stores.note(
            "answer", self.stores.write("answer", f"{decision_id} {seen}", answer, lambda: self.model.answer(decision_id, seen, option, signal_id, self.now))
        )
        if self.bodies.some(0.7):
            self.deliver_all(EVERYTHING)

    def _use_answer(self, worker: int, hold: Hold) -> None:
        key, _, topic = self.bodies.waiting(hold.run_id, 2)
        decision_id = topic.removeprefix("$decision:")
        decision = self.model.decisions.get(decision_id)
        if decision is None or decision.state is not DecisionState.ANSWERED or not self.model.is_current(hold) or not self.model.workers[worker].is_alive:
            return
        self.model.consume(decision_id, self.now)
        record = self.bodies.record(hold, key, RecordKind.ASK, self.now, f'"{decision.answer}"')
        record = type(record)(hold, 0, record.record)
        refused = self.stores.commit(
            worker, [record], lambda side, tx: side.backend.decisions.close_decision(tx, decision_id, DecisionState.CONSUMED, self.now)
        )
        self.stores.note("answer used", refused == [])

    # --- acting --------------------------------------------------------------------------------------------------------------
    @rule(seed=seeds)
    def cancel(self, seed: int) -> None:
        self.draw(seed)
        self.cancel_this(self.some_run())

    def cancel_this(self, run_id: str) -> None:
        found = None
        if run_id in self.model.runs:
            run = self.model.runs[run_id]
            found = f"cancel of {run.status}{', which never ran' if run.token == 0 else ''}"
            self.stores.note(
                "decision withdrawn", any(one.run == run_id and one.state is DecisionState.OPEN for one in self.model.decisions.values()) and run.is_over
            )

        def cancel(side: Any, tx: Any) -> Any:
            answer = side.store.request_cancel(tx, run_id, "no use", self.now)
            return answer and answer[0]

        self.stores.write("cancel", run_id, cancel, lambda: self.model.cancel(run_id, "no use", self.now))
        self.stores.note(found or "cancel of none")

    @rule(seed=seeds)
    def begin_again(self, seed: int) -> None:
        """An operator retries a run, or gives the result that its failed step did not have."""
        self.draw(seed)
        run_id = self.some_run()
        if self.bodies.some(0.4):
            self.resume_this(run_id)
        else:
            self.retry_this(run_id)

    def resume_this(self, run_id: str) -> None:
        def resume(side: Any, tx: Any) -> Any:
            answer = side.store.resume_run(tx, run_id, "7", "ann", "by hand", self.now)
            return answer and answer.key is not None

        self.stores.note("resume", self.stores.write("resume", run_id, resume, lambda: self.model.resume(run_id, "7", "by hand", self.now)))

    def retry_this(self, run_id: str) -> None:
        def retry(side: Any, tx: Any) -> Any:
            answer = side.store.retry_run(tx, run_id, "ann", "again", self.now)
            return answer and answer[0]

        self.stores.note(f"retry of {self.stores.write('retry', run_id, retry, lambda: self.model.retry(run_id, 'again', self.now))}")

    @rule(seed=seeds)
    def discard(self, seed: int) -> None:
        self.draw(seed)
        self.discard_this(self.some_run())

    def discard_this(self, run_id: str) -> None:
        found = self.stores.write(
            "discard",
            run_id,
            lambda side, tx: side.store.discard_run(tx, run_id, "ann", "no use", self.now),
            lambda: self.model.discard(run_id, "no use", self.now),
        )
        self.stores.note(f"discard of {found}")

    @rule(older_than=st.sampled_from([0.0, 7.0, 40.0, 40.0]))
    def prune(self, older_than: float) -> None:
        span, asked = timedelta(seconds=older_than), list(self.model.runs)
        pruned = self.stores.write(
            "prune",
            f"{older_than}",
            lambda side, tx: side.store.delete_runs(tx, asked, span, dead_letters=True, now=self.now),
            lambda: self.model.prune(span, self.now),
        )
        self.stores.note("pruned", pruned)
        self.holds = [(worker, hold) for worker, hold in self.holds if hold.run_id in self.model.runs]
        self.looks = [look for look in self.looks if look[1].run_id in self.model.runs]
