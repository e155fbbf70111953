"""What holds of both stores together: the same calls at the same instants give the same answers and the same rows."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from outlast import ids
from outlast.errors import LeaseLostError
from outlast.failure import Failure
from outlast.native.history import FailedAttempt, Outcome, Record, RecordKind, Wait
from outlast.native.store import (
    ActivityRow,
    Checkpoint,
    FailureCheckpoint,
    Hold,
    NewRun,
    NewWorker,
    RunCheckpoint,
    RunFilter,
    StepCheckpoint,
)
from outlast.native.transitions import recovery_of
from outlast.payload import codec_for, digest
from outlast.run import RunStatus
from outlast.step_key import StepKey

from .store_pair import LANES, StorePair

START = datetime(2026, 3, 1, 12, 0, 0, 1, tzinfo=UTC)
ALL = 1_000
"""More than there ever is: which of equally old rows a page holds is nobody's promise."""
ODD_TEXTS = ["a", "A", "é", "e\u0301", "'", '"', "\\", "\\u0000", "%s", ":x", "$1", "\U0001f422", "\u2028", "\x7f", "日本", "  x", "null", "{}", "\ud7ff\ue000"]

texts = st.sampled_from(ODD_TEXTS) | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
).map(lambda value: codec_for(Any).encode(value, "value"))
keys = st.builds(StepKey, st.sampled_from([(), (0,), (1, 2)]), st.sampled_from(["locate", "copy \U0001f422'\\"]), st.integers(0, 1))
failures = st.builds(Failure, texts, texts, cause=st.none() | st.builds(Failure, texts, texts))
seconds = st.sampled_from([-1.0, 0.0, 0.000001, 1.5, 10.0])
lane_sets = st.sets(st.sampled_from(LANES), min_size=1)
ends = st.sampled_from([RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.CANCELED])
numbers = st.integers(0, 1 << 20)


def _some(draw: Any, known: list[Any], most: int = 4) -> list[Any]:
    """Return a few different ones of what is known, in any order."""
    return draw.draw(st.lists(st.sampled_from(known), min_size=1, max_size=most, unique=True)) if known else []


