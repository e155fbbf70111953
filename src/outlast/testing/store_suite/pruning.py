"""What a store promises about pruning: whole runs that are over go, with all that hangs on them, and nothing else does."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from outlast.ledger.operation import OperationName, OperationStatus, Owner
from outlast.native.store import ClaimedRun
from outlast.native.upkeep import OldRun
from outlast.run import RunStatus
from outlast.testing.ledger_suite.world import LedgerWorld

from .world import ERROR, START, World, WorldSuite, after, end, failure, new_run, park, report, sleep, step

DAY = timedelta(days=1)
LATER = START + 10 * DAY
FAR = datetime(2100, 1, 1, tzinfo=UTC)
"""Ids say when they were made by the machine's clock: by then every one is old."""


class PruningSuite(WorldSuite):
    """What is deleted, and what stays."""

    def old(
        self, world: World, older_than: timedelta = DAY, *, after: str | None = None, limit: int = 100, dead_letters: bool = False, now: datetime = LATER
    ) -> list[OldRun]:
        with world.database.reading() as tx:
            return world.store.list_old_runs(tx, older_than, limit, after, dead_letters=dead_letters, now=now)

    def delete(self, world: World, *run_ids: str, older_than: timedelta = DAY, dead_letters: bool = False, now: datetime = LATER) -> int:
        with world.writing() as tx:
            return world.store.delete_runs(tx, run_ids, older_than, dead_letters=dead_letters, now=now)

    def delete_keys(self, world: World, older_than: timedelta = DAY, *, limit: int = 100, now: datetime = FAR) -> int:
        count, place = 0, None
        while True:
            with world.writing() as tx:
                deleted, place = world.store.delete_old_keys(tx, older_than, limit, place, now)
            count += deleted
            if place is None:
                return count

    def test_what_was_accepted_and_pruned_is_not_accepted_again(self, world: World) -> None:
        """The caller's own call, tried once more under its key when the run is gone: nothing is written, and the answer is as before."""
        worker, run = world.worker(), new_run(world.lane(), idempotency_key="key")
        world.accept(run)
        world.commit(worker, end(world.claim(worker, run.id)[0]))
        assert self.delete(world, run.id) == 1
        assert [(accepted.run_id, accepted.created) for accepted in world.accept(run)] == [(run.id, True)]
        with world.database.reading() as tx:
            assert world.store.find_run(tx, run.id) is None

    def ended(self, world: World, worker: int, status: RunStatus = RunStatus.SUCCEEDED, *, now: datetime = START, **changes: Any) -> ClaimedRun:
        """Return a run that left something in every table and is over."""
        run = world.claimed(worker, now, **changes)
        world.commit(worker, step(run), failure(run, "copy", retry_at=after(60)), park(run, after(60), sleep()), now=now)
        world.wake_due(after(60))
        again = world.claimed_again(worker, run, after(60))
        world.report(report(again, "hash"))
        world.commit(worker, end(again, status, error=None if status is RunStatus.SUCCEEDED else ERROR, output="1" if status is RunStatus.SUCCEEDED else None))
        return again

    def is_there(self, world: World, run_id: str) -> bool:
        with world.database.reading() as tx:
            return world.store.find_run(tx, run_id) is not None

    def test_the_walk_meets_every_run_by_id(self, world: World) -> None:
        """Page by page, each run once, whatever its state, with what may become of it."""
        worker = world.worker()
        runs = sorted([*(self.ended(world, worker).id for _ in range(3)), world.enqueue(), world.claimed(worker).id])
        pages = [self.old(world, limit=2, after=place) for place in (None, runs[1], runs[3], runs[4])]
        assert [[one.run_id for one in page] for page in pages] == [runs[:2], runs[2:4], runs[4:], []]
        assert [before < behind for before, behind in pairwise(runs)] == [True] * 4
        assert sum(one.is_prunable for page in pages for one in page) == 3

    def test_only_what_was_over_for_so_long_may_go(self, world: World) -> None:
        """A run's end counts, to the instant; what is going on never may, however old it is."""
        worker = world.worker()
        run = self.ended(world, worker)
        finished_at = world.view(run.id).finished_at
        assert finished_at is not None
        for delay, is_prunable in ((timedelta(microseconds=-1), False), (timedelta(0), True)):
            assert [one.is_prunable for one in self.old(world, now=finished_at + DAY + delay)] == [is_prunable]
            assert self.delete(world, run.id, now=finished_at + DAY + delay) == int(is_prunable)
        going = [world.enqueue(), world.enqueue(due_at=LATER + DAY), world.claimed(worker).id]
        assert [(one.is_old, one.is_prunable, one.is_kept) for one in self.old(world)] == [(True, False, False)] * 3
        assert self.delete(world, *going, dead_letters=True) == 0
        assert all(self.is_there(world, run_id) for run_id in going)

    def test_a_young_run_is_told_from_an_old_one(self, world: World) -> None:
        """The walk can end where every run was accepted after the cutoff."""
        world.enqueue(now=LATER - DAY)
        world.enqueue(now=LATER - DAY + timedelta(microseconds=1))
        assert sorted(one.is_old for one in self.old(world)) == [False, True]

    def test_all_that_hangs_on_a_run_goes_with_it(self, world: World) -> None:
        """Input, output, records, failed attempts, waits and reports: nothing is left, and the neighbour keeps everything."""
        worker = world.worker()
        run, neighbour = self.ended(world, worker), self.ended(world, worker)
        before = world.steps(neighbour.id)
        assert [one.records for one in self.old(world)] == [2, 2]
        assert self.delete(world, run.id) == 1
        assert not self.is_there(world, run.id)
        assert world.steps(run.id) == []
        assert world.contexts(run.hold) == {}
        assert (world.view(neighbour.id).output, world.steps(neighbour.id)) == ("1", before)
        assert self.delete(world, run.id, neighbour.id) == 1

    @pytest.mark.parametrize("status", [RunStatus.FAILED, RunStatus.CANCELED])
    def test_dead_letters_stay_until_somebody_has_looked(self, world: World, status: RunStatus) -> None:
        """A failed run stays unless it is asked for; one that was canceled, or discarded long enough ago, goes."""
        run = self.ended(world, world.worker(), status)
        is_dead_letter = status is RunStatus.FAILED
        assert [(one.is_prunable, one.is_kept) for one in self.old(world)] == [(not is_dead_letter, is_dead_letter)]
        assert [(one.is_prunable, one.is_kept) for one in self.old(world, dead_letters=True)] == [(True, False)]
        if is_dead_letter:
            assert self.delete(world, run.id) == 0
            world.discard(run.id, LATER)
            assert [one.is_prunable for one in self.old(world, now=LATER + DAY - timedelta(seconds=1))] == [False]
            assert self.delete(world, run.id, now=LATER + DAY) == 1
        else:
            assert self.delete(world, run.id) == 1

    @pytest.mark.parametrize("status", OperationStatus)
    def test_an_effect_of_which_nobody_knows_holds_its_run(self, world: World, status: OperationStatus) -> None:
        """Until its attempt has an end the run stays, asked for with its dead letters or not; no other operation holds one."""
        run, neighbour = self.ended(world, world.worker()), self.ended(world, world.worker())
        name, owner = OperationName("pay", "order-1"), Owner(run.id, 0, "pay", run.token, None)
        LedgerWorld(world.backend).bring(status, name, owner)
        is_held = status in (OperationStatus.ATTEMPTING, OperationStatus.UNKNOWN, OperationStatus.ASKED)
        for dead_letters in (False, True):
            found = {one.run_id: (one.is_prunable, one.is_kept) for one in self.old(world, dead_letters=dead_letters)}
            assert found == {run.id: (not is_held, is_held), neighbour.id: (True, False)}
        assert self.delete(world, run.id, neighbour.id, dead_letters=True) == 2 - is_held
        assert self.is_there(world, run.id) == is_held

    def test_operations_go_with_the_run_whose_key_they_have(self, world: World) -> None:
        """With their attempts; an operation whose key the user gave stays, and so do all of the neighbour's."""
        run, neighbour = self.ended(world, world.worker()), self.ended(world, world.worker())
        ledger = LedgerWorld(world.backend)
        names = [OperationName("pay", f"{run.id}/0/pay"), OperationName("pay", run.id), OperationName("pay", f"{neighbour.id}/0/pay")]
        for name, owned in zip(names, (run, run, neighbour), strict=True):
            ledger.bring(OperationStatus.DONE, name, Owner(owned.id, 0, "pay", owned.token, None))
        assert sorted(one.records for one in self.old(world)) == [3, 4]
        assert self.delete(world, run.id) == 1
        assert [ledger.find(name) is None for name in names] == [True, False, False]
        assert [len(ledger.attempts(name)) for name in names] == [0, 1, 1]

    def test_dead_letters_go_if_asked_for(self, world: World) -> None:
        """Then a failed run is deleted as every other."""
        run = self.ended(world, world.worker(), RunStatus.FAILED)
        assert self.delete(world, run.id, dead_letters=True) == 1
        assert not self.is_there(world, run.id)

    def test_what_changed_since_the_walk_stays(self, world: World) -> None:
        """A run that was retried after it was seen is tested again, and is not deleted."""
        run = self.ended(world, world.worker(), RunStatus.CANCELED)
        assert [one.is_prunable for one in self.old(world)] == [True]
        world.retry(run.id, LATER)
        assert self.delete(world, run.id) == 0
        assert world.status(run.id) is RunStatus.PENDING

    def test_a_pruned_run_s_key_still_answers(self, world: World) -> None:
        """The same key gives the old run's id and makes no second one."""
        run = self.ended(world, world.worker(), idempotency_key="order-1")
        self.delete(world, run.id)
        [again] = world.accept(new_run(world.lane(), idempotency_key="order-1"))
        assert (again.run_id, again.created, again.stored_digest) == (run.id, False, "digest-of-input")
        assert world.key("import_asset", "order-1") == (run.id, RunStatus.SUCCEEDED)

    def test_keys_go_only_after_their_runs(self, world: World) -> None:
        """A key whose run is pruned and old goes, page by page; one whose run is there, or going, stays. Afterwards it is free."""
        worker = world.worker()
        pruned = [self.ended(world, worker, idempotency_key=f"order-{number}") for number in range(3)]
        kept = self.ended(world, worker, idempotency_key="order-8")
        going = world.enqueue(idempotency_key="order-9")
        self.delete(world, *(run.id for run in pruned))
        assert self.delete_keys(world, limit=2) == 3
        assert [world.key("import_asset", f"order-{number}") for number in range(3)] == [None] * 3
        assert world.key("import_asset", "order-8") == (kept.id, RunStatus.SUCCEEDED)
        assert world.key("import_asset", "order-9") == (going, None)
        [again] = world.accept(new_run(world.lane(), idempotency_key="order-1"))
        assert again.created

    def test_the_age_of_a_key_is_that_of_its_run_s_id(self, world: World) -> None:
        """A key is young by when its run was accepted, which its id tells, for there is nothing else left of it."""
        run = self.ended(world, world.worker(), idempotency_key="order-1")
        self.delete(world, run.id)
        made_at = datetime.fromtimestamp(int(run.id.replace("-", "")[:12], 16) / 1000, UTC)
        assert self.delete_keys(world, now=made_at + DAY) == 0
        assert self.delete_keys(world, now=made_at + DAY + timedelta(milliseconds=2)) == 1
