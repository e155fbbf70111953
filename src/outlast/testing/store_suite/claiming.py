"""What a store promises about claiming."""

from datetime import timedelta

import pytest

from outlast.errors import LeaseLostError
from outlast.native.store import Candidate, Recovery
from outlast.run import RunStatus

from .world import START, World, WorldSuite, after, end, park, step


class ClaimingSuite(WorldSuite):
    """The fence, what there is to claim, and who gets it."""

    def probe(self, world: World, *lanes: int, limit: int = 10, with_suspects: bool = True, seconds: float = 0) -> list[Candidate]:
        with world.database.reading() as tx:
            return world.store.probe_lanes(tx, lanes, limit, with_suspects=with_suspects, now=after(seconds))()

    def probe_oldest(self, world: World, *lanes: int, limit: int = 10) -> list[Candidate]:
        with world.database.reading() as tx:
            return world.store.probe_oldest(tx, lanes, limit, with_suspects=True, now=after(100))()

    def suspect(self, world: World, worker: int) -> str:
        """Return a pending run that lost its worker twice in a row."""
        run = world.claimed(worker)
        with world.writing() as tx:
            world.store.recover_runs(tx, [Recovery(run.hold, RunStatus.PENDING, timedelta(0), 2, 2, 0, 0, None)], START)
        return run.id

    def test_the_fence_lets_a_living_worker_pass(self, world: World) -> None:
        """A worker that is alive may claim and flush."""
        worker = world.worker()
        with world.writing() as tx:
            world.store.fence(tx, worker)

    @pytest.mark.parametrize("how", ["stopped", "dead", "silent"])
    def test_the_fence_voids_what_an_ended_worker_writes(self, world: World, how: str) -> None:
        """After a worker was ended nothing of its transaction is there."""
        worker, run_id = world.worker(), world.enqueue()
        world.end_worker(worker, how)
        with pytest.raises(LeaseLostError):
            world.claim(worker, run_id)
        assert world.status(run_id) is RunStatus.PENDING

    def test_the_fence_stops_a_worker_that_never_was(self, world: World) -> None:
        """A worker without a row may write nothing."""
        with pytest.raises(LeaseLostError):
            world.claim(12345)

    def test_a_probe_sees_due_runs_by_priority_then_age(self, world: World) -> None:
        """Smaller priority first, then what has been due longer; other lanes are not seen."""
        lane, other = world.lane(), world.lane(queue="bulk")
        late = world.enqueue(due_at=after(-1))
        early = world.enqueue(due_at=after(-2))
        urgent = world.enqueue(priority=-1)
        elsewhere = world.enqueue(lane=other)
        assert [candidate.run_id for candidate in self.probe(world, lane)] == [urgent, early, late]
        assert {candidate.run_id for candidate in self.probe(world, lane, other)} == {urgent, early, late, elsewhere}
        first = self.probe(world, lane, limit=1)[0]
        assert first == Candidate(urgent, lane, -1, START, False)

    def test_a_probe_sees_only_what_is_claimable(self, world: World) -> None:
        """Waiting, running and ended runs are not seen."""
        lane, worker = world.lane(), world.worker()
        world.enqueue(due_at=after(60))
        world.claimed(worker)
        world.commit(worker, end(world.claimed(worker)))
        assert self.probe(world, lane, seconds=120) == []

    def test_a_probe_by_age_does_not_care_for_priority(self, world: World) -> None:
        """What has been due longest comes first, however low its priority."""
        lane = world.lane()
        young = world.enqueue(priority=-100, due_at=after(-1))
        old = world.enqueue(priority=100, due_at=after(-3))
        middle = world.enqueue(priority=0, due_at=after(-2))
        assert [candidate.run_id for candidate in self.probe_oldest(world, lane)] == [old, middle, young]
        assert [candidate.run_id for candidate in self.probe_oldest(world, lane, limit=1)] == [old]
        assert self.probe_oldest(world) == []

    def test_suspects_are_seen_only_when_asked_for(self, world: World) -> None:
        """A run that lost its worker twice in a row is left out by a worker that has a suspect already."""
        lane, worker = world.lane(), world.worker()
        suspect, ordinary = self.suspect(world, worker), world.enqueue()
        assert {(candidate.run_id, candidate.is_suspect) for candidate in self.probe(world, lane)} == {(suspect, True), (ordinary, False)}
        assert [candidate.run_id for candidate in self.probe(world, lane, with_suspects=False)] == [ordinary]

    def test_a_suspect_that_recorded_something_is_none_any_more(self, world: World) -> None:
        """Progress clears a suspicion when the run is let go, and being let go alone does not."""
        lane, worker = world.lane(), world.worker()
        run_id = self.suspect(world, worker)
        [run] = world.claim(worker, run_id)
        world.commit(worker, end(run, RunStatus.PENDING))
        assert self.probe(world, lane)[0].is_suspect
        [run] = world.claim(worker, run_id)
        world.commit(worker, step(run), end(run, RunStatus.PENDING))
        assert not self.probe(world, lane)[0].is_suspect

    def test_a_claim_brings_the_run(self, world: World) -> None:
        """A claimed run comes with what its body needs, and is running under the first token."""
        worker = world.worker()
        run_id = world.enqueue(idempotency_key="order-1", deadline_at=after(60))
        [run] = world.claim(worker, run_id, now=after(3))
        assert (run.id, run.token, run.lane, run.kind, run.version, run.generation) == (run_id, 1, world.lane(), "import_asset", 1, 0)
        assert (run.attempts, run.losses, run.seed, run.ending, run.input, run.headers) == (0, 0, 7, None, '{"path":"/a/b"}', '{"trace":"1"}')
        assert (run.idempotency_key, run.deadline_at, run.started_at, run.claimed_at) == ("order-1", after(60), after(3), after(3))
        view = world.view(run_id)
        assert (view.status, view.worker, view.started_at) == (RunStatus.RUNNING, "host:1", after(3))

    def test_claims_come_in_the_order_asked_and_not_more(self, world: World) -> None:
        """A claim takes the first of the ids that it was given, up to its limit."""
        worker = world.worker()
        first, second, third = (world.enqueue() for _ in range(3))
        assert [run.id for run in world.claim(worker, third, first, second, limit=2)] == [third, first]
        assert world.status(second) is RunStatus.PENDING
        assert world.claim(worker, second, limit=0) == []

    def test_a_claim_tests_the_state_again(self, world: World) -> None:
        """Of what a probe saw before, what is not pending and due now is not claimed, and the limit is filled by what follows."""
        worker = world.worker()
        running, waiting, canceled, claimable = world.claimed(worker).id, world.enqueue(due_at=after(9)), world.enqueue(), world.enqueue()
        world.cancel(canceled)
        early = world.enqueue(now=after(5))
        claimed = world.claim(worker, running, waiting, canceled, early, claimable, limit=1)
        assert [run.id for run in claimed] == [claimable]

    def test_two_claims_never_share_a_run(self, world: World) -> None:
        """What one worker claimed another does not get."""
        run_ids = [world.enqueue() for _ in range(4)]
        first = world.claim(world.worker(), *run_ids[:3])
        second = world.claim(world.worker(), *run_ids)
        assert [run.id for run in first] == run_ids[:3]
        assert [run.id for run in second] == run_ids[3:]

    def test_tokens_only_grow(self, world: World) -> None:
        """Each claim of a run has a greater token, whatever happened in between, and the first start is kept."""
        worker = world.worker()
        run = world.claimed(worker)
        tokens = [run.token]
        for number in range(3):
            world.commit(worker, end(run, RunStatus.PENDING) if number else park(run, after(0)))
            world.wake_due(after(1))
            run = world.claimed_again(worker, run, after(number + 1))
            tokens.append(run.token)
        assert tokens == sorted(set(tokens))
        assert (run.started_at, run.claimed_at) == (START, after(3))

    def test_held_runs_are_those_of_the_worker(self, world: World) -> None:
        """A worker's holds are listed with their tokens, and nobody else's."""
        worker, other = world.worker(), world.worker()
        mine = [world.claimed(worker) for _ in range(2)]
        world.claimed(other)
        world.commit(worker, end(world.claimed(worker)))
        with world.database.reading() as tx:
            held = world.store.list_held(tx, worker)
        assert {run.hold for run in held} == {run.hold for run in mine}
        assert held[0].input == mine[0].input

    def test_a_look_tells_of_claimable_runs_and_of_timers(self, world: World) -> None:
        """An idle worker learns whether something is pending, whether a timer is due, and when the next one is."""
        lane, other = world.lane(), world.lane(queue="bulk")
        with world.database.reading() as tx:
            assert world.store.look(tx, [lane], START) == (False, False, None, START, False, False)
        world.enqueue(due_at=after(9))
        world.enqueue(lane=other)
        with world.database.reading() as tx:
            assert world.store.look(tx, [lane], START) == (False, False, after(9), START, False, False)
            assert world.store.look(tx, [lane], after(9))[:2] == (False, True)
            assert world.store.look(tx, [lane, other], START).has_pending
