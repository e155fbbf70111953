"""What must hold after each call, whatever it was: the invariants of a store, on rows alone, apart from what the model says.

S4, S6, S7 and S8 are about bodies, which there are none of here: the tests of replay beside this file (`test_replay_*`) and the checker
of `tests/chaos` hold them. That a claim is of a version which its worker has declared (part of S11) follows from what is probed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any

from outlast.decision import decision_of
from outlast.native.history import Outcome, RecordKind
from outlast.native.store import Checkpoint, FailureCheckpoint, RunCheckpoint, StepCheckpoint
from outlast.native.transitions import ALLOWED
from outlast.run import RunStatus

from .store_model_state import State, call_of

SUCCEEDED, CANCELED, DEAD = RunStatus.SUCCEEDED, RunStatus.CANCELED, RunStatus.DEAD


@dataclass(frozen=True)
class Change:
    """One call: the rows before and after it, and, of a commit, what was sent and what of it was answered as refused."""

    call: str
    before: State
    after: State
    now: datetime
    group: tuple[Checkpoint, ...] = ()
    refused: tuple[Checkpoint, ...] = ()

    @property
    def kept(self) -> list[Checkpoint]:
        return [one for one in self.group if one not in self.refused]

    def runs(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Return each run that was there, as it was and as it is."""
        return [(row, self.after["run"][key]) for key, row in self.before["run"].items() if key in self.after["run"]]

    def new(self, table: str) -> dict[Any, dict[str, Any]]:
        return {key: row for key, row in self.after[table].items() if key not in self.before[table]}


def s1_an_end_is_final(change: Change) -> None:
    """S1: nothing but an operator takes a run out of a terminal state."""
    for was, is_now in change.runs():
        if RunStatus(was["status"]).is_terminal and was["status"] != is_now["status"]:
            assert change.call in ("retry", "resume", "discard"), (was, is_now)


def s2_changes_are_allowed(change: Change) -> None:
    """S2: every change of a state is in the published table, that of a new run too."""
    pairs = [(RunStatus(was["status"]), RunStatus(is_now["status"])) for was, is_now in change.runs()]
    pairs = [pair for pair in pairs if pair[0] is not pair[1]]
    assert {*pairs, *((None, RunStatus(row["status"])) for row in change.new("run").values())} <= ALLOWED, pairs


def s3_a_record_never_changes(change: Change) -> None:
    """S3: a record stays as it is; only an error, and what was given up after it, is retired, and only by a retry."""
    retiring = change.call in ("retry", "resume") or any(isinstance(one, RunCheckpoint) and one.retire is not None for one in change.group)
    for key, row in change.before["step"].items():
        is_gone = key not in change.after["step"] and (change.call == "prune" or (retiring and row["outcome"] in (Outcome.ERROR, Outcome.GIVEN_UP)))
        is_resumed = change.call == "resume" and row["outcome"] == Outcome.ERROR
        assert is_gone or is_resumed or change.after["step"].get(key) == row, (key, row, change.after["step"].get(key))


def s5_s10_writes_are_of_the_current_claim(change: Change) -> None:
    """S5, S10: what is recorded carries the token under which its run is running; a write of an older claim changes nothing."""
    for table in ("step", "step_failure"):
        for key, row in change.new(table).items():
            run = change.before["run"][key[:1]]
            assert row["token"] == run["token"], (table, key)
            assert run["status"] == RunStatus.RUNNING or change.call in ("retry", "resume"), (table, key)
    stale = {one.hold.run_id for one in change.group} - {one.hold.run_id for one in change.group if _is_current(change, one)}
    for run_id in stale:
        assert change.before["run"][run_id,] == change.after["run"][run_id,], run_id


def _is_current(change: Change, one: Checkpoint) -> bool:
    run = change.before["run"][one.hold.run_id,]
    return bool(run["status"] == RunStatus.RUNNING and run["token"] == one.hold.token and one.generation == 0)


def s9_tokens_grow(change: Change) -> None:
    """S9: a token grows, by one, with each claim and with nothing else."""
    for was, is_now in change.runs():
        is_claimed = change.call == "claim" and was["status"] == RunStatus.PENDING and is_now["status"] == RunStatus.RUNNING
        assert is_now["token"] == was["token"] + is_claimed, (was, is_now)


