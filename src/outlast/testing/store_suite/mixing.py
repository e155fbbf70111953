"""What a store promises about groups that hold two claims of one run, and about bounds."""

from outlast.limits import WARNINGS_MAX
from outlast.native.store import Checkpoint
from outlast.run import RunStatus

from .world import ERROR, START, World, WorldSuite, after, end, failure, park, step


class MixingSuite(WorldSuite):
    """A stale claim beside the current one of the same run and worker."""

    def test_a_stale_claim_beside_the_current_one_is_refused(self, world: World) -> None:
        """What only the older token wrote is refused by name, and what the newer one wrote is kept, whatever their order."""
        worker = world.worker()
        old = world.claimed(worker)
        world.commit(worker, end(old, RunStatus.PENDING))
        new = world.claimed_again(worker, old, START)
        stale: list[Checkpoint] = [step(old), failure(old, "copy"), end(old, RunStatus.FAILED, error=ERROR)]
        current: list[Checkpoint] = [step(new), failure(new, "copy"), end(new, output='"new"')]
        refused = world.commit(worker, stale[0], current[0], current[1], stale[1], stale[2], current[2])
        assert sorted(map(repr, refused)) == sorted(map(repr, stale))
        view = world.view(new.id)
        assert (view.status, view.output, view.error) == (RunStatus.SUCCEEDED, '"new"', None)
        assert world.find_kept(*stale, *current) == current

    def test_every_refused_record_of_one_key_is_named(self, world: World) -> None:
        """Two stale records of one key are two refusals: nobody is told that his record was kept."""
        worker = world.worker()
        old = world.claimed(worker)
        world.commit(worker, end(old, RunStatus.PENDING))
        sent: list[Checkpoint] = [step(old, seq=1), step(old, seq=2)]
        assert sorted(map(repr, world.commit(worker, *sent))) == sorted(map(repr, sent))

    def test_a_park_is_found_after_the_next_claim(self, world: World) -> None:
        """A run that was put down and claimed again was put down."""
        worker = world.worker()
        run = world.claimed(worker)
        parked = park(run, after(60))
        world.commit(worker, parked)
        world.wake_due(after(60))
        world.claimed_again(worker, run, after(60))
        assert world.find_kept(parked) == [parked]

    def test_warnings_are_bounded(self, world: World) -> None:
        """A body that warns in a loop keeps the first ones."""
        worker = world.worker()
        run = world.claimed(worker)
        warnings = tuple(f"warning {number}" for number in range(WARNINGS_MAX + 5))
        world.commit(worker, end(run, warnings=warnings))
        assert world.view(run.id).warnings == warnings[:WARNINGS_MAX]
