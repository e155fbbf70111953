"""What must hold of what callers were answered: S21 and S22, and how many calls succeeded, V3 and L3. Pure: evidence in, violations out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

from .evidence import Evidence, Violation

OK_SHARE_MIN = 0.95
OK_SHARE_UNDER_FAULTS_MIN = 0.30
TAIL_CALLS = 5


class Asked(NamedTuple):
    """One run that a call asked for."""

    kind: str
    version: int
    key: str | None
    input: dict[str, Any]
    outcome: str
    error: str
    run: str | None
    created: bool


def asked_runs(evidence: Evidence) -> Iterator[Asked]:
    """Yield each run that was asked for, also those of `enqueue_many` one by one."""
    for call in evidence.calls:
        asked, value = call.asked, call.value or {}
        if call.op == "enqueue":
            yield Asked(asked["kind"], asked["version"], asked["key"], asked["input"], call.outcome, call.kind, value.get("run"), bool(value.get("created")))
        elif call.op == "enqueue_many":
            for place, given in enumerate(asked["inputs"]):
                key = asked["keys"][place] if asked["keys"] else None
                run, created = (value["runs"][place], value["created"][place]) if call.outcome == "ok" else (None, False)
                yield Asked(asked["kind"], asked["version"], key, given, call.outcome, call.kind, run, created)


def s21(evidence: Evidence) -> Iterator[Violation]:
    """An accepted call is one run with its input, a failed one none, an unknown one at most one; and nothing comes of nothing."""
    found: dict[str, list[str]] = defaultdict(list)
    for run, body in evidence.bodies.items():
        found[body["input"]["nonce"]].append(run)
    outcomes: dict[str, set[str]] = defaultdict(set)
    for asked in asked_runs(evidence):
        nonce = asked.input["nonce"]
        outcomes[nonce].add(asked.outcome)
        if len(found[nonce]) > 1:
            yield Violation("S21", f"one enqueue of {nonce} made {len(found[nonce])} runs: {found[nonce]}")
        if asked.outcome == "ok":
            yield from _accepted(evidence, asked)
    for nonce, runs in found.items():
        if runs and not outcomes[nonce] - {"fail"}:
            yield Violation("S21", f"run {runs[0]} is there, and its enqueue ({nonce}) {'failed' if outcomes[nonce] else 'was never called'}")


def _accepted(evidence: Evidence, asked: Asked) -> Iterator[Violation]:
    run = evidence.runs.get(asked.run or "")
    if run is None:
        yield Violation("S21", f"{asked.input['nonce']} was accepted as run {asked.run}, which is not there")
    elif evidence.bodies[run["id"]]["input"] != asked.input or (run["kind"], run["version"]) != (asked.kind, asked.version):
        yield Violation("S21", f"run {asked.run} was accepted with {asked.input} and has {evidence.bodies[run['id']]['input']}")


def s22(evidence: Evidence) -> Iterator[Violation]:
    """A key has one run, which all accepted callers were given; whoever asked with another input was told so."""
    by_key: dict[tuple[str, str], list[Asked]] = defaultdict(list)
    for asked in asked_runs(evidence):
        if asked.key is not None:
            by_key[asked.kind, asked.key].append(asked)
    runs: dict[tuple[str, str], list[str]] = defaultdict(list)
    for run, body in evidence.bodies.items():
        if body["idempotency_key"] is not None:
            runs[evidence.runs[run]["kind"], body["idempotency_key"]].append(run)
    owners = {(row["kind"], row["key"]): row["run"] for row in evidence.tables["run_key"]}
    for (kind, key), calls in by_key.items():
        if len(runs[kind, key]) > 1:
            yield Violation("S22", f"key {key} of {kind} has {len(runs[kind, key])} runs: {runs[kind, key]}")
        answers = {asked.run for asked in calls if asked.outcome == "ok"}
        if answers - {owners.get((kind, key))}:
            yield Violation("S22", f"key {key} of {kind} belongs to {owners.get((kind, key))}, and callers were given {sorted(map(str, answers))}")
        if sum(asked.created for asked in calls) > 1:
            yield Violation("S22", f"key {key} of {kind}: more than one caller was told that it made the run")
        yield from _conflicts(evidence, key, owners.get((kind, key)), calls)


def _conflicts(evidence: Evidence, key: str, owner: str | None, calls: list[Asked]) -> Iterator[Violation]:
    for asked in calls:
        is_other = owner is not None and evidence.bodies[owner]["input"] != asked.input
        if asked.error == "IdempotencyConflictError" and not is_other:
            yield Violation("S22", f"key {key}: a call with the run's own input was called a conflict")
        if asked.outcome == "ok" and is_other:
            yield Violation("S22", f"key {key}: a call with another input was accepted as {asked.run}")


def v3(evidence: Evidence) -> Iterator[Violation]:
    """Most calls succeed, or their unknown end is resolved by S21 and S22; and a good part succeeds while faults are under way."""
    faults = [line["at"] for line in evidence.faults()]
    calls = [call for call in evidence.calls if call.has_ended and call.kind != "IdempotencyConflictError"]
    disturbed = [call for call in calls if any(at <= call.ended_at and call.invoked_at <= at + 1.0 for at in faults)]
    for group, outcomes, share in ((calls, ("ok", "unknown"), OK_SHARE_MIN), (disturbed, ("ok",), OK_SHARE_UNDER_FAULTS_MIN)):
        count = sum(call.outcome in outcomes for call in group)
        if group and count < share * len(group):
            yield Violation("V3", f"of {len(group)} calls only {count} ended {' or '.join(outcomes)}")


def l3(evidence: Evidence) -> Iterator[Violation]:
    """After the last fault every client is served again."""
    tails: dict[str, list[str]] = defaultdict(list)
    for call in evidence.calls:
        if call.invoked_at > evidence.facts["healed_at"] + evidence.facts["recovery_seconds"] and call.kind != "IdempotencyConflictError" and call.has_ended:
            tails[call.name.rpartition("-")[0]].append(call.outcome)
    for client, outcomes in tails.items():
        if set(outcomes[-TAIL_CALLS:]) != {"ok"}:
            yield Violation("L3", f"the last calls of {client} ended {outcomes[-TAIL_CALLS:]}")
    if not tails:
        yield Violation("L3", "no client called after the last fault")
