"""What a decision store promises of states: every change of the table is made, and no other."""

import pytest

from outlast.decision import DecisionState, DecisionView
from outlast.decisions.rows import CLOSED
from outlast.decisions.store import ALLOWED

from .world import DIGEST, START, World, WorldSuite, after, question

PAIRS = [(found, asked) for found in DecisionState for asked in DecisionState if asked is not DecisionState.OPEN]
"""Nothing but `open_decision` makes one open, which a test of its own asks."""


class StatesSuite(WorldSuite):
    """The life of one decision."""

    def test_a_question_is_kept_as_it_was_put(self, world: World) -> None:
        """All that it says is there again to the letter, its lists in their order, and nothing of an answer."""
        asked = question()
        with world.database.transaction() as tx:
            world.store.open_decision(tx, asked, START)
        assert world.view(asked.id) == DecisionView(
            id=asked.id,
            state=DecisionState.OPEN,
            run=asked.run,
            step=asked.step,
            question=asked.question,
            about=asked.about,
            digest=DIGEST,
            options=asked.options,
            needs_result=asked.needs_result,
            effect=asked.effect,
            opened_at=START,
        )

    def test_a_question_without_an_engine_has_no_run(self, world: World) -> None:
        """An effect that no run performs asks as well, of no run and by any name."""
        decision_id = world.open(run=None, effect=None, needs_result=())
        assert (world.view(decision_id).run, world.view(decision_id).needs_result) == (None, ())

    @pytest.mark.parametrize("state", list(DecisionState))
    def test_a_question_is_put_once(self, world: World, state: DecisionState) -> None:
        """Put again under its id it stays as it is, whatever has become of it."""
        decision_id = world.opened_in(state)
        before = world.view(decision_id)
        world.open(after(9), id=decision_id, question="Another one?", digest="another")
        assert world.view(decision_id) == before

    @pytest.mark.parametrize(("found", "asked"), PAIRS, ids=lambda state: str(state))
    def test_a_change_is_made_if_the_table_has_it(self, world: World, found: DecisionState, asked: DecisionState) -> None:
        """Every pair of states: what `ALLOWED` has is done and dated, and what it has not changes nothing."""
        decision_id = world.opened_in(found)
        before = world.view(decision_id)
        is_allowed = asked in ALLOWED.get(found, frozenset())
        assert world.move(decision_id, asked) is is_allowed
        assert world.view(decision_id).state is (asked if is_allowed else found)
        if not is_allowed:
            assert world.view(decision_id) == before
        elif asked in CLOSED:
            assert world.view(decision_id).closed_at == START

    def test_a_decision_is_not_closed_as_open(self, world: World) -> None:
        """What is no close is refused with the words that are."""
        decision_id = world.open()
        with pytest.raises(ValueError, match="consumed, superseded, withdrawn"):
            world.close(decision_id, DecisionState.OPEN)

    def test_what_is_not_there_is_not_changed(self, world: World) -> None:
        """An id that nobody has asked under is found by nobody, and answered and closed by nobody."""
        assert world.find("nobody") is None
        assert not world.answer("nobody")
        assert not world.close("nobody", DecisionState.WITHDRAWN)
        with world.database.transaction() as tx:
            assert world.store.lock_decision(tx, "nobody") is None

    def test_what_runs_have_not_used_is_withdrawn_with_them(self, world: World) -> None:
        """Open and answered decisions of these runs are withdrawn and counted; used ones, closed ones and other runs' stay."""
        runs = [question().run for _ in range(2)]
        assert all(run is not None for run in runs)
        by_state = {state: world.opened_in(state, run=runs[0]) for state in DecisionState}
        other, second = world.open(), world.open(run=runs[1])
        assert world.withdraw(*[run for run in runs if run is not None], now=after(9)) == 3
        assert {state: world.view(one).state for state, one in by_state.items()} == {
            DecisionState.OPEN: DecisionState.WITHDRAWN,
            DecisionState.ANSWERED: DecisionState.WITHDRAWN,
            DecisionState.CONSUMED: DecisionState.CONSUMED,
            DecisionState.SUPERSEDED: DecisionState.SUPERSEDED,
            DecisionState.WITHDRAWN: DecisionState.WITHDRAWN,
        }
        assert (world.view(second).closed_at, world.view(by_state[DecisionState.WITHDRAWN]).closed_at) == (after(9), START)
        assert world.view(other).state is DecisionState.OPEN
        assert world.withdraw() == 0
