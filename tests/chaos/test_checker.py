"""The checker against crafted evidence: where all holds it finds nothing, and each thing that is changed breaks its invariant."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from .checker import LIVENESS, SAFETY, violations
from .checks_calls import v3
from .checks_end import v1
from .crafted import NEXT, OTHER, RUN, WORKER, healthy
from .evidence import Change, Evidence

Spoil = Callable[[Evidence], None]
CHECKS = (*SAFETY, *LIVENESS, v3)


def changes_of(evidence: Evidence, place: str, **values: Any) -> list[int]:
    """Where the changes of a table are whose new row has these values."""
    return [
        number
        for number, change in enumerate(evidence.changes)
        if change.place == place and change.new and all(change.new.get(name) == value for name, value in values.items())
    ]


def alter(evidence: Evidence, number: int, *, old: dict[str, Any] | None = None, **values: Any) -> None:
    change = evidence.changes[number]
    evidence.changes[number] = change._replace(new={**(change.new or {}), **values}, old={**(change.old or {}), **old} if old else change.old)


def insert(evidence: Evidence, place: str, at: float, old: dict[str, Any] | None, new: dict[str, Any] | None) -> None:
    evidence.changes.append(Change(len(evidence.changes) + 1, at, place, old, new))


def last(evidence: Evidence, place: str, **values: Any) -> dict[str, Any]:
    return copy.deepcopy(evidence.changes[changes_of(evidence, place, **values)[-1]].new or {})


def line(evidence: Evidence, event: str, **values: Any) -> dict[str, Any]:
    lines = [*evidence.worker_lines, *evidence.client_lines, *evidence.fault_lines]
    return next(each for each in lines if each["event"] == event and all(each.get(name) == value for name, value in values.items()))


# --- what is changed -------------------------------------------------------------------------------------------------------
def ends_twice(evidence: Evidence) -> None:
    over = last(evidence, "run", id=RUN)
    insert(evidence, "run", 16.0, over, {**over, "status": "failed"})


def skips_running(evidence: Evidence) -> None:
    alter(evidence, changes_of(evidence, "run", id=RUN, status="succeeded")[0], old={"status": "waiting"})


def record_is_replaced(evidence: Evidence) -> None:
    record = last(evidence, "step", name="compute")
    insert(evidence, "step", 14.5, record, record)


def record_is_removed(evidence: Evidence) -> None:
    insert(evidence, "step", 14.5, last(evidence, "step", name="compute"), None)


def finished_step_begins_again(evidence: Evidence) -> None:
    evidence.worker_lines.append({**line(evidence, "step_begun", key="add", token=1), "token": 2, "file": "worker1-1", "at": 13.2})


def handed_before_the_commit(evidence: Evidence) -> None:
    line(evidence, "handed", key="compute")["at"] = 13.0


def handed_without_a_record(evidence: Evidence) -> None:
    evidence.tables["step"] = [row for row in evidence.tables["step"] if row["name"] != "compute"]
    evidence.changes = [change for change in evidence.changes if not (change.place == "step" and change.new and change.new["name"] == "compute")]


def handed_another_branch(evidence: Evidence) -> None:
    line(evidence, "handed", key="add:1")["by"] = "by-compute-2"


def record_of_a_stranger(evidence: Evidence) -> None:
    line(evidence, "step_begun", key="compute")["token"] = 1


def recorded_in_the_wrong_order(evidence: Evidence) -> None:
    first, second = changes_of(evidence, "step", name="add", number=1)[0], changes_of(evidence, "step", name="compute")[0]
    evidence.changes[first] = evidence.changes[first]._replace(id=second + 1)
    evidence.changes[second] = evidence.changes[second]._replace(id=first + 1)


def begun_twice_in_a_claim(evidence: Evidence) -> None:
    evidence.worker_lines.append(dict(line(evidence, "step_begun", key="compute")))


def attempt_without_a_failure(evidence: Evidence) -> None:
    line(evidence, "step_begun", by="by-cut-off")["attempt"] = 2


def another_result(evidence: Evidence) -> None:
    evidence.tables["run_body"][0]["output"][2][1] = 5


def token_comes_back(evidence: Evidence) -> None:
    alter(evidence, changes_of(evidence, "run", id=RUN, token=2)[0], token=1)


def written_under_an_old_token(evidence: Evidence) -> None:
    alter(evidence, changes_of(evidence, "step", name="compute")[0], token=1)


def written_by_an_ended_worker(evidence: Evidence) -> None:
    worker = last(evidence, "worker", id=NEXT)
    number = changes_of(evidence, "step", name="compute")[0]
    evidence.changes.insert(number, Change(number, 13.9, "worker", worker, {**worker, "is_alive": 0, "end": "stopped"}))


def claimed_while_held(evidence: Evidence) -> None:
    alter(evidence, changes_of(evidence, "run", id=RUN, token=2)[0], old={"status": "running"})


def claimed_too_early(evidence: Evidence) -> None:
    alter(evidence, changes_of(evidence, "run", id=RUN, token=1)[0], old={"due_at": 11.0})


def taken_from_the_living(evidence: Evidence) -> None:
    evidence.changes = [change for change in evidence.changes if not (change.place == "worker" and change.new and change.new["end"] == "dead")]


def dead_too_early(evidence: Evidence) -> None:
    alter(evidence, changes_of(evidence, "run", id=RUN, status="pending", recoveries=1)[0], status="dead")


def silent_too_early(evidence: Evidence) -> None:
    alter(evidence, changes_of(evidence, "worker", id=WORKER, is_alive=0)[0], old={"lease_until": 13.5}, end="silent", lease_until=13.5)


def dead_without_proof(evidence: Evidence) -> None:
    evidence.fault_lines = []


def executed_by_another_version(evidence: Evidence) -> None:
    line(evidence, "declares")["tasks"] = [["chain", 2]]


def renewed_after_the_end(evidence: Evidence) -> None:
    ended = last(evidence, "worker", id=WORKER)
    insert(evidence, "worker", 15.0, ended, {**ended, "beat": 3, "lease_until": 17.0})


def lease_moves_backwards(evidence: Evidence) -> None:
    alter(evidence, changes_of(evidence, "worker", id=WORKER, beat=2)[0], lease_until=11.5)


def refusal_is_called_success(evidence: Evidence) -> None:
    evidence.worker_lines.append({**line(evidence, "run_ended"), "file": "worker0-1"})


def late_finisher_is_not_told(evidence: Evidence) -> None:
    cut_off = line(evidence, "step_begun", by="by-cut-off")
    evidence.worker_lines += [{**cut_off, "event": "step_ended", "at": 20.0}, {**cut_off, "event": "something", "at": 30.0}]


def cancel_loses(evidence: Evidence) -> None:
    line(evidence, "invoke", op="cancel")["run"] = RUN


def recorded_after_the_end(evidence: Evidence) -> None:
    record = last(evidence, "step", name="compute")
    evidence.changes = [change for change in evidence.changes if not (change.place == "step" and change.new and change.new["name"] == "compute")]
    insert(evidence, "step", 14.3, None, record)


def canceled_run_begins(evidence: Evidence) -> None:
    number = changes_of(evidence, "run", id=RUN, token=1)[-1]
    row = evidence.changes[number].new or {}
    evidence.changes.insert(number, Change(evidence.changes[number].id, 13.0, "run", row, {**row, "cancel_requested_at": 13.0}))


def accepted_run_is_lost(evidence: Evidence) -> None:
    line(evidence, "ok", call="client0-1-2")["value"]["runs"] = ["run-3"]


def enqueue_makes_two(evidence: Evidence) -> None:
    evidence.tables["run_body"][1]["input"]["nonce"] = "n1"


def failed_enqueue_is_there(evidence: Evidence) -> None:
    line(evidence, "ok", call="client0-1-2")["event"] = "fail"


def key_has_another_owner(evidence: Evidence) -> None:
    evidence.tables["run_key"][0]["run"] = OTHER


def wrong_conflict(evidence: Evidence) -> None:
    evidence.client_lines += [
        {**line(evidence, "invoke", call="client0-1-1"), "call": "client0-1-4"},
        {**line(evidence, "ok", call="client0-1-1"), "event": "fail", "call": "client0-1-4", "kind": "IdempotencyConflictError"},
    ]


def wait_is_left(evidence: Evidence) -> None:
    evidence.tables["wait"].append({"run": OTHER, "name": "sleep"})


def step_without_a_run(evidence: Evidence) -> None:
    evidence.tables["step"].append({**evidence.tables["step"][0], "run": "run-9"})


def body_is_missing(evidence: Evidence) -> None:
    del evidence.tables["run_body"][0]


def file_is_damaged(evidence: Evidence) -> None:
    evidence.facts["self_check"] = ["row 7 is missing from index run_claim"]


def run_never_ends(evidence: Evidence) -> None:
    evidence.tables["run"][0].update(status="waiting", due_at=99.0, finished_at=None)


def callers_are_not_served(evidence: Evidence) -> None:
    line(evidence, "ok", call="client0-1-9")["event"] = "unknown"


def orphan_waits_too_long(evidence: Evidence) -> None:
    for number in changes_of(evidence, "run", id=RUN, status="pending", recoveries=1):
        evidence.changes[number] = evidence.changes[number]._replace(at=30.0)


def idle_worker_is_busy(evidence: Evidence) -> None:
    evidence.facts["idle"][0] = {"queries_a_second": 40.0, "cpu_share": 0.3, "counted_by": "the worker"}


def worker_gives_up(evidence: Evidence) -> None:
    evidence.worker_lines.append({"file": "worker1-1", "event": "worker_started", "at": 9.0, "pid": 101})
    evidence.fault_lines.append({"event": "exited", "at": 40.0, "name": "worker1-1", "slot": "worker1", "child": 101, "code": 1})


def calls_fail(evidence: Evidence) -> None:
    for call in ("client0-1-1", "client0-1-2"):
        line(evidence, "ok", call=call)["event"] = "fail"


SPOILED: dict[str, tuple[Spoil, ...]] = {
    "S1": (ends_twice,),
    "S2": (skips_running,),
    "S3": (record_is_replaced, record_is_removed, finished_step_begins_again),
    "S4": (handed_before_the_commit, handed_without_a_record, handed_another_branch),
    "S5": (record_of_a_stranger,),
    "S6": (recorded_in_the_wrong_order,),
    "S7": (begun_twice_in_a_claim, attempt_without_a_failure),
    "S8": (another_result,),
    "S9": (token_comes_back,),
    "S10": (written_under_an_old_token, written_by_an_ended_worker),
    "S11": (claimed_while_held, claimed_too_early, taken_from_the_living, dead_too_early, silent_too_early, dead_without_proof, executed_by_another_version),
    "S12": (renewed_after_the_end, lease_moves_backwards),
    "S13": (refusal_is_called_success, late_finisher_is_not_told),
    "S18": (cancel_loses,),
    "S19": (recorded_after_the_end, canceled_run_begins),
    "S21": (accepted_run_is_lost, enqueue_makes_two, failed_enqueue_is_there),
    "S22": (key_has_another_owner, wrong_conflict),
    "S29": (wait_is_left, step_without_a_run, body_is_missing, file_is_damaged),
    "L1": (run_never_ends,),
    "L3": (callers_are_not_served,),
    "L4": (orphan_waits_too_long,),
    "L8": (idle_worker_is_busy,),
    "B01": (worker_gives_up,),
    "V3": (calls_fail,),
}
CASES = [pytest.param(invariant, spoil, id=f"{invariant}-{spoil.__name__}") for invariant, spoils in SPOILED.items() for spoil in spoils]


def test_nothing_is_found_where_everything_holds():
    """The checker has no objection to a sound trial."""
    assert violations(healthy(), CHECKS) == []


@pytest.mark.parametrize(("invariant", "spoil"), CASES)
def test_what_breaks_an_invariant_is_named_by_it(invariant, spoil):
    """Each fault in the evidence is found, under the name of its invariant."""
    evidence = healthy()
    spoil(evidence)
    assert invariant in {violation.invariant for violation in violations(evidence, CHECKS)}


def test_every_check_has_been_seen_to_fail():
    """No check of the checker is without evidence that it objects to."""
    assert {check.__name__.upper() for check in CHECKS} == set(SPOILED)


@pytest.mark.parametrize("database", ["postgres", "sqlite"])
def test_a_trial_without_faults_proves_nothing(database):
    """Where faults did not land the trial fails as one without evidence, however sound everything was."""
    evidence = healthy()
    evidence.facts["database"] = database
    assert {violation.invariant for violation in v1(evidence)} == {"V1"}
