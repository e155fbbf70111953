"""What a ledger's store promises about deleting: what ended long ago goes with its attempts, and what may have been done stays."""

from datetime import timedelta

import msgspec
import pytest

from outlast import ids
from outlast.ledger.operation import Change, OperationStatus, Owner

from .world import OWNER, LedgerWorld, LedgerWorldSuite, after, new_name

DAY = timedelta(days=1)
LATER = after(10 * 86_400)
NOBODY = Owner("", 0, "", 5, None)
S = OperationStatus


class DeletingSuite(LedgerWorldSuite):
    """Operations whose keys are not kept any longer."""

    @pytest.mark.parametrize("status", OperationStatus)
    def test_only_what_has_ended_goes(self, world: LedgerWorld, status: OperationStatus) -> None:
        """Done and failed, or planned and known not to have been done, with its attempts; whatever may have been done stays however old it is."""
        name = new_name("key")
        world.bring(status, name, NOBODY)
        before = world.attempts(name)
        is_over = status in (S.DONE, S.FAILED, S.PLANNED)
        assert world.delete_old(DAY, LATER) == int(is_over)
        assert (world.find(name) is None, world.attempts(name)) == (is_over, [] if is_over else before)

    def test_what_ended_lately_stays(self, world: LedgerWorld) -> None:
        """What counts is when it ended, not when it was planned."""
        world.bring(S.DONE, new_name("old"), NOBODY)
        world.bring(S.DONE, new_name("new"), NOBODY, now=LATER)
        assert (world.delete_old(DAY, after(86_399)), world.delete_old(DAY, LATER)) == (0, 1)
        assert (world.find(new_name("old")), world.find(new_name("new")) is None) == (None, False)

    def test_what_belongs_to_a_run_that_is_there_stays(self, world: LedgerWorld) -> None:
        """A retry of that run may ask for it; once the run is pruned, or where an unknown engine has it, it goes by its age."""
        run = world.accept_run()
        owned = msgspec.structs.replace(OWNER, run=run)
        world.bring(S.DONE, new_name("there"), owned)
        world.bring(S.DONE, new_name("pruned"), msgspec.structs.replace(OWNER, run=ids.run_id()))
        world.bring(S.FAILED, new_name("foreign"), msgspec.structs.replace(OWNER, run="workflow-17"))
        assert world.delete_old(DAY, LATER) == 2
        assert [world.find(new_name(key)) is None for key in ("there", "pruned", "foreign")] == [False, True, True]

    @pytest.mark.parametrize("run", ["there", "pruned", ""])
    def test_what_is_planned_goes_when_nobody_acts_for_it(self, world: LedgerWorld, run: str) -> None:
        """An attempt that was not done, and that nobody goes on with: its run was pruned, or nobody without a run holds the lease."""
        owner = msgspec.structs.replace(OWNER, run=world.accept_run() if run == "there" else ids.run_id() if run else "")
        world.plan(owner=owner)
        world.begun(owner=owner, lease=None if run else 2 * DAY)
        assert world.change(Change.NOT_DONE, 1, owner=owner)
        assert world.delete_old(DAY, after(1.5 * 86_400)) == (1 if run == "pruned" else 0)
        assert world.delete_old(DAY, after(3 * 86_400)) == (0 if run else 1)
        assert (world.find() is None, world.attempts() == []) == (run != "there", run != "there")

    def test_the_walk_goes_over_every_page(self, world: LedgerWorld) -> None:
        """Page by page in the order of names, whatever their length and characters; each is looked at once."""
        keys = ["a", "b", "\U0001f3ac", "B", "é", "0"]
        for key in keys:
            world.bring(S.DONE, new_name(key), NOBODY)
        world.bring(S.ASKED, new_name("bb"), NOBODY)
        assert world.delete_old(DAY, LATER, limit=2) == len(keys)
        assert world.find(new_name("bb")) is not None
        assert world.delete_old(DAY, LATER, limit=2) == 0
