"""What a store promises about reading."""

from datetime import datetime
from typing import Any

from outlast import ids
from outlast.native.store import RunFilter
from outlast.run import Progress, RunStatus

from .world import ERROR, World, WorldSuite, after, end, failed_record, failure, park, record, report, sleep, step, step_of


class ReadingSuite(WorldSuite):
    """What people and waiting callers ask."""

    def page(self, world: World, limit: int = 100, before: str | None = None, **filter: Any) -> list[str]:
        with world.database.reading() as tx:
            return [view.id for view in world.store.list_runs(tx, RunFilter(**filter), limit, before)]

    def test_a_run_that_is_not_there_is_not_found(self, world: World) -> None:
        """An unknown id has no view and no steps."""
        with world.database.reading() as tx:
            assert world.store.find_run(tx, ids.run_id()) is None
            assert world.store.list_steps(tx, ids.run_id()) == []

    def test_pages_follow_each_other_newest_first(self, world: World) -> None:
        """Each run is on one page, and pages go from the newest to the oldest."""
        run_ids = sorted(world.enqueue() for _ in range(5))
        newest_first = run_ids[::-1]
        first = self.page(world, limit=2)
        second = self.page(world, limit=2, before=first[-1])
        third = self.page(world, limit=2, before=second[-1])
        assert [*first, *second, *third] == newest_first
        assert self.page(world, limit=2, before=third[-1]) == []

    def test_listings_are_filtered(self, world: World) -> None:
        """Status, kind and queue narrow a listing, alone and together."""
        worker = world.worker()
        pending = world.enqueue()
        bulk = world.enqueue(lane=world.lane(queue="bulk"))
        other = world.enqueue(lane=world.lane(kind="other"), kind="other", due_at=after(60))
        running = world.claimed(worker).id
        failed = world.claimed(worker)
        world.commit(worker, end(failed, RunStatus.FAILED, error=ERROR))
        done = world.claimed(worker)
        world.commit(worker, end(done))
        assert set(self.page(world, status=RunStatus.PENDING)) == {pending, bulk}
        assert self.page(world, status=RunStatus.WAITING) == self.page(world, kind="other") == [other]
        assert self.page(world, status=RunStatus.RUNNING) == [running]
        assert self.page(world, status=RunStatus.FAILED) == [failed.id]
        assert self.page(world, status=RunStatus.DEAD) == []
        assert self.page(world, status=RunStatus.SUCCEEDED) == [done.id]
        assert self.page(world, queue="bulk") == self.page(world, queue="bulk", status=RunStatus.PENDING) == [bulk]
        assert self.page(world, kind="other", queue="bulk") == []

    def test_ended_runs_are_found(self, world: World) -> None:
        """A waiting caller learns which of its runs are over or gone."""
        worker = world.worker()
        done, going, gone = world.claimed(worker), world.claimed(worker), ids.run_id()
        world.commit(worker, end(done))
        with world.database.reading() as tx:
            assert world.store.find_ended(tx, [done.id, going.id, gone]) == {done.id, gone}
            assert world.store.find_ended(tx, []) == set()

    def test_steps_are_listed_by_seq_then_what_is_open(self, world: World) -> None:
        """Records come in their order with their outcome, then retries, waits and what is in progress."""
        worker = world.worker()
        run = world.claimed(worker)
        world.commit(worker, step_of(run, failed_record("charge", 1)), step(run, "locate", 0), failure(run, "copy", 2, after(60)))
        world.report(report(run, "hash", 3, 10))
        views = world.steps(run.id)
        assert [(view.key, view.status, view.attempts) for view in views[:2]] == [("locate", "done", 1), ("charge", "failed", 3)]
        assert (views[0].result, views[0].started_at, views[0].finished_at) == ('"/found"', record().started_at, record().finished_at)
        opened = {view.key: view for view in views[2:]}
        assert (opened["copy"].status, opened["copy"].due_at, opened["copy"].error, opened["copy"].attempts) == ("retrying", after(60), ERROR, 2)
        assert (opened["hash"].status, opened["hash"].progress) == ("in_progress", Progress(3, 10, ""))

    def test_a_view_says_why_a_run_is_where_it_is(self, world: World) -> None:
        """Each state is explained in words that name the step, the instant or the error."""
        worker = world.worker()
        run = world.claimed(worker)
        assert "host:1" in world.view(run.id).why
        world.report(report(run, "copy", 3, 10))
        view = world.view(run.id)
        assert (view.current_step, view.progress) == ("copy", Progress(3, 10, ""))
        assert "copy" in view.why
        assert self.why_of(world, world.enqueue()) == "waiting for a worker"
        assert "no route" in self.why_after(world, worker, RunStatus.FAILED)
        assert self.why_after(world, worker, RunStatus.SUCCEEDED) == "finished"

    def test_a_waiting_run_says_for_what_it_waits(self, world: World) -> None:
        """Sleep, retry and a later start are told apart."""
        worker = world.worker()
        asleep, retrying = world.claimed(worker), world.claimed(worker)
        world.commit(worker, failure(retrying, "copy", 1, after(60)), park(asleep, after(60), sleep()), park(retrying, after(60)))
        assert self.why_of(world, asleep.id) == f"sleeping until {self.text(after(60))}"
        assert self.why_of(world, retrying.id) == f"retrying copy at {self.text(after(60))}"
        assert world.view(retrying.id).current_step == "copy"
        assert self.why_of(world, world.enqueue(due_at=after(60))) == f"to be started at {self.text(after(60))}"

    def test_a_claimable_run_says_how_many_come_before_it(self, world: World) -> None:
        """By priority, then age, of its own lane."""
        world.worker()
        first, second = world.enqueue(due_at=after(-2)), world.enqueue(due_at=after(-1))
        urgent = world.enqueue(priority=-1)
        assert self.why_of(world, urgent) == "waiting for a worker"
        assert self.why_of(world, first) == "waiting for a worker, behind 1 other of its lane"
        assert self.why_of(world, second) == "waiting for a worker, behind 2 others of its lane"

    def test_a_stranded_run_says_who_lacks_what(self, world: World) -> None:
        """Nobody lives, nobody has the kind, the version, or the queue: each in its own words, for pending runs and overdue ones."""
        run_id, late = world.enqueue(), world.enqueue(due_at=after(9))
        assert self.why_of(world, run_id) == "stranded: no worker lives, or has within the last minute"
        assert world.view(late, after(8)).why.startswith("to be started at")
        assert world.view(late, after(9)).why == "stranded: no worker lives, or has within the last minute"
        world.worker(world.lane(kind="other"))
        assert self.why_of(world, run_id) == "stranded: no worker has import_asset"
        world.worker(world.lane(version=3), world.lane("bulk", version=2))
        assert self.why_of(world, run_id) == "stranded: no worker has import_asset v1, only v2 and v3"
        world.worker(world.lane("bulk"))
        assert self.why_of(world, run_id) == "stranded: workers have import_asset v1 only in queue bulk"
        world.worker()
        assert self.why_of(world, run_id) == "waiting for a worker"

    def test_a_run_of_a_lost_worker_says_so(self, world: World) -> None:
        """A lease that is over, a worker that is gone, and nobody to take the run over."""
        worker = world.worker()
        run = world.claimed(worker)
        assert world.view(run.id, after(31)).why == "running on host:1, which is silent; another worker takes it over"
        assert world.view(run.id, after(91)).why == "running on host:1, which is silent; stranded: no worker lives, or has within the last minute"
        world.end_worker(worker, now=after(31))
        assert world.view(run.id, after(32)).why == "running on host:1, which is gone; another worker takes it over"

    def test_a_cancel_that_waits_says_for_what(self, world: World) -> None:
        """A canceled run waits for a worker too, which may not be there, or not be let."""
        worker = world.worker()
        run = world.claimed(worker)
        world.cancel(run.id, "wrong file")
        assert self.why_of(world, run.id) == "running on host:1; told to cancel: wrong file"
        world.commit(worker, end(run, RunStatus.PENDING, passes_cancel=True))
        assert self.why_of(world, run.id) == "waiting for a worker to cancel it: wrong file"
        world.pause()
        assert self.why_of(world, run.id) == "queue default is paused; then it is canceled: wrong file"

    def test_a_run_may_be_read_without_its_reasons(self, world: World) -> None:
        """Who waits for an end needs its status and its output, and pays for nothing else."""
        worker = world.worker()
        run = world.claimed(worker)
        world.report(report(run))
        with world.database.reading() as tx:
            view = world.store.find_run(tx, run.id, explains=False)
        assert view is not None
        assert (view.status, view.why, view.current_step) == (RunStatus.RUNNING, "", None)

    def why_of(self, world: World, run_id: str) -> str:
        return world.view(run_id).why

    def why_after(self, world: World, worker: int, status: RunStatus) -> str:
        run = world.claimed(worker)
        world.commit(worker, end(run, status, error=ERROR if status is RunStatus.FAILED else None))
        return self.why_of(world, run.id)

    def text(self, instant: datetime) -> str:
        return instant.isoformat(timespec="seconds")
