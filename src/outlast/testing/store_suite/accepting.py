"""What a store promises about accepting runs."""

from outlast import ids
from outlast.native.store import LaneName
from outlast.run import RunStatus

from .world import START, World, WorldSuite, after, new_run


class AcceptingSuite(WorldSuite):
    """Lanes, new runs and idempotency keys."""

    def test_a_lane_keeps_its_number(self, world: World) -> None:
        """Asking for a lane twice gives one number, and another lane another one."""
        assert world.lane() == world.lane()
        assert len({world.lane(), world.lane(version=2), world.lane(kind="other"), world.lane(queue="bulk")}) == 4

    def test_lanes_are_answered_by_name(self, world: World) -> None:
        """Known and new lanes of one call are all answered."""
        names = [LaneName("default", "import_asset", 1), LaneName("default", "import_asset", 3)]
        known = world.lane()
        with world.writing() as tx:
            answer = world.store.ensure_lanes(tx, names)
        assert answer[names[0]] == known
        assert set(answer) == set(names)

    def test_an_accepted_run_is_pending_and_unchanged(self, world: World) -> None:
        """What was accepted is what is read."""
        run_id = world.enqueue(priority=-5, deadline_at=after(60), input='{"n": 1e22}')
        view = world.view(run_id)
        assert (view.status, view.kind, view.version, view.queue, view.priority) == (RunStatus.PENDING, "import_asset", 1, "default", -5)
        assert (view.input, view.tags, view.headers) == ('{"n": 1e22}', ("nightly",), {"trace": "1"})
        assert (view.created_at, view.due_at, view.deadline_at) == (START, START, after(60))
        assert (view.started_at, view.finished_at, view.attempts, view.worker) == (None, None, 0, None)

    def test_a_run_for_later_waits(self, world: World) -> None:
        """A later due instant makes a run waiting, one that has passed does not."""
        assert world.status(world.enqueue(due_at=after(1))) is RunStatus.WAITING
        assert world.status(world.enqueue(due_at=after(-1))) is RunStatus.PENDING

    def test_many_runs_are_answered_in_their_order(self, world: World) -> None:
        """The answers of one call stand in the order of the runs."""
        lane = world.lane()
        runs = [new_run(lane, idempotency_key=None if number % 2 else f"key-{number}") for number in range(20)]
        runs.reverse()
        assert [accepted.run_id for accepted in world.accept(*runs)] == [run.id for run in runs]

    def test_the_same_key_is_the_same_run(self, world: World) -> None:
        """A key that is taken answers with its run and that run's digest, and nothing is added."""
        lane = world.lane()
        first = new_run(lane, idempotency_key="order-1", input_digest="one")
        second = new_run(lane, idempotency_key="order-1", input_digest="two")
        world.accept(first)
        [accepted] = world.accept(second)
        assert (accepted.run_id, accepted.created, accepted.stored_digest) == (first.id, False, "one")
        with world.database.reading() as tx:
            assert world.store.find_run(tx, second.id) is None

    def test_a_taken_key_does_not_hold_up_its_neighbours(self, world: World) -> None:
        """Of one call the run with a taken key is answered with another's id, and the rest is there."""
        lane = world.lane()
        taken, free, plain = (new_run(lane, idempotency_key=key) for key in ("taken", "free", None))
        world.accept(taken)
        late = new_run(lane, idempotency_key="taken")
        assert [(answer.run_id, answer.created) for answer in world.accept(plain, late, free)] == [
            (plain.id, True),
            (taken.id, False),
            (free.id, True),
        ]
        assert world.status(free.id) is world.status(plain.id) is RunStatus.PENDING

    def test_a_key_holds_per_kind(self, world: World) -> None:
        """Two kinds may use one key."""
        world.enqueue(idempotency_key="order-1")
        other = world.enqueue(lane=world.lane(kind="other"), kind="other", idempotency_key="order-1")
        assert world.key("other", "order-1") == (other, None)

    def test_the_same_run_again_is_created(self, world: World) -> None:
        """A retried call with its own run id is told `created`, with and without a key, and changes nothing."""
        lane = world.lane()
        for key in ("order-1", None):
            run = new_run(lane, idempotency_key=key)
            world.accept(run)
            [again] = world.accept(new_run(lane, id=run.id, idempotency_key=key, input='"other"', priority=9))
            assert (again.run_id, again.created, again.stored_digest) == (run.id, True, "digest-of-input")
            assert (world.view(run.id).input, world.view(run.id).priority) == (run.input, 0)

    def test_the_digest_of_a_run_again_is_the_stored_one(self, world: World) -> None:
        """A retried call learns which input the run really has."""
        run = new_run(world.lane(), input_digest="one")
        world.accept(run)
        [again] = world.accept(new_run(world.lane(), id=run.id, input_digest="two"))
        assert again.stored_digest == "one"

    def test_an_unknown_key_belongs_to_nobody(self, world: World) -> None:
        """A key that was never used has no run."""
        assert world.key("import_asset", ids.run_id()) is None
