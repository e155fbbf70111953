"""StoreMachine: what may be called on a store, in any order, made on both databases. What may differ is in `store_pair`."""

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from outlast.errors import LeaseLostError
from outlast.native.store import Checkpoint, Hold, NewRun, NewWorker, RunCheckpoint, RunFilter
from outlast.native.transitions import recovery_of
from outlast.run import RunStatus

from .store_draws import KEYS, LANES, StoreDraws
from .store_pair import StorePair

START = datetime(2026, 3, 1, 12, 0, 0, 1, tzinfo=UTC)
ALL = 1_000
"""More than there ever is: which of equally old rows a page holds is nobody's promise."""
seeds = st.integers(0, 1 << 32)


class StoreMachine(RuleBasedStateMachine):
    """Two stores, and what was ever given to them. `now` moves only by a rule."""

    pair: StorePair
    kinds_of_calls: ClassVar[set[str]]

    def __init__(self) -> None:
        super().__init__()
        self.pair.empty()
        self.draws = StoreDraws()
        self.now = START
        self.runs: list[NewRun] = []
        self.workers: list[int] = []
        self.holds: list[tuple[int, Hold]] = []
        self.sent: list[Checkpoint] = []

    def draw(self, seed: int) -> Random:
        self.draws.random = Random(seed)
        return self.draws.random

    def note(self, call: str, answer: Any) -> Any:
        """Remember that this kind of answer came up, so that the test can tell whether it tested anything."""
        told = answer.__name__ if isinstance(answer, type) else answer if isinstance(answer, str) else "some" if answer else "nothing"
        self.kinds_of_calls.add(f"{call} {told}")
        return answer

    @property
    def run_ids(self) -> list[str]:
        return [run.id for run in self.runs]

    @initialize(seed=seeds)
    def begin(self, seed: int) -> None:
        """Without a worker and runs most calls say nothing."""
        self.draw(seed)
        self._record_worker(3600.0)
        self._record_worker(30.0)
        self._record_runs(4)
        if self.draws.random.random() < 0.3:
            self._pass_by_what_is_rare()

    def _pass_by_what_is_rare(self) -> None:
        """Runs that fail, of which one is retried and one discarded and pruned, and a worker that dies with the others: chance comes to them too seldom."""
        worker = self.workers[1]
        self._claim(ALL, worker)
        failed = [RunCheckpoint(hold, 0, RunStatus.FAILED, passes_cancel=True) for _, hold in self.holds[:2]]
        self.pair.write(lambda side, tx: side.store.commit_checkpoints(tx, failed, self.now)())
        if failed:
            self._retry(failed[-1].hold.run_id, "once more")
        if len(failed) == 2:
            discarded = failed[0].hold.run_id
            self._discard(discarded, "no use")
            self.note("prune", self.pair.write(lambda side, tx: side.store.delete_runs(tx, [discarded], timedelta(), dead_letters=False, now=self.now)))
        self.pair.write(lambda side, tx: side.store.end_worker(tx, worker, "dead", now=self.now))
        self.recover_orphans()

    @invariant()
    def rows_are_the_same(self) -> None:
        self.pair.assert_same_rows()

    @rule(delay=st.sampled_from([0.000001, 1.0, 7.0, 40.0]))
    def time_passes(self, delay: float) -> None:
        self.now += timedelta(seconds=delay)

    # --- accepting -----------------------------------------------------------------------------------------------
    @rule(seed=seeds, count=st.integers(1, 3))
    def record_runs(self, seed: int, count: int) -> None:
        self.draw(seed)
        self._record_runs(count)

    def _record_runs(self, count: int) -> None:
        new = [self.draws.new_run(self.now) for _ in range(count)]
        batch = list({(run.kind, run.idempotency_key or run.id): (lane, run) for lane, run in new}.values())
        self.pair.write(lambda side, tx: side.store.record_runs(tx, [replace(run, lane=side.lanes[lane]) for lane, run in batch], self.now)())
        self.runs += [run for _, run in batch]

    @rule(seed=seeds)
    def record_a_run_again(self, seed: int) -> None:
        run = self.draw(seed).choice(self.runs)
        lane = next(lane for lane in LANES if (lane.kind, lane.version) == (run.kind, run.version))
        self.pair.write(lambda side, tx: side.store.record_runs(tx, [replace(run, lane=side.lanes[lane])], self.now)())

    # --- workers -------------------------------------------------------------------------------------------------
    @rule(seed=seeds, lease=st.sampled_from([1.0, 30.0]))
    def record_worker(self, seed: int, lease: float) -> None:
        self.draw(seed)
        self._record_worker(lease)

    def _record_worker(self, lease: float) -> None:
        worker, random = len(self.workers) + (1 << 61), self.draws.random
        self.workers.append(worker)
        lanes, name, is_provable = random.sample(LANES, 2), self.draws.text(), random.random() < 0.5
        self.pair.write(
            lambda side, tx: side.store.record_worker(
                tx, NewWorker(worker, name, "a process", timedelta(seconds=lease), tuple(side.lanes[lane] for lane in lanes), "[]", is_provable), self.now
            )
        )

    @rule(seed=seeds, is_provable=st.booleans(), is_idle=st.booleans())
    def renew_worker(self, seed: int, is_provable: bool, is_idle: bool) -> None:
        worker, lane = self.draw(seed).choice(self.workers), self.draws.random.choice(LANES)
        self.pair.write(lambda side, tx: side.store.renew_worker(tx, worker, self.now, is_provable=is_provable))
        self.pair.write(lambda side, tx: side.store.set_idle(tx, worker, is_idle))
        self.pair.read(lambda side, tx: side.store.has_idle_worker(tx, [side.lanes[lane]]))

    @rule(seed=seeds, end=st.sampled_from(["stopped", "dead", "silent"]), beat=st.sampled_from([None, 1, 2]), is_silent=st.booleans())
    def end_worker(self, seed: int, end: str, beat: int | None, is_silent: bool) -> None:
        worker = self.draw(seed).choice(self.workers[1:])
        self.pair.write(lambda side, tx: side.store.end_worker(tx, worker, end, beat=beat, is_silent=is_silent, now=self.now))
        if self.draws.random.random() < 0.5:  # before others have taken what it held
            self.recover_orphans()

    @rule(seed=seeds, only_alive=st.booleans(), older_than=st.sampled_from([0.0, 7.0]))
    def list_and_forget(self, seed: int, only_alive: bool, older_than: float) -> None:
        self.draw(seed)
        self.pair.read(lambda side, tx: side.store.list_workers(tx, only_alive=only_alive, now=self.now))
        self.pair.write(lambda side, tx: side.store.delete_ended_workers(tx, timedelta(seconds=older_than), self.now))
        self._prune(timedelta(seconds=older_than))

    def _prune(self, older_than: timedelta) -> None:
        """A page of the walk, and sometimes what it finds; of the ids that are drawn all are old."""
        random = self.draws.random
        place, limit, dead_letters = random.choice([None, *self.run_ids]), random.choice([2, ALL]), random.random() < 0.5
        found = self.pair.read(lambda side, tx: side.store.list_old_runs(tx, older_than, limit, place, dead_letters=dead_letters, now=self.now))
        self.note("walk", [is_prunable for _, _, is_prunable, *_ in found])
        if random.random() < 0.5:
            asked = random.sample(self.run_ids, len(self.runs))
            self.note("prune", self.pair.write(lambda side, tx: side.store.delete_runs(tx, asked, older_than, dead_letters=dead_letters, now=self.now)))
        if random.random() < 0.3:
            self.note("prune keys", self.pair.write(lambda side, tx: side.store.delete_old_keys(tx, older_than, limit, None, self.now))[0])

    @rule()
    def recover_orphans(self) -> None:
        def recover(side: Any, tx: Any) -> Any:
            orphans = sorted(side.store.list_orphans(tx, ALL, self.now), key=lambda orphan: orphan.hold)
            return orphans, side.store.recover_runs(tx, [recovery_of(orphan) for orphan in orphans], self.now)

        self.note("recover", self.pair.write(recover)[0])

    # --- claiming ------------------------------------------------------------------------------------------------
    @rule(seed=seeds, with_suspects=st.booleans(), limit=st.integers(0, 3))
    def probe(self, seed: int, with_suspects: bool, limit: int) -> None:
        lanes = self.draw(seed).sample(LANES, 2)

        def probe(side: Any, tx: Any) -> Any:
            asked = [side.lanes[lane] for lane in lanes]
            by_lane = side.store.probe_lanes(tx, asked, limit, with_suspects=with_suspects, now=self.now)()
            by_age = side.store.probe_oldest(tx, asked, limit, with_suspects=with_suspects, now=self.now)()
            found = [[one for one in found if one.lane == lane] for lane in asked for found in (by_lane, by_age)]
            return side.store.look(tx, asked, self.now), found

        self.pair.read(probe)

    @rule(seed=seeds, limit=st.integers(0, 9))
    def claim(self, seed: int, limit: int) -> None:
        self.draw(seed)
        self._claim(limit)

    @rule(seed=seeds)
    def work(self, seed: int) -> None:
        """What there is most of: claims, and two groups for what was claimed, now or long ago."""
        self.draw(seed)
        self._claim(ALL)
        for _ in range(2 if self.holds else 0):
            self._commit()

    def _claim(self, limit: int, worker: int | None = None) -> None:
        worker = worker or self.draws.random.choice(self.workers)
        run_ids = self.draws.random.sample(self.run_ids, len(self.runs))

        def claim(side: Any, tx: Any) -> Any:
            side.store.fence(tx, worker)
            return side.store.claim_runs(tx, worker, run_ids, limit, self.now)()

        answer = self.note("claim", self.pair.write(claim))
        if answer is not LeaseLostError:
            self.holds += [(worker, Hold(run["id"], run["token"])) for _, run in answer]
        self.pair.read(lambda side, tx: (side.store.list_held(tx, worker), side.store.list_flagged(tx, worker, self.now)))

    @precondition(lambda self: self.holds)
    @rule()
    def read_contexts(self) -> None:
        asked = [hold for _, hold in self.holds]
        self.pair.read(lambda side, tx: side.store.read_contexts(tx, asked, self.now))

    # --- committing ----------------------------------------------------------------------------------------------
    @precondition(lambda self: self.holds)
    @rule(seed=seeds)
    def commit(self, seed: int) -> None:
        self.draw(seed)
        self._commit()

    def _commit(self) -> None:
        random = self.draws.random
        worker = random.choice(self.holds)[0]
        mine = [hold for holder, hold in self.holds if holder == worker]
        keys = {run.id: run.idempotency_key for run in self.runs}
        group = [one for hold in random.sample(mine, min(3, len(mine))) for one in self.draws.checkpoints(hold, keys[hold.run_id], self.now)]

        def commit(side: Any, tx: Any) -> Any:
            side.store.fence(tx, worker)
            refused = side.store.commit_checkpoints(tx, group, self.now)
            return lambda: sorted(map(repr, refused()))

        self.note("commit", self.pair.write(commit))
        self.pair.read(lambda side, tx: side.store.find_kept(tx, group))
        self.sent = group

    @precondition(lambda self: self.sent)
    @rule()
    def find_kept(self) -> None:
        self.pair.read(lambda side, tx: side.store.find_kept(tx, self.sent))

    @precondition(lambda self: self.holds)
    @rule(seed=seeds)
    def record_activity(self, seed: int) -> None:
        row = self.draws.activity(self.draw(seed).choice(self.holds)[1], self.now)
        self.pair.write(lambda side, tx: side.store.record_activity(tx, [row]))

    # --- timers --------------------------------------------------------------------------------------------------
    @rule()
    def wake(self) -> None:
        self.pair.write(lambda side, tx: side.store.wake_due(tx, ALL, self.now))

    @rule()
    def end_overdue(self) -> None:
        self.pair.write(lambda side, tx: side.store.end_overdue(tx, ALL, self.now))

    # --- what others do to the tables ----------------------------------------------------------------------------
    @rule(seed=seeds)
    def forget_worker(self, seed: int) -> None:
        self.pair.delete("worker", "id", self.draw(seed).choice(self.workers[1:]))

    @rule(key=st.sampled_from(KEYS))
    def forget_key(self, key: str) -> None:
        self.pair.delete("run_key", "key", key)

    @rule(seed=seeds, ending=st.sampled_from([None, RunStatus.FAILED, RunStatus.CANCELED]))
    def begin_rollback(self, seed: int, ending: RunStatus | None) -> None:
        self.pair.set("run", "ending", ending, "id", self.draw(seed).choice(self.run_ids))

    # --- acting and reading --------------------------------------------------------------------------------------
    @rule(seed=seeds)
    def cancel(self, seed: int) -> None:
        run_id, reason = self.draw(seed).choice([*self.run_ids, self.draws.next_id(), "nonsense"]), self.draws.text()
        self.pair.write(lambda side, tx: side.store.request_cancel(tx, run_id, reason, self.now))

    @rule(seed=seeds)
    def retry(self, seed: int) -> None:
        run_id, reason = self.draw(seed).choice([*self.run_ids, self.draws.next_id(), "nonsense"]), self.draws.text()
        self._retry(run_id, reason)
        if self.draws.random.random() < 0.5:
            for run_id in self.run_ids:
                self._discard(run_id, reason)

    def _retry(self, run_id: str, reason: str) -> None:
        def retry(side: Any, tx: Any) -> Any:
            answer = side.store.retry_run(tx, run_id, "ann", reason, self.now)
            return answer and (answer[0], {answer[1]})

        answer = self.pair.write(retry)
        self.note("retry", answer is not None and RunStatus(answer[0]).is_terminal)

    def _discard(self, run_id: str, reason: str) -> None:
        found = self.pair.write(lambda side, tx: side.store.discard_run(tx, run_id, "ann", reason, self.now))
        self.note("discard", found in ("failed", "dead"))

    @rule(seed=seeds, queue=st.sampled_from(sorted({lane.queue for lane in LANES})), is_paused=st.booleans())
    def pause(self, seed: int, queue: str, is_paused: bool) -> None:
        self.draw(seed)
        actor, reason = self.draws.text(), self.draws.text()

        def pause(side: Any, tx: Any) -> Any:
            deed = side.store.pause_queue if is_paused else side.store.unpause_queue
            change = deed(tx, queue, actor, reason, self.now)
            return change.paused_at, change.has_changed, set(change.lanes)

        self.note("pause" if is_paused else "unpause", self.pair.write(pause)[1])

    @rule(seed=seeds, status=st.none() | st.sampled_from(RunStatus), kind=st.sampled_from([None, "greet"]), queue=st.sampled_from([None, "default"]))
    def read(self, seed: int, status: RunStatus | None, kind: str | None, queue: str | None) -> None:
        random, asked = self.draw(seed), [*self.run_ids, "nonsense"]
        before, limit = random.choice([None, *self.run_ids]), random.randint(1, 3)
        self.pair.read(lambda side, tx: side.store.list_runs(tx, RunFilter(status, kind, queue), limit, before, self.now))
        self.pair.read(lambda side, tx: side.store.find_ended(tx, asked))
        self.pair.read(lambda side, tx: (side.store.list_lanes(tx, self.now), side.store.list_actions(tx, None, ALL)))
        self.pair.read(lambda side, tx: [side.store.find_key(tx, lane.kind, key) for lane in LANES[1:] for key in KEYS])
        self.pair.read(lambda side, tx: [(side.store.find_run(tx, run_id, self.now), side.store.list_steps(tx, run_id)) for run_id in asked])
