"""Effects whose attempts are cut off, frozen, late, lost or given up: what is believed, and when.

Everything is asserted on the rows of the ledger and on the provider's log; the instants are those in the rows.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from .effect_child import Job, Order
from .effect_world import EffectWorld, effect_world, until

BREAD = Order("bread")
KEYED = Order("bread", is_keyed=True)
LENIENCE = 0.05
"""Seconds by which an instant that a process has computed may come before the database's own."""


@pytest.fixture
def world(database_url, tmp_path) -> Iterator[EffectWorld]:
    with effect_world(database_url, tmp_path) as world:
        yield world


def believable(attempt: dict) -> float:
    return attempt["started_at"] + attempt["timeout"] + attempt["settle"]


# --- what is believed, and when --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("word", ["drop", "mistype"])
def test_an_order_that_was_done_and_not_answered_is_found_and_not_repeated(world, word):
    """The provider acts, and closes the connection or answers nonsense: the reconciler finds it done at once, and there is one attempt."""
    world.provider.say("bread", word)
    (run,) = world.accept(Job(BREAD, timeout="60s"))
    world.worker()
    world.wait_for_status(run, "succeeded")
    assert [attempt["outcome"] for attempt in world.operation()["attempts"]] == ["done"]
    assert world.output(run) == "bread 1"
    world.check(executed=1)


@pytest.mark.parametrize("word", ["lose", "fail"])
def test_not_done_is_not_believed_before_time_out_and_settle(world, word):
    """While the worker lives, an order that nobody knows of is sent again only after the first attempt's time-out and settle."""
    world.provider.say("bread", word)
    (run,) = world.accept(Job(BREAD, timeout="3s", settle="1s"))
    world.worker()
    world.wait_for_status(run, "succeeded")
    first, second = world.operation()["attempts"]
    assert (first["outcome"], second["outcome"]) == ("not_done", "done")
    assert second["started_at"] >= believable(first) - LENIENCE
    world.check(executed=1)


def test_after_a_proven_death_not_done_is_believed_after_settle(world):
    """A killed worker's attempt is believed to be not done once its death is proven and `settle` has passed, long before its time-out."""
    world.provider.say("bread", "slow never")
    (run,) = world.accept(Job(BREAD, timeout="300s", settle="2s"))
    victim = world.worker()
    world.provider.wait_for("arrived")
    victim.signal(signal.SIGKILL)
    world.worker()
    world.wait_for_status(run, "succeeded")
    first, second = world.operation()["attempts"]
    (died_at,) = [row["ended_at"] for row in world.rows("worker") if row["id"] == first["worker"]]
    assert died_at + first["settle"] - LENIENCE <= second["started_at"] < believable(first)
    assert second["worker"] != first["worker"]
    world.check(executed=1)


def test_what_comes_between_a_look_and_the_belief_is_seen(world):
    """A look that began before "not done" can be believed is worth nothing when it answers afterwards: the order was done meanwhile."""
    world.provider.say("bread", "late close act", looks=("tell answer",))
    (run,) = world.accept(Job(BREAD, timeout="5s", settle="1s"))
    world.worker()
    world.provider.wait_for("arrived")
    (attempt,) = world.operation()["attempts"]
    until(attempt["started_at"] + 4)  # so that the look may go on beyond the time-out, and is not over its own
    world.provider.release("bread", "close")
    world.provider.wait_for("looked", receipt=None)
    world.provider.release("bread", "act")
    world.provider.wait_for("executed")
    until(believable(attempt) + 0.3)
    world.provider.release("bread", "answer")
    world.wait_for_status(run, "succeeded")
    assert [attempt["outcome"] for attempt in world.operation()["attempts"]] == ["done"]
    world.check(executed=1)


def test_a_revoked_order_is_believed_at_once_and_never_done(world):
    """A reconciler that voids the order is believed long before the time-out; what comes late after all is refused by the provider."""
    world.provider.say("bread", "late act", looks=("revoke",))
    (run,) = world.accept(Job(BREAD, timeout="300s", settle="60s"))
    world.worker()
    world.wait_for_status(run, "succeeded")
    first, second = world.operation()["attempts"]
    assert second["started_at"] < believable(first)
    world.provider.release("bread", "act")
    world.provider.wait_for("refused", why="voided")
    world.check(executed=1)


def test_a_refused_connection_is_tried_again_by_the_policy(world):
    """A declared error is a failed attempt: nobody is asked anything, and the next one follows when the provider listens again."""
    world.provider.refuse()
    (run,) = world.accept(Job(BREAD, attempts=1000, delay="100ms"))
    world.worker()
    world.wait_until("three attempts have failed", lambda: len(world.rows("operation_attempt")) > 3)
    world.provider.accept()
    world.wait_for_status(run, "succeeded")
    *failed, last = world.operation()["attempts"]
    assert {attempt["outcome"] for attempt in failed} == {"not_done"}
    assert last["outcome"] == "done"
    assert world.provider.lines("looked") == []
    world.check(executed=1)


def test_used_up_attempts_fail_the_effect(world):
    """An order that is rejected as often as the policy allows ends the operation as failed, with nothing done."""
    world.provider.say("bread", "reject", "reject")
    (run,) = world.accept(Job(BREAD, attempts=2))
    world.worker()
    world.wait_for_status(run, "failed")
    operation = world.operation()
    assert operation["status"] == "failed"
    assert [attempt["outcome"] for attempt in operation["attempts"]] == ["not_done", "not_done"]
    world.check(executed=0)


