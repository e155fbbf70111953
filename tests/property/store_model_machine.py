"""ModelMachine: any order of what callers, workers, operators and time do to a store, made on both databases and on the model."""

from collections.abc import Sequence
from datetime import timedelta
from random import Random
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from msgspec.structs import replace

from outlast.native.store import Hold, NewRun, NewWorker
from outlast.native.transitions import recovery_of
from outlast.run import RunStatus

from .store_draws import LANES
from .store_model_base import EVERYTHING, ModelledStores
from .store_model_bodies import Bodies
from .store_model_state import ModelRun
from .store_pair import StorePair

seeds = st.integers(0, 1 << 32)


class RunRules(RuleBasedStateMachine):
    """What happens to runs and workers. Each rule draws what it needs from one seed, so that a long sequence stays a small example."""

    pair: StorePair
    kinds: ClassVar[set[str]]

    def __init__(self) -> None:
        super().__init__()
        self.stores = ModelledStores(self.pair, self.kinds)
        self.model = self.stores.model
        self.bodies = Bodies(self.model)
        self.holds: list[tuple[int, Hold]] = []

    @property
    def now(self) -> Any:
        return self.stores.now

    def draw(self, seed: int) -> Random:
        self.bodies.random = Random(seed)
        return self.bodies.random

    def some_run(self) -> str:
        """Return a run, as often a failed one as a claimable one, or one that is not there."""
        runs = list(self.model.runs.values())
        if not runs or self.bodies.some(0.03):
            return self.bodies.next_id()
        status = self.bodies.random.choice(sorted({run.status for run in runs}))
        return self.bodies.random.choice([run for run in runs if run.status == status]).id

    def some_hold(self) -> tuple[int, Hold]:
        """Return a claim, mostly one that is current, else one whose run somebody else holds by now, of a worker that is alive; or any that there was."""
        alive = {name for name, one in self.model.workers.items() if one.is_alive}
        own = [one for one in self.holds if one[0] in alive and self.model.runs[one[1].run_id].status is RunStatus.RUNNING]
        wants_current, wants_any = self.bodies.some(0.85), self.bodies.some(0.05)
        chosen = [] if wants_any else [one for one in own if self.model.is_current(one[1]) == wants_current]
        return self.bodies.random.choice(chosen or self.holds)

    def begin(self) -> None:
        """Without workers, runs and claims most calls say nothing."""
        for lease in (3600.0, 30.0):
            self.record_a_worker(lease)
        for _ in range(4):
            self.record_a_run()
        self.claim_some(EVERYTHING)

    # --- time ----------------------------------------------------------------------------------------------------------------
    @rule(seed=seeds)
    def time_passes(self, seed: int) -> None:
        """Some time, or until just before or at the next instant at which anything comes due."""
        random = self.draw(seed)
        runs = [instant for run in self.model.runs.values() for instant in (run.due_at, run.deadline_at)]
        others = [one.expires_at for one in self.model.signals.values()] + [one.lease_until for one in self.model.workers.values()]
        coming = min((instant for instant in [*runs, *others] if instant is not None and instant > self.now), default=self.now)
        least = timedelta(microseconds=1)
        self.stores.pass_by(random.choice([least, timedelta(seconds=7), timedelta(seconds=40), coming - self.now, max(coming - self.now - least, least)]))

    @rule()
    def wake_due(self) -> None:
        due = sorted(run.due_at for run in self.model.due(self.now) if run.due_at is not None)
        limit = 1 if len(due) > 1 and due[0] < due[1] else EVERYTHING
        self.stores.note("woken by time", due)
        for told in (limit, EVERYTHING)[: 2 if limit == 1 else 1]:
            self._wake(told)

    def _wake(self, limit: int) -> None:
        def model() -> list[Any]:
            first = self.model.due(self.now) if limit > 1 else sorted(self.model.due(self.now), key=lambda run: str(run.due_at))[:limit]
            for run in first:
                run.status = RunStatus.PENDING
            return sorted({run.lane for run in first})

        self.stores.write("wake", f"{limit}", lambda side, tx: side.store.wake_due(tx, limit, self.now), model)

    @rule()
    def end_overdue(self) -> None:
        over = [run for run in self.model.runs.values() if run.deadline_at is not None and run.deadline_at <= self.now]
        self.stores.note("overdue and ended", any(run.token == 0 and not run.is_over for run in over))
        self.stores.note("overdue and woken", any(run.token > 0 and run.status is RunStatus.WAITING for run in over))
        self.stores.write("overdue", "", lambda side, tx: side.store.end_overdue(tx, EVERYTHING, self.now), lambda: self.model.end_overdue(self.now))

    # --- accepting -----------------------------------------------------------------------------------------------------------
    @rule(seed=seeds)
    def record_run(self, seed: int) -> None:
        self.draw(seed)
        self.record_a_run()

    def record_a_run(self) -> None:
        lane, new = self.bodies.new_run(self.now)
        known = [run for run in self.model.runs.values() if run.lane == LANES[lane]]
        if known and self.bodies.some(0.1):  # the caller's own call, tried again
            new = replace(new, id=known[0].id, idempotency_key=known[0].idempotency_key, input_digest=known[0].input_digest)

        self.record_this_run(lane, new)

    def record_this_run(self, lane: int, new: NewRun) -> None:
        def record(side: Any, tx: Any) -> Any:
            answer = side.store.record_runs(tx, [replace(new, lane=side.lanes[LANES[lane]])], self.now)
            return lambda: answer()[0]

        accepted = self.stores.write("enqueue", f"{new}", record, lambda: self.model.record_run(LANES[lane], new, self.now))
        self.stores.note("key met", not accepted.created)
        self.stores.note("key conflict", not accepted.created and accepted.stored_digest != new.input_digest)

    # --- workers -------------------------------------------------------------------------------------------------------------
    @rule(seed=seeds, lease=st.sampled_from([1.0, 30.0]))
    def record_worker(self, seed: int, lease: float) -> None:
        self.draw(seed)
        self.record_a_worker(lease)

    def record_a_worker(self, lease: float) -> int:
        worker, span = int(self.bodies.next_id()[-12:], 16) + (1 << 61), timedelta(seconds=lease)

        def record(side: Any, tx: Any) -> None:
            side.store.record_worker(tx, NewWorker(worker, "w", "a process", span, tuple(side.lanes.values()), "[]"), self.now)

        self.stores.write("worker", f"{worker - (1 << 61)}", record, lambda: self.model.record_worker(worker, span, self.now))
        return worker

    @rule(seed=seeds)
    def renew(self, seed: int) -> None:
        worker = self.draw(seed).choice(list(self.model.workers))
        self.stores.write(
            "renew",
            f"{worker - (1 << 61)}",
            lambda side, tx: side.store.renew_worker(tx, worker, self.now),
            lambda: self.now if self.model.renew(worker, self.now) else None,
        )

    @rule(seed=seeds, end=st.sampled_from(["stopped", "dead", "silent"]), beat=st.sampled_from([None, 1, 2]))
    def lose_a_worker(self, seed: int, end: str, beat: int | None) -> None:
        """One that is said to be silent only if it is; then perhaps what it held goes to others, or is written by it all the same."""
        self.draw(seed)
        others = list(self.model.workers)[1:]
        if not others:
            return
        self.end_a_worker(self.bodies.random.choice(others), end, beat)
        if self.bodies.some(0.7):
            self.recover()
        if self.bodies.some(0.3):
            self.stores.write(
                "forget workers",
                "",
                lambda side, tx: side.store.delete_ended_workers(tx, timedelta(), self.now),
                lambda: self.model.delete_ended(timedelta(), self.now),
            )

    def end_a_worker(self, worker: int, end: str, beat: int | None = None) -> None:
        is_silent = end == "silent"
        has_ended = self.stores.write(
            "end worker",
            f"{worker - (1 << 61)} {end} {beat}",
            lambda side, tx: side.store.end_worker(tx, worker, end, beat=beat, is_silent=is_silent, now=self.now),
            lambda: self.model.end_worker(worker, end, beat, is_silent, self.now),
        )
        self.stores.note(f"worker {end}", has_ended)

    @rule()
    def recover(self) -> None:
        def recover(side: Any, tx: Any) -> list[RunStatus]:
            orphans = sorted(side.store.list_orphans(tx, EVERYTHING, self.now), key=lambda orphan: orphan.hold)
            recoveries = [recovery_of(orphan) for orphan in orphans]
            side.store.recover_runs(tx, recoveries, self.now)
            return [one.hold.run_id for one in recoveries]

        there = sorted(run.id for run in self.model.orphans())
        was = {run_id: self.model.runs[run_id].cancel_requested_at for run_id in there}
        became: list[RunStatus] = []
        self.stores.write("recover", "", recover, lambda: (became.extend(self.model.recover(self.now)), there)[1])
        for run_id, status in zip(there, became, strict=True):
            self.stores.note(f"recovered as {status}{' though canceled' if was[run_id] else ''}")

    @rule(seed=seeds)
    def poison(self, seed: int) -> None:
        """A run takes its workers down, one after the other, with nothing recorded between; some other call may come between."""
        self.draw(seed)
        if self.bodies.some(0.4):
            self.poison_some()

    def poison_some(self) -> None:
        runs = [run for run in self.model.runs.values() if run.status in (RunStatus.PENDING, RunStatus.WAITING) and run.due_at is not None]
        if not runs:
            return
        run = self.bodies.random.choice(runs)
        for _ in range(5):
            if run.due_at is None or run.status not in (RunStatus.PENDING, RunStatus.WAITING):
                return
            self.stores.pass_by(max(run.due_at - self.now, timedelta(microseconds=1)))
            self._wake(EVERYTHING)
            worker = self.record_a_worker(30.0)
            self.claim_these(worker, [run.id], 1)
            self.end_a_worker(worker, "dead")
            self.recover()

    # --- claiming ------------------------------------------------------------------------------------------------------------
    @rule(seed=seeds, limit=st.sampled_from([0, 1, 3, EVERYTHING, EVERYTHING]))
    def claim(self, seed: int, limit: int) -> None:
        self.draw(seed)
        self.claim_some(limit)

    def claim_some(self, limit: int) -> None:
        alive = [name for name, one in self.model.workers.items() if one.is_alive]
        worker = self.bodies.random.choice(alive if alive and self.bodies.some(0.9) else list(self.model.workers))
        self.claim_these(worker, self.bodies.random.sample(list(self.model.runs), len(self.model.runs)), limit)

    def claim_these(self, worker: int, run_ids: Sequence[str], limit: int) -> None:
        def claim(side: Any, tx: Any) -> Any:
            side.store.fence(tx, worker)
            claimed = side.store.claim_runs(tx, worker, run_ids, limit, self.now)
            return lambda: [one.hold for one in claimed()]

        answer = self.stores.write("claim", f"{limit} by {worker - (1 << 61)}: {run_ids}", claim, lambda: self.model.claim(worker, run_ids, limit, self.now))
        self.holds += [(worker, hold) for hold in answer] if isinstance(answer, list) else []

    @rule(seed=seeds, limit=st.integers(1, 3), is_by_age=st.booleans())
    def probe(self, seed: int, limit: int, is_by_age: bool) -> None:
        """What a probe says may be claimed is lawful: due, of the lane, in order, and nothing that comes before it is left out."""
        with_suspects = self.draw(seed).random() < 0.5

        def order(run: ModelRun) -> Any:
            return run.due_at if is_by_age else (run.priority, run.due_at)

        def probe(side: Any, tx: Any) -> Any:
            by = side.store.probe_oldest if is_by_age else side.store.probe_lanes
            answer = by(tx, list(side.lanes.values()), limit, with_suspects=with_suspects, now=self.now)
            return lambda: [[order(self.model.runs[one.run_id]) for one in answer() if one.lane == side.lanes[lane]] for lane in LANES]

        def lawful() -> list[list[Any]]:
            there = [run for run in self.model.claimable(self.now) if with_suspects or run.losses < 2]
            return [[list(one) if isinstance(one, tuple) else one for one in sorted(order(run) for run in there if run.lane == lane)[:limit]] for lane in LANES]

        self.stores.read("probe", f"{limit}", probe, lawful)

    @precondition(lambda self: self.holds)
    @rule(seed=seeds)
    def record_steps(self, seed: int) -> None:
        random = self.draw(seed)
        worker, hold = self.some_hold()
        others = [one for holder, one in self.holds if holder == worker and one.run_id != hold.run_id]
        chosen = {one.run_id: one for one in [*random.sample(others, min(2, len(others))), hold]}
        # By run: of what two runs send in one commit neither comes before the other.
        group = [one for each in sorted(chosen.values()) for one in self.bodies.step(each, self.now)]
        self.stores.commit(worker, group)

    @precondition(lambda self: self.holds)
    @rule(seed=seeds)
    def end(self, seed: int) -> None:
        self.draw(seed)
        worker, hold = self.some_hold()
        run, is_current = self.model.runs[hold.run_id], self.model.is_current(hold)
        refused = self.stores.commit(worker, self.bodies.end(hold, self.now))
        self.stores.note("refused by cancel", refused and is_current and run.cancel_requested_at is not None)
        self.stores.note(f"ended as {run.status}", is_current and run.is_over)
