"""What a decision store promises of answers: one of them stands, and it is about what was seen."""

import threading
from concurrent.futures import ThreadPoolExecutor

from outlast.decision import DecisionState
from outlast.decisions.store import NewAnswer

from .world import ANSWER, DIGEST, World, WorldSuite, after

WAIT = 60.0
"""Seconds after which a thread that does not get on is a failed test."""


class AnswersSuite(WorldSuite):
    """Who decided, and what."""

    def test_an_answer_is_kept(self, world: World) -> None:
        """Who has decided what, why and when, with the result to the letter."""
        decision_id = world.open()
        assert world.answer(decision_id, NewAnswer("done", "ann", "their support says so", '{"b":1,"a":1e22}'), now=after(5))
        view = world.view(decision_id)
        assert (view.state, view.answer, view.answered_by, view.note) == (DecisionState.ANSWERED, "done", "ann", "their support says so")
        assert (view.result, view.answered_at, view.closed_at) == ('{"b":1,"a":1e22}', after(5), None)

    def test_a_second_answer_changes_nothing(self, world: World) -> None:
        """The first one stands; who comes later is told."""
        decision_id = world.open()
        assert world.answer(decision_id)
        before = world.view(decision_id)
        assert not world.answer(decision_id, NewAnswer("fail", "bob"), now=after(1))
        assert world.view(decision_id) == before

    def test_nobody_answers_what_has_changed_under_his_eyes(self, world: World) -> None:
        """An answer names what it is about: under another digest it is refused, and the question stays open."""
        decision_id = world.open(digest="what it is about now")
        assert not world.answer(decision_id, digest="what he has seen")
        assert world.view(decision_id).state is DecisionState.OPEN
        assert world.answer(decision_id, digest="what it is about now")

    def test_of_two_at_once_one_is_heard(self, world: World) -> None:
        """Two people who answer at the same moment on connections of their own: one of them has decided, round after round."""
        gate = threading.Barrier(2)

        def decide(decision_id: str, by: str) -> bool:
            gate.wait(WAIT)
            return world.answer(decision_id, NewAnswer("again", by))

        with ThreadPoolExecutor(2) as pool:
            for _ in range(10):
                decision_id = world.open()
                heard = [pool.submit(decide, decision_id, by) for by in ("ann", "bob")]
                answers = dict(zip(("ann", "bob"), (one.result(WAIT) for one in heard), strict=True))
                assert sorted(answers.values()) == [False, True]
                assert answers[world.view(decision_id).answered_by or ""]

    def test_a_lock_makes_the_others_wait(self, world: World) -> None:
        """Who has locked a decision decides first: another answer waits for his commit, and is refused."""
        decision_id = world.open()
        began = threading.Event()

        def decide() -> bool:
            with world.database.transaction() as tx:
                began.set()
                return world.store.answer_decision(tx, decision_id, DIGEST, NewAnswer("fail", "bob"))

        with ThreadPoolExecutor(1) as pool:
            with world.database.transaction() as tx:
                locked = world.store.lock_decision(tx, decision_id)
                assert locked is not None
                assert locked.state is DecisionState.OPEN
                other = pool.submit(decide)
                began.wait(0.05)
                assert world.store.answer_decision(tx, decision_id, DIGEST, ANSWER)
            assert not other.result(WAIT)
        assert world.view(decision_id).answered_by == "ann"