def s11_claims_are_due(change: Change) -> None:
    """S11: only what nobody holds and whose time has come is claimed, and only by a worker that is alive."""
    for was, is_now in change.runs():
        if is_now["token"] > was["token"]:
            assert was["due_at"] <= change.now, was
            assert was["worker"] is None, was
            assert change.before["worker"][is_now["worker"],]["is_alive"], is_now


def s12_leases_only_grow(change: Change) -> None:
    """S12: a renewal changes one row that is alive, never to an earlier instant; what has ended stays as it is."""
    changed = [key for key, row in change.before["worker"].items() if key in change.after["worker"] and change.after["worker"][key] != row]
    assert len(changed) <= 1
    for key in changed:
        was, is_now = change.before["worker"][key], change.after["worker"][key]
        assert was["is_alive"], (was, is_now)
        assert is_now["lease_until"] >= was["lease_until"], (was, is_now)


def s13_refusals_are_told(change: Change) -> None:
    """S13: what was not answered as refused is there, and what was refused is not."""
    for one in change.group:
        run = change.after["run"][one.hold.run_id,]
        if isinstance(one, StepCheckpoint):
            row = change.new("step").get(call_of(one.hold.run_id, one.record.key))
            is_there = row is not None and row["seq"] == one.record.seq
            is_retired = any(isinstance(other, RunCheckpoint) and other.retire is not None and other.hold == one.hold for other in change.kept)
        elif isinstance(one, FailureCheckpoint):
            is_there, is_retired = (*call_of(one.hold.run_id, one.failure.key), one.failure.attempt) in change.new("step_failure"), False
        else:
            is_there, is_retired = _is_current(change, one) and run["status"] != RunStatus.RUNNING, False
        assert is_there == (one not in change.refused) or is_retired, one


def s14_nobody_sleeps_through_a_signal(change: Change) -> None:
    """S14: a run that is parked has seen every kept signal on its topics that is delivered; and what one hears skips nothing that is kept."""
    for (run_id, *_), wait in change.after["wait"].items():
        if wait["topic"] is not None and change.after["run"][run_id,]["status"] == RunStatus.WAITING:
            missed = [key for key, one in _kept(change, wait["topic"]).items() if one["is_delivered"] and one["number"] > wait["after"]]
            assert not missed, (run_id, wait, missed)
    for (run_id, topic), row in change.after["cursor"].items():
        seen = change.before["cursor"].get((run_id, topic), {"number": 0})["number"]
        between = {one["number"] for one in _kept(change, topic).values() if one["number"] and seen < one["number"] <= row["number"]}
        heard = {one.heard[1] for one in change.kept if isinstance(one, StepCheckpoint) and one.heard and (one.hold.run_id, one.heard[0]) == (run_id, topic)}
        assert row["number"] == seen or between <= heard, (run_id, topic, seen, between, heard)


def _kept(change: Change, topic: str) -> dict[Any, dict[str, Any]]:
    signals = change.after["signal"].items()
    return {key: one for key, one in signals if one["topic"] == topic and (one["expires_at"] is None or one["expires_at"] > change.now)}


def s15_one_order(change: Change) -> None:
    """S15: a later send has the greater number, a number never changes, and the numbers that a run gets on a topic strictly increase."""
    numbered = sorted((one for one in change.after["signal"].values() if one["number"] is not None), key=lambda one: int(one["number"]))
    for earlier, later in pairwise(numbered):
        assert earlier["sent_at"] <= later["sent_at"], (earlier, later)
        assert earlier["number"] < later["number"], (earlier, later)
    for key, one in change.before["signal"].items():
        assert one["number"] is None or key not in change.after["signal"] or change.after["signal"][key]["number"] == one["number"], key
    for one in change.kept:
        if isinstance(one, StepCheckpoint) and one.heard is not None:
            place = one.hold.run_id, one.heard[0]
            assert one.heard[1] > change.before["cursor"].get(place, {"number": 0})["number"], one
            assert change.after["cursor"][place]["number"] >= one.heard[1], one


def s16_a_time_out_is_over(change: Change) -> None:
    """S16: the outcome of a wait is one record, after which it waits no more; where that says that its time was over, it was."""
    for key, step in change.new("step").items():
        assert key not in change.after["wait"], key
        wait = change.before["wait"].get(key)
        if step["kind"] == RecordKind.WAIT and step["result"] == "null" and wait is not None:
            assert wait["due_at"] is not None, (key, wait)
            assert wait["due_at"] <= change.now, (key, wait)