class StoreMachine(RuleBasedStateMachine):
    """Two stores, and what was ever given to them. `now` moves only by a rule."""

    pair: StorePair

    def __init__(self) -> None:
        super().__init__()
        self.pair.empty()
        self.now = START
        self.runs: list[NewRun] = []
        self.workers: list[int] = []
        self.holds: list[tuple[int, Hold]] = []
        self.sent: list[Checkpoint] = []
        self.seq = 0

    def at(self, delay: float) -> datetime:
        return self.now + timedelta(seconds=delay)

    @property
    def run_ids(self) -> list[str]:
        return [run.id for run in self.runs]

    @invariant()
    def rows_are_the_same(self) -> None:
        self.pair.assert_same_rows()

    @rule(delay=st.sampled_from([0.000001, 1.0, 7.0, 40.0]))
    def time_passes(self, delay: float) -> None:
        self.now = self.at(delay)

    # --- accepting -----------------------------------------------------------------------------------------------
    @rule(draw=st.data(), count=st.integers(1, 3))
    def record_runs(self, draw: st.DataObject, count: int) -> None:
        batch = {(lane, run.kind, run.idempotency_key or run.id): (lane, run) for lane, run in (self._new_run(draw) for _ in range(count))}
        by_key = {(run.kind, run.idempotency_key or run.id): (lane, run) for lane, run in batch.values()}
        again = [(lane, run) for lane, run in by_key.values()]
        self.pair.write(lambda side, tx: side.store.record_runs(tx, [replace(run, lane=side.lanes[lane]) for lane, run in again], self.now))
        self.runs += [run for _, run in again]

    def _new_run(self, draw: st.DataObject) -> tuple[Any, NewRun]:
        lane = draw.draw(st.sampled_from(LANES))
        text = draw.draw(values)
        later = draw.draw(st.none() | seconds)
        deadline = draw.draw(st.none() | st.none() | seconds)
        run = NewRun(
            id=ids.run_id(),
            lane=0,
            kind=lane.kind,
            version=lane.version,
            priority=draw.draw(st.integers(-2, 2)),
            due_at=None if later is None else self.at(later),
            deadline_at=None if deadline is None else self.at(deadline),
            seed=draw.draw(st.integers(0, (1 << 62) - 1)),
            input=text,
            input_digest=digest(text),
            idempotency_key=draw.draw(st.none() | st.sampled_from(["k", "K", "\U0001f422'"])),
            tags=codec_for(list[str]).encode(draw.draw(st.lists(texts, max_size=2)), "tags"),
            headers=codec_for(dict[str, str]).encode(draw.draw(st.dictionaries(texts, texts, max_size=2)), "headers"),
        )
        return lane, run

    @precondition(lambda self: self.runs)
    @rule(draw=st.data())
    def record_runs_again(self, draw: st.DataObject) -> None:
        run = draw.draw(st.sampled_from(self.runs))
        lane = next(lane for lane in LANES if (lane.kind, lane.version) == (run.kind, run.version))
        self.pair.write(lambda side, tx: side.store.record_runs(tx, [replace(run, lane=side.lanes[lane])], self.now))

    # --- workers -------------------------------------------------------------------------------------------------
    @rule(lanes=lane_sets, lease=st.sampled_from([1.0, 30.0]), is_provable=st.booleans(), name=texts)
    def record_worker(self, lanes: set[Any], lease: float, is_provable: bool, name: str) -> None:
        worker = ids.worker_id()
        self.workers.append(worker)
        self.pair.write(
            lambda side, tx: side.store.record_worker(
                tx, NewWorker(worker, name, "a process", timedelta(seconds=lease), tuple(side.lanes[lane] for lane in lanes), "[]", is_provable), self.now
            )
        )

    @precondition(lambda self: self.workers)
    @rule(draw=st.data(), is_provable=st.booleans(), is_idle=st.booleans(), lanes=lane_sets)
    def renew_worker(self, draw: st.DataObject, is_provable: bool, is_idle: bool, lanes: set[Any]) -> None:
        worker = draw.draw(st.sampled_from(self.workers))
        self.pair.write(lambda side, tx: side.store.renew_worker(tx, worker, self.now, is_provable=is_provable))
        self.pair.write(lambda side, tx: side.store.set_idle(tx, worker, is_idle))
        self.pair.read(lambda side, tx: side.store.has_idle_worker(tx, [side.lanes[lane] for lane in lanes]))

    @precondition(lambda self: self.workers)
    @rule(draw=st.data(), end=st.sampled_from(["stopped", "dead", "silent"]), beat=st.none() | st.integers(1, 2), is_silent=st.booleans())
    def end_worker(self, draw: st.DataObject, end: str, beat: int | None, is_silent: bool) -> None:
        worker = draw.draw(st.sampled_from(self.workers))
        self.pair.write(lambda side, tx: side.store.end_worker(tx, worker, end, beat=beat, is_silent=is_silent, now=self.now))

    @rule(only_alive=st.booleans(), older_than=st.sampled_from([0.0, 7.0]))
    def list_and_forget_workers(self, only_alive: bool, older_than: float) -> None:
        self.pair.read(lambda side, tx: side.store.list_workers(tx, only_alive=only_alive, now=self.now))
        self.pair.write(lambda side, tx: side.store.delete_ended_workers(tx, timedelta(seconds=older_than), self.now))

    @rule()
    def recover_orphans(self) -> None:
        def recover(side: Any, tx: Any) -> Any:
            orphans = sorted(side.store.list_orphans(tx, ALL, self.now), key=lambda orphan: orphan.hold)
            return orphans, side.store.recover_runs(tx, [recovery_of(orphan) for orphan in orphans], self.now)

        self.pair.write(recover)

    # --- claiming ------------------------------------------------------------------------------------------------
    @rule(with_suspects=st.booleans(), limit=st.integers(0, 3), lanes=lane_sets)
    def probe(self, with_suspects: bool, limit: int, lanes: set[Any]) -> None:
        def probe(side: Any, tx: Any) -> Any:
            asked = [side.lanes[lane] for lane in lanes]
            by_lane = side.store.probe_lanes(tx, asked, limit, with_suspects=with_suspects, now=self.now)
            by_age = side.store.probe_oldest(tx, asked, limit, with_suspects=with_suspects, now=self.now)
            found = [[one for one in found if one.lane == lane] for lane in asked for found in (by_lane, by_age)]
            return side.store.look(tx, asked, self.now), found

        self.pair.read(probe)

    @precondition(lambda self: self.workers and self.runs)
    @rule(draw=st.data(), limit=st.integers(0, 4))
    def claim(self, draw: st.DataObject, limit: int) -> None:
        worker, run_ids = draw.draw(st.sampled_from(self.workers)), _some(draw, self.run_ids)

        def claim(side: Any, tx: Any) -> Any:
            side.store.fence(tx, worker)
            return side.store.claim_runs(tx, worker, run_ids, limit, self.now)

        answer = self.pair.write(claim)
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
    @rule(draw=st.data())
    def commit(self, draw: st.DataObject) -> None:
        worker, group = draw.draw(st.sampled_from(self.holds))[0], []
        mine = [hold for holder, hold in self.holds if holder == worker]
        latest = list({hold.run_id: hold for hold in draw.draw(st.permutations(mine))}.values())
        for hold in latest[:3]:
            group += self._checkpoints(draw, hold)

        def commit(side: Any, tx: Any) -> Any:
            side.store.fence(tx, worker)
            refused = side.store.commit_checkpoints(tx, group, self.now)
            return lambda: sorted(map(repr, refused()))

        self.pair.write(commit)
        self.sent = group

    def _checkpoints(self, draw: st.DataObject, hold: Hold) -> list[Checkpoint]:
        group: list[Checkpoint] = []
        for _ in range(draw.draw(st.integers(0, 2))):
            group.append(draw.draw(st.sampled_from([self._step, self._failure]))(draw, hold))
        if draw.draw(st.booleans()):
            group.append(draw.draw(st.sampled_from([self._end, self._park, self._delay]))(draw, hold))
        return group

    def _step(self, draw: st.DataObject, hold: Hold) -> StepCheckpoint:
        self.seq += 1
        outcome = draw.draw(st.sampled_from(Outcome))
        record = Record(
            key=draw.draw(keys),
            seq=self.seq,
            kind=draw.draw(st.sampled_from(RecordKind)),
            outcome=outcome,
            digest="digest",
            attempts=draw.draw(st.integers(1, 3)),
            finished_at=self.now,
            result=draw.draw(values) if outcome is Outcome.RESULT else None,
            error=draw.draw(failures) if outcome is Outcome.ERROR else None,
            started_at=draw.draw(st.none() | st.just(self.at(-1))),
        )
        return StepCheckpoint(hold, draw.draw(st.sampled_from([0, 0, 0, 0, 1])), record)

    def _failure(self, draw: st.DataObject, hold: Hold) -> FailureCheckpoint:
        retry_at = draw.draw(st.none() | st.just(self.at(5)))
        return FailureCheckpoint(
            hold, 0, FailedAttempt(draw.draw(keys), draw.draw(st.integers(1, 3)), draw.draw(failures), self.at(-1), self.now, retry_at, draw.draw(st.booleans()))
        )

    def _end(self, draw: st.DataObject, hold: Hold) -> RunCheckpoint:
        status = draw.draw(ends)
        return RunCheckpoint(
            hold=hold,
            generation=0,
            status=status,
            attempts=draw.draw(st.integers(0, 2)),
            output=draw.draw(st.none() | values) if status is RunStatus.SUCCEEDED else None,
            error=draw.draw(st.none() | failures) if status is not RunStatus.SUCCEEDED else None,
            failed_key=draw.draw(st.none() | keys) if status is RunStatus.FAILED else None,
            verdict=draw.draw(st.none() | texts),
            warnings=tuple(draw.draw(st.lists(texts, max_size=2))),
            passes_cancel=draw.draw(st.booleans()),
            idempotency_key=next(run.idempotency_key for run in self.runs if run.id == hold.run_id),
        )

    def _park(self, draw: st.DataObject, hold: Hold) -> RunCheckpoint:
        due_at = draw.draw(st.none() | seconds.map(self.at))
        waits = tuple(
            Wait(key, draw.draw(st.sampled_from([RecordKind.SLEEP, RecordKind.TIMEOUT])), self.at(3)) for key in draw.draw(st.lists(keys, max_size=2, unique=True))
        )
        return RunCheckpoint(hold, 0, RunStatus.WAITING, due_at, waits, draw.draw(st.integers(0, 2)), passes_cancel=draw.draw(st.booleans()))

    def _delay(self, draw: st.DataObject, hold: Hold) -> RunCheckpoint:
        status = draw.draw(st.sampled_from([RunStatus.PENDING, RunStatus.WAITING]))
        return RunCheckpoint(
            hold=hold,
            generation=0,
            status=status,
            due_at=self.at(2) if status is RunStatus.WAITING else None,
            attempts=draw.draw(st.integers(0, 2)),
            error=draw.draw(st.none() | failures),
            retire=draw.draw(st.none() | keys),
            verdict=draw.draw(st.none() | texts),
            warnings=tuple(draw.draw(st.lists(texts, max_size=2))),
            passes_cancel=draw.draw(st.booleans()),
        )

    @precondition(lambda self: self.sent)
    @rule()
    def find_kept(self) -> None:
        self.pair.read(lambda side, tx: side.store.find_kept(tx, self.sent))

    @precondition(lambda self: self.holds)
    @rule(draw=st.data(), done=st.none() | st.floats(), total=st.none() | st.floats(allow_nan=False), note=texts)
    def record_activity(self, draw: st.DataObject, done: float | None, total: float | None, note: str) -> None:
        hold = draw.draw(st.sampled_from(self.holds))[1]
        row = ActivityRow(hold, draw.draw(st.sampled_from([0, 0, 0, 1])), draw.draw(keys), draw.draw(st.integers(1, 3)), self.at(-1), done, total, note)
        self.pair.write(lambda side, tx: side.store.record_activity(tx, [row]))

    # --- timers --------------------------------------------------------------------------------------------------
    @rule()
    def wake(self) -> None:
        self.pair.write(lambda side, tx: side.store.wake_due(tx, ALL, self.now))

    @rule()
    def end_overdue(self) -> None:
        self.pair.write(lambda side, tx: side.store.end_overdue(tx, ALL, self.now))

    @rule(queue=st.sampled_from(sorted({lane.queue for lane in LANES})), is_paused=st.booleans())
    def pause(self, queue: str, is_paused: bool) -> None:
        def pause(side: Any, tx: Any) -> None:
            place = ":name" if side.is_sqlite else "%(name)s"
            tx.run(f"DELETE FROM {side.table('queue')} WHERE name = {place}", {"name": queue})
            instant = "0" if side.is_sqlite else "now()"
            if is_paused:
                tx.run(f"INSERT INTO {side.table('queue')} (name, paused_at) VALUES ({place}, {instant})", {"name": queue})

        self.pair.write(pause)

    # --- acting and reading --------------------------------------------------------------------------------------
    @precondition(lambda self: self.runs)
    @rule(draw=st.data(), reason=texts)
    def cancel(self, draw: st.DataObject, reason: str) -> None:
        run_id = draw.draw(st.sampled_from([*self.run_ids, ids.run_id(), "nonsense"]))
        self.pair.write(lambda side, tx: side.store.request_cancel(tx, run_id, reason, self.now))

    @precondition(lambda self: self.runs)
    @rule(draw=st.data(), reason=texts)
    def retry(self, draw: st.DataObject, reason: str) -> None:
        run_id = draw.draw(st.sampled_from([*self.run_ids, ids.run_id(), "nonsense"]))

        def retry(side: Any, tx: Any) -> Any:
            answer = side.store.retry_run(tx, run_id, "ann", reason, self.now)
            return answer and (answer[0], {answer[1]})

        self.pair.write(retry)

    @rule(draw=st.data(), status=st.none() | st.sampled_from(RunStatus), kind=st.none() | st.just("greet"), queue=st.none() | st.just("default"))
    def read(self, draw: st.DataObject, status: RunStatus | None, kind: str | None, queue: str | None) -> None:
        before, limit = draw.draw(st.none() | st.sampled_from([*self.run_ids, ids.run_id()])), draw.draw(st.integers(1, 3))
        asked = [*self.run_ids, "nonsense"]
        self.pair.read(lambda side, tx: side.store.list_runs(tx, RunFilter(status, kind, queue), limit, before))
        self.pair.read(lambda side, tx: side.store.find_ended(tx, asked))
        self.pair.read(lambda side, tx: [side.store.find_key(tx, kind, key) for kind in ("greet", "Grüße") for key in ("k", "K", "\U0001f422'")])
        for run_id in asked[-3:]:
            self.pair.read(lambda side, tx: (side.store.find_run(tx, run_id), side.store.list_steps(tx, run_id)))  # noqa: B023 - called at once


@pytest.fixture
def pair(tmp_path: Path, postgres_url: str) -> Iterator[StorePair]:
    pair = StorePair(tmp_path, postgres_url)
    yield pair
    pair.close()


def test_both_stores_answer_and_keep_the_same(pair: StorePair) -> None:
    """Any sequence of calls gives the same answers, the same refusals and the same rows on SQLite and on PostgreSQL."""
    machine = type("PairedStoreMachine", (StoreMachine,), {"pair": pair})
    run_state_machine_as_test(machine, settings=settings(max_examples=20, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)))
