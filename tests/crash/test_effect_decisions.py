"""Effects of which nobody knows whether they were done, which a person decides, and effects that several runs share by a key.

Everything is asserted on the rows of the ledger and of the decisions, and on the provider's log.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from .effect_child import Job, Order
from .effect_world import EffectWorld, effect_world

BREAD = Order("bread")


@pytest.fixture
def world(database_url, tmp_path) -> Iterator[EffectWorld]:
    with effect_world(database_url, tmp_path) as world:
        yield world


# --- people ----------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("option", "result", "status", "executed"),
    [("done", {"number": 7, "name": "bread"}, "succeeded", 1), ("again", None, "succeeded", 2), ("fail", None, "failed", 1)],
)
def test_a_person_decides_what_nobody_knows(world, option, result, status, executed):
    """Unsure asks: the run waits without a slot, whoever answers need not be a worker, and each answer ends it as it says."""
    world.provider.say("bread", "drop", looks=("wonder",))
    (run,) = world.accept(Job(BREAD))
    world.worker("--concurrency", "1")
    decision = world.wait_for_decision()
    world.wait_for_status(run, "waiting")
    (other,) = world.accept(Job(Order("salt")))
    world.wait_for_status(other, "succeeded")  # in the only slot
    assert world.status(run) == "waiting"
    world.decide(decision["id"], option, **({} if result is None else {"result": result}))
    world.wait_for_status(run, status)
    (operation,) = [row for row in world.rows("operation") if row["run"] == run]
    assert operation["status"] == ("failed" if option == "fail" else "done")
    assert operation["result"] == {"done": result, "again": {"number": 2, "name": "bread"}, "fail": None}[option]
    assert len(world.provider.lines("executed", name="bread")) == executed
    (decided,) = world.rows("decision")
    assert (decided["state"], decided["answer"], decided["answered_by"]) == ("consumed", option, "a test")
    world.check()


@pytest.mark.parametrize("option", ["done", "again", "fail"])
def test_a_decision_may_be_made_while_no_worker_lives(world, option):
    """The worker is killed after it has asked; the answer is given while nobody works; the next worker acts on it once."""
    world.provider.say("bread", "lose")
    (run,) = world.accept(Job(BREAD, effect="place_blindly"))
    victim = world.worker()
    decision = world.wait_for_decision()
    victim.signal(signal.SIGKILL)
    victim.wait()
    world.decide(decision["id"], option, **({"result": {"number": 7, "name": "bread"}} if option == "done" else {}))
    world.worker()
    world.wait_for_status(run, "failed" if option == "fail" else "succeeded")
    assert len(world.operation()["attempts"]) == (2 if option == "again" else 1)
    assert len(world.provider.lines("executed")) == (1 if option == "again" else 0)
    if option != "done":  # what a person says is believed, and the provider never did it
        world.check()


def test_an_answer_of_the_wrong_type_is_asked_again(world):
    """A result that does not fit the effect's type is found out by the worker: that question is closed, and another one tells why."""
    world.provider.say("bread", "drop")
    (run,) = world.accept(Job(BREAD, effect="place_blindly"))
    world.worker()
    first = world.wait_for_decision()
    world.decide(first["id"], "done", result={"number": "one"})
    second = world.wait_for_decision(count=2)
    assert second["id"] != first["id"]
    assert "number" in str(second["about"]), second
    world.decide(second["id"], "done", result={"number": 1, "name": "bread"})
    world.wait_for_status(run, "succeeded")
    assert sorted(row["state"] for row in world.rows("decision")) == ["consumed", "superseded"]
    world.check(executed=1)


def test_a_reconciler_that_fails_is_asked_again(world):
    """One failure of the reconciler is no verdict: it is asked again by the policy, and believed then."""
    world.provider.say("bread", "drop", looks=("fail",))
    (run,) = world.accept(Job(BREAD, attempts=3))
    world.worker()
    world.wait_for_status(run, "succeeded")
    assert len(world.provider.lines("looked")) == 2
    assert world.rows("decision") == []
    world.check(executed=1)


def test_a_reconciler_that_keeps_failing_is_replaced_by_a_person(world):
    """When the reconciler has failed as often as the policy allows, a person is asked."""
    world.provider.say("bread", "drop", looks=("fail", "fail"))
    (run,) = world.accept(Job(BREAD, attempts=2))
    world.worker()
    decision = world.wait_for_decision()
    assert len(world.provider.lines("looked")) == 2
    world.decide(decision["id"], "done", result={"number": 1, "name": "bread"})
    world.wait_for_status(run, "succeeded")
    world.check(executed=1)


# --- one key, several runs -----------------------------------------------------------------------------------------------------
def test_two_runs_with_one_key_do_it_once(world):
    """Two runs name one operation: the provider executes one order, and both get its receipt."""
    world.provider.say("bread", "slow act")
    runs = world.accept(Job(BREAD, key="the bread"), Job(BREAD, key="the bread"))
    world.worker(), world.worker()
    world.provider.wait_for("arrived")
    world.wait_until("both have begun", lambda: world.statuses()["pending"] == 0)
    world.provider.release("bread", "act")
    for run in runs:
        world.wait_for_status(run, "succeeded")
    assert [world.output(run) for run in runs] == ["bread 1", "bread 1"]
    assert len(world.operation()["attempts"]) == 1
    world.check(executed=1)


def test_a_key_whose_run_died_is_taken_over_by_another_run(world):
    """The run that acts for a shared key loses its worker for good; another run of the key reconciles, and does it itself."""
    world.provider.say("bread", "slow never")
    (first,) = world.accept(Job(BREAD, key="the bread", timeout="300s"))
    victim = world.worker()
    world.provider.wait_for("arrived")
    world.cancel(first)
    victim.signal(signal.SIGKILL)
    victim.wait()
    (second,) = world.accept(Job(BREAD, key="the bread", timeout="300s"))
    world.worker()
    world.wait_for_status(second, "succeeded")
    assert world.wait_for_status(first, "canceled") == "canceled"
    assert [attempt["run"] for attempt in world.operation()["attempts"]] == [first, second]
    world.check(executed=1)


def test_other_arguments_under_a_key_are_refused(world):
    """A run that names an operation of other arguments fails, and nothing is sent for it."""
    first, second = world.accept(Job(BREAD, key="the bread"), Job(Order("salt"), key="the bread"))
    world.worker("--concurrency", "1")
    assert world.wait_for_status(first, "succeeded", "failed") == "succeeded"
    world.wait_for_status(second, "failed")
    assert "other arguments" in str([row["error"] for row in world.rows("run_body") if row["run"] == second])
    assert world.provider.lines("arrived", name="salt") == []
    world.check(executed=1)