def s17_one_signal_a_key(change: Change) -> None:
    """S17: of a key there is one signal on a topic, and what it says never changes."""
    keys = [(one["topic"], one["idempotency_key"]) for one in change.after["signal"].values() if one["idempotency_key"] is not None]
    assert len(keys) == len(set(keys)), keys
    for key, one in change.before["signal"].items():
        assert key not in change.after["signal"] or change.after["signal"][key]["payload"] == one["payload"], key


def s18_cancel_wins(change: Change) -> None:
    """S18: a run of which a cancel was accepted waits for nothing, and ends as canceled, or dead."""
    for was, is_now in change.runs():
        if was["cancel_requested_at"] is not None and not RunStatus(was["status"]).is_terminal:
            assert is_now["status"] in (RunStatus.PENDING, RunStatus.RUNNING, CANCELED, DEAD), (was, is_now)


def s19_nothing_after_the_end(change: Change) -> None:
    """S19: nothing is recorded for a run that is over."""
    for table in ("step", "step_failure", "wait", "cursor"):
        for key in change.new(table):
            assert not RunStatus(change.before["run"][key[:1]]["status"]).is_terminal or change.call in ("retry", "resume"), (table, key)


def s29_nothing_dangles(change: Change) -> None:
    """S29: no row without its run, nothing held or awaited by a run that is over, and a next action for every run that is not."""
    rows = change.after
    for table in ("step", "step_failure", "wait", "cursor", "run_body"):
        assert not [key for key in rows[table] if key[:1] not in rows["run"]], table
    named = [(key[0], wait["topic"]) for key, wait in rows["wait"].items() if wait["topic"] is not None]
    waiting = {run_id for run_id, _ in named}
    for (run_id,), run in rows["run"].items():
        status = RunStatus(run["status"])
        assert (run["worker"] is not None) == (status is RunStatus.RUNNING), run_id
        assert (run["due_at"] is not None) if status is RunStatus.PENDING else not status.is_terminal or run["due_at"] is None, run_id
        assert not status.is_terminal or not [key for key in rows["wait"] if key[0] == run_id], run_id
        assert status is not RunStatus.WAITING or run["due_at"] is not None or run_id in waiting, f"{run_id} waits for nothing that can come"
    for key, row in [*rows["signal"].items(), *rows["decision"].items()]:
        is_open = "state" not in row or row["state"] in ("open", "answered")
        owner = None if row["run"] is None else rows["run"].get((row["run"],))
        assert row["run"] is None or not is_open or (owner is not None and (not RunStatus(owner["status"]).is_terminal or owner["status"] == SUCCEEDED)), key
    assert not [topic for _, topic in named if decision_of(topic) is not None and (decision_of(topic),) not in rows["decision"]]


def s30_nothing_fires_early(change: Change) -> None:
    """S30: a run goes on when its instant has come, its deadline has, it is canceled, or somebody has signaled; a registered instant stays."""
    for key, was in change.before["run"].items():
        if key in change.after["run"] and (was["status"], change.after["run"][key]["status"]) == (RunStatus.WAITING, RunStatus.PENDING):
            has_come = [was[name] is not None and was[name] <= change.now for name in ("due_at", "deadline_at")]
            topics = [(wait["topic"], wait["after"]) for call, wait in change.before["wait"].items() if call[0] == key[0] and wait["topic"] is not None]
            news = [one for topic, after in topics for one in _kept(change, topic).values() if one["number"] and one["number"] > after]
            assert any(has_come) or news or change.after["run"][key]["cancel_requested_at"] is not None, (key, was)
    for call, wait in change.before["wait"].items():
        later = change.after["wait"].get(call)
        assert later is None or later["topic"] != wait["topic"] or later["due_at"] == wait["due_at"], (call, wait, later)


INVARIANTS: tuple[Callable[[Change], None], ...] = (
    s1_an_end_is_final,
    s2_changes_are_allowed,
    s3_a_record_never_changes,
    s5_s10_writes_are_of_the_current_claim,
    s9_tokens_grow,
    s11_claims_are_due,
    s12_leases_only_grow,
    s13_refusals_are_told,
    s14_nobody_sleeps_through_a_signal,
    s15_one_order,
    s16_a_time_out_is_over,
    s17_one_signal_a_key,
    s18_cancel_wins,
    s19_nothing_after_the_end,
    s29_nothing_dangles,
    s30_nothing_fires_early,
)
