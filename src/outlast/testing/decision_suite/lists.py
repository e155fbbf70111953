"""What a decision store promises of its lists: the latest asked first, page by page, and a run's in order."""

from outlast import ids
from outlast.decision import DecisionState

from .world import START, World, WorldSuite, after


class ListsSuite(WorldSuite):
    """Pages of decisions."""

    def test_pages_follow_each_other(self, world: World) -> None:
        """The latest asked comes first, of two in one instant the one with the greater id, and every one is on one page."""
        asked = [world.open(after(second), id=f"decision {name}") for second, name in ((1, "a"), (2, "c"), (2, "b"), (3, "a2"))]
        pages, before = [], None
        while page := world.page(limit=2, before=before):
            pages.append(page)
            before = page[-1]
        assert pages == [[asked[3], asked[1]], [asked[2], asked[0]]]

    def test_each_state_is_listed_by_itself(self, world: World) -> None:
        """All of them, or those in one state, the open ones with pages of their own."""
        by_state = {state: world.opened_in(state, now=after(place)) for place, state in enumerate(DecisionState)}
        assert world.page() == list(reversed(by_state.values()))
        assert {state: world.page(state) for state in DecisionState} == {state: [one] for state, one in by_state.items()}
        older = world.open(START.replace(year=2025))
        assert world.page(DecisionState.OPEN, 1, by_state[DecisionState.OPEN]) == [older]

    def test_a_page_goes_on_from_one_that_is_closed_by_now(self, world: World) -> None:
        """What was answered between two pages neither repeats nor hides what is behind it."""
        first, second, third = (world.open(after(second)) for second in range(3))
        assert world.page(DecisionState.OPEN, 2) == [third, second]
        assert world.answer(second)
        assert world.page(DecisionState.OPEN, 2, second) == [first]

    def test_what_a_run_has_asked_is_listed_in_order(self, world: World) -> None:
        """All of its own, whatever has become of them, the first asked first; of a run that has asked nothing, nothing."""
        run = ids.run_id()
        first, second = world.opened_in(DecisionState.CONSUMED, run=run, now=after(1)), world.open(after(2), run=run)
        world.open()
        assert world.list_of_run(run) == [first, second]
        assert world.list_of_run(ids.run_id()) == []
        assert world.list_of_run("nonsense") == []