# --- late and frozen ---------------------------------------------------------------------------------------------------------
def test_a_late_result_of_an_older_attempt_is_kept_and_changes_nothing(world):
    """Attempt 1 times out in its thread and answers during attempt 2: it cannot record, its result is kept beside it, and logged.

    While the thread goes on no "not done" is believed, so that it takes a person for attempt 2 to begin at all.
    """
    world.provider.say("bread", "hold first", "slow second", looks=("miss", "miss", "miss"))
    (run,) = world.accept(Job(KEYED, timeout="1s", settle="0.5s"))
    first_worker = world.worker()
    world.wait_for_status(run, "failed")  # its thread does not end, so that nothing else may begin beside it there
    world.worker()
    world.retry(run)
    decision = world.wait_for_decision()
    assert "thread" in decision["question"]
    world.decide(decision["id"], "again")
    world.provider.wait_for("arrived", attempt=2)
    world.provider.release("bread", "first")
    world.wait_until("the late result is kept", lambda: world.operation()["attempts"][0]["late"] is not None)
    assert world.operation()["status"] == "attempting"
    world.provider.release("bread", "second")
    world.wait_for_status(run, "succeeded")
    first, second = world.operation()["attempts"]
    assert first["late"] == {"number": 1, "name": "bread"}
    assert (first["outcome"], second["outcome"]) == ("not_done", "done")
    assert any("ended late" in line for line in first_worker.complained), first_worker.report()
    world.check(executed=1)


def test_a_frozen_worker_that_comes_back_records_nothing(world):
    """A worker is frozen for longer than its lease in the middle of an attempt; another finds it done; what the first says then is refused."""
    world.provider.say("bread", "hold answer")
    (run,) = world.accept(Job(KEYED, timeout="300s"))
    zombie = world.worker("--lease", "2s")
    world.provider.wait_for("executed")
    world.freeze(zombie)
    world.worker()
    world.wait_for_status(run, "succeeded")
    done = world.operation()
    zombie.signal(signal.SIGCONT)
    zombie.wait_for("before_store:note_effect")  # it has given its attempt up, and is refused a word about it
    world.provider.release("bread", "answer")
    world.wait_until("what it came with is kept", lambda: world.operation()["attempts"][0]["late"] is not None)
    now = world.operation()
    assert {name: now[name] for name in ("status", "result", "token", "changed_at")} == {
        name: done[name] for name in ("status", "result", "token", "changed_at")
    }
    assert now["token"] == 2, "the second claim has recorded it"
    world.check(executed=1)


def test_a_frozen_worker_that_comes_back_begins_nothing(world):
    """A worker stands still before it begins an attempt; the next claim of the run dies there; the first one then begins nothing for its old claim."""
    (run,) = world.accept(Job(BREAD, timeout="4s", settle="0.5s"))
    zombie = world.worker("--lease", "2s", "--silence", "before_store:take_effect:1")
    zombie.wait_for("silent")
    victim = world.worker("--kill", "before_store:take_effect:1")
    assert victim.wait() == -signal.SIGKILL, victim.report()
    (world.folder / "go").touch()
    zombie.wait_for("lease_lost")
    world.wait_for_status(run, "succeeded")
    (attempt,) = world.operation()["attempts"]
    assert attempt["run_token"] == 3, "the frozen worker's claim was the first, its victim's the second"
    world.check(executed=1)


def test_a_frozen_workers_order_is_refused_by_its_token(world):
    """The order of a frozen worker reaches a provider that keeps tokens after the next attempt's: it is refused, by number alone."""
    world.provider.say("bread", "slow act")
    (run,) = world.accept(Job(KEYED, timeout="4s", settle="0.5s"))
    zombie = world.worker("--lease", "2s")
    world.provider.wait_for("arrived")
    world.freeze(zombie)
    world.worker()
    world.wait_for_status(run, "succeeded")
    world.provider.release("bread", "act")
    world.provider.wait_for("refused", why="an older token", attempt=1)
    zombie.signal(signal.SIGCONT)
    zombie.wait_for("lease_lost")
    first, second = world.operation()["attempts"]
    assert second["token"] > first["token"]
    assert second["started_at"] >= believable(first) - LENIENCE, "silence is no proof of death"
    world.check(executed=1)


def test_what_the_body_gave_up_is_known_to_the_ledger(world):
    """A durable time-out gives the effect up while it is under way: the run goes on without it, and the ledger does not take it for not done."""
    world.provider.say("bread", "hold answer")
    (run,) = world.accept(Job(BREAD, timeout="300s", within="1s"))
    world.worker()
    world.wait_for_status(run, "succeeded")
    assert world.output(run) == "given up: bread"
    world.provider.release("bread", "answer")
    world.wait_until("the truth is in the ledger", lambda: is_truth_known(world))
    world.check(executed=1)


def test_a_cancel_in_the_middle_leaves_the_truth_in_the_ledger(world):
    """A run is canceled while the provider works: it ends canceled, and the ledger knows what was done, or that nobody knew."""
    world.provider.say("bread", "hold answer")
    (run,) = world.accept(Job(BREAD, timeout="300s"))
    world.worker()
    world.provider.wait_for("executed")
    world.cancel(run)
    world.wait_until("the attempt is given up", lambda: world.operation()["status"] == "unknown" or world.status(run) == "canceled")
    world.provider.release("bread", "answer")
    world.wait_for_status(run, "canceled")
    world.wait_until("the truth is in the ledger", lambda: is_truth_known(world))
    world.check(executed=1)


def is_truth_known(world: EffectWorld) -> bool:
    """Whether the ledger has what was done, as the result or beside its attempt, and never took it for not done."""
    operation = world.operation()
    (attempt,) = operation["attempts"]
    assert operation["status"] in ("attempting", "unknown", "done"), operation
    assert attempt["outcome"] != "not_done", attempt
    return operation["status"] == "done" or attempt["late"] == {"number": 1, "name": "bread"}
