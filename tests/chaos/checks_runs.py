"""What must hold of runs, records and steps: S1 to S8 and S18, S19. Pure: evidence in, violations out."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from .evidence import TERMINAL, TOLERANCE, Change, Evidence, Key, Violation
from .load import KEYS

PUBLISHED = {
    None: {"pending", "waiting"},
    "waiting": {"pending", "canceled", "failed"},
    "pending": {"running", "canceled", "failed"},
    "running": {"waiting", "pending", "succeeded", "failed", "canceled", "dead"},
}
"""The transition table of the documentation. Nobody retries or discards by hand here, so that what is over stays so."""


def transitions(changes: list[Change]) -> Iterator[tuple[Change, str | None, str]]:
    """Yield the changes of a run that change its status or its token, with the status before and after."""
    for change in changes:
        if change.new is not None and (change.old is None or (change.old["status"], change.old["token"]) != (change.new["status"], change.new["token"])):
            yield change, change.old["status"] if change.old else None, change.new["status"]


def s1(evidence: Evidence) -> Iterator[Violation]:
    """A run becomes terminal at most once, and stays what it became."""
    for run, changes in evidence.run_changes.items():
        ends = [new for _, old, new in transitions(changes) if new in TERMINAL]
        if len(ends) > 1:
            yield Violation("S1", f"run {run} ended {len(ends)} times: {ends}")
        for _, old, new in transitions(changes):
            if old in TERMINAL:
                yield Violation("S1", f"run {run} left {old} for {new}")


def s2(evidence: Evidence) -> Iterator[Violation]:
    """Every change of status is in the published table."""
    for run, changes in evidence.run_changes.items():
        for change, old, new in transitions(changes):
            if new not in PUBLISHED.get(old, ()):
                yield Violation("S2", f"run {run} went from {old} to {new} (change {change.id})")


def s3(evidence: Evidence) -> Iterator[Violation]:
    """A record is never replaced, and only a failed one is ever retired; a step with a record never runs again."""
    for (run, key), changes in evidence.record_changes.items():
        for change in changes:
            if change.old is not None and (change.new is not None or change.old["outcome"] == "result"):
                yield Violation("S3", f"the record of {key} of run {run} was {'replaced' if change.new else 'removed'} (change {change.id})")
        final = changes[-1].new
        if final is not None and final["kind"] == "step" and final["outcome"] != "given_up":
            for line in evidence.begins[run, key]:
                if (line["token"], line["attempt"]) > (final["token"], final["attempts"]):
                    yield Violation("S3", f"{key} of run {run} has a record of token {final['token']} and was begun again under {line['token']}")


def s4(evidence: Evidence) -> Iterator[Violation]:
    """What a body is handed is the committed record, and it was committed before."""
    for line in evidence.lines("handed", "handed_error"):
        run, key = place = line["run"], line["key"]
        inserts = [change for change in evidence.record_changes.get(place, ()) if change.old is None]
        record = evidence.records.get(place) or (inserts[-1].new if inserts and line["event"] == "handed_error" else None)
        if record is None:
            yield Violation("S4", f"run {run} was handed a result of {key} that is not recorded")
        elif line["event"] == "handed" and record["result"] != {"value": line["value"], "by": line["by"]}:
            yield Violation("S4", f"run {run} was handed {line['value']} by {line['by']} for {key}, and {record['result']} is recorded")
        elif line["event"] == "handed_error" and not any(change.new and change.new["outcome"] == "error" for change in inserts):
            yield Violation("S4", f"run {run} was handed a failure of {key}, and {record['outcome']} is recorded")
        elif inserts and line["at"] < inserts[0].at - TOLERANCE:
            yield Violation("S4", f"run {run} was handed {key} {inserts[0].at - line['at']:.3f} s before it was recorded")


def s5(evidence: Evidence) -> Iterator[Violation]:
    """A record is of an execution that began before it, under the token and in the attempt that the record names, and of its very result."""
    for (run, key), changes in evidence.record_changes.items():
        for change in changes:
            record = change.new
            if change.old is not None or record is None or record["kind"] != "step" or record["outcome"] == "given_up":
                continue
            fits = [line for line in evidence.begins[run, key] if (line["token"], line["attempt"]) == (record["token"], record["attempts"])]
            if not any(line["at"] <= change.at + TOLERANCE for line in fits):
                yield Violation(
                    "S5", f"the record of {key} of run {run}, token {record['token']}, attempt {record['attempts']}, has no body that began before it"
                )
            elif record["outcome"] == "result" and record["result"]["by"] not in {line["by"] for line in fits}:
                yield Violation("S5", f"the record of {key} of run {run} has the result of another execution: {record['result']['by']}")


def s6(evidence: Evidence) -> Iterator[Violation]:
    """What a branch asks for after something else is recorded after it."""
    branches: dict[tuple[str, str], list[str]] = defaultdict(list)
    for run, body in evidence.bodies.items():
        kind, version = evidence.runs[run]["kind"], evidence.runs[run]["version"]
        for key in KEYS[kind, version](body["input"]["number"]) or ():
            branches[run, key.partition("/")[0] if "/" in key else ""].append(key)
    for (run, _), keys in branches.items():
        found = [(key, evidence.record_changes[run, key][-1]) for key in keys if (run, key) in evidence.records and (run, key) in evidence.record_changes]
        for (first, before), (second, after) in itertools.pairwise(found):
            if before.id >= after.id:
                yield Violation("S6", f"run {run} recorded {second} before {first}")
            for line in evidence.begins[run, second]:
                if line["at"] < before.at - TOLERANCE and first not in ("fail_once", "refuse"):
                    yield Violation("S6", f"run {run} began {second} before {first} was recorded")


def s7(evidence: Evidence) -> Iterator[Violation]:
    """Within one claim an attempt of a step is begun once, and no more attempts are begun than failures allow."""
    failures: dict[Key, int] = defaultdict(int)
    for row in evidence.tables["step_failure"]:
        number = f":{row['number']}" if row["number"] else ""
        failures[row["run"], f"{row['path']}/{row['name']}{number}" if row["path"] else f"{row['name']}{number}"] += 1
    for (run, key), lines in evidence.begins.items():
        seen: set[tuple[int, int]] = set()
        for line in lines:
            if (line["token"], line["attempt"]) in seen:
                yield Violation("S7", f"attempt {line['attempt']} of {key} of run {run} was begun twice under token {line['token']}")
            seen.add((line["token"], line["attempt"]))
        if (attempts := max(line["attempt"] for line in lines)) > failures[run, key] + 1:
            yield Violation("S7", f"{key} of run {run} had {attempts} attempts with {failures[run, key]} failures recorded")


def s8(evidence: Evidence) -> Iterator[Violation]:
    """What a run returned follows from its records and its program."""
    for run, row in evidence.runs.items():
        if row["status"] not in ("succeeded", "failed"):
            continue
        body = evidence.bodies[run]
        keys = KEYS[row["kind"], row["version"]](body["input"]["number"])
        if (row["status"] == "failed") != (keys is None):
            yield Violation("S8", f"run {run} ({row['kind']} v{row['version']}) ended {row['status']}: {str(body['error'])[:300]}")
        elif keys is not None:
            records = [evidence.records.get((run, key)) for key in keys]
            expected = [[key, record["result"]["value"], record["result"]["by"]] if record else [key] for key, record in zip(keys, records, strict=True)]
            if body["output"] != expected:
                yield Violation("S8", f"run {run} ({row['kind']} v{row['version']}) returned {body['output']}, and its records are {expected}")


def s18(evidence: Evidence) -> Iterator[Violation]:
    """A cancel that was accepted wins; one that came too late says so."""
    for call in evidence.calls:
        if call.op != "cancel" or call.outcome != "ok":
            continue
        run, outcome = evidence.runs[call.asked["run"]], call.value["outcome"]
        if outcome in ("requested", "canceled") and run["status"] in ("succeeded", "failed"):
            yield Violation("S18", f"run {run['id']}: a cancel was answered {outcome}, and it is {run['status']}")
        if outcome == "already_over" and not (run["finished_at"] and run["finished_at"] <= call.ended_at + TOLERANCE):
            yield Violation("S18", f"run {run['id']}: a cancel was answered {outcome} before it was over")


def s19(evidence: Evidence) -> Iterator[Violation]:
    """Nothing is recorded after the end, and no body begins under a claim that is later than the cancel."""
    ends: dict[str, Change] = {}
    cancels: dict[str, Change] = {}
    for run, changes in evidence.run_changes.items():
        for change in changes:
            if change.new and change.new["status"] in TERMINAL:
                ends.setdefault(run, change)
            if change.new and change.new["cancel_requested_at"]:
                cancels.setdefault(run, change)
    for (run, key), changes in evidence.record_changes.items():
        late = [change for change in changes if change.old is None and run in ends and change.id > ends[run].id]
        if late:
            yield Violation("S19", f"{key} of run {run} was recorded after the run was over")
    for line in evidence.lines("step_begun", "body_begun"):
        claim = _claim_of(evidence, line)
        if claim is not None and line["run"] in cancels and claim.id > cancels[line["run"]].id:
            yield Violation("S19", f"run {line['run']} was canceled, claimed afterwards, and began {line.get('key', 'its body')}")


def _claim_of(evidence: Evidence, line: dict[str, Any]) -> Change | None:
    return evidence.claims.get((line["run"], line["token"])) if "token" in line else None
