"""What must hold of claims, leases and guarded writes: S9 to S13. Pure: evidence in, violations out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .evidence import TOLERANCE, Change, Evidence, Violation
from .journal import Line

DISTURBED_SECONDS = 12.0
"""After a broken connection: the time in which a lost lock may be taken for a death."""
ON_WIRES = ("terminate_backends", "reset_wires", "black_hole", "restart_server", "cut_before", "cut_after", "cut_held", "cut_enqueue")

ON_PROCESSES = ("freeze_executor", "kill_executor", "stop_executor")

LOSSES_OF_THE_DEAD = 5
"""Two that make a run a suspect, and three strikes."""


def s9(evidence: Evidence) -> Iterator[Violation]:
    """Tokens only grow, and a claim always brings a new one."""
    for run, changes in evidence.run_changes.items():
        for change in changes:
            if change.old is None or change.new is None:
                continue
            before, after = change.old["token"], change.new["token"]
            is_claim = change.new["status"] == "running" and (change.old["status"] != "running" or change.old["worker"] != change.new["worker"])
            if after < before or (is_claim and after == before) or (not is_claim and after != before and change.new["status"] != "running"):
                yield Violation("S9", f"run {run}: token {before} became {after} from {change.old['status']} to {change.new['status']} (change {change.id})")


def s10(evidence: Evidence) -> Iterator[Violation]:
    """A record or a failure is written only by the current claim of a running run, whose worker has not been ended."""
    runs: dict[str, dict[str, Any]] = {}
    alive: dict[int, bool] = {}
    for change in evidence.changes:
        row = change.new
        if row is None:
            continue
        if change.place == "run":
            runs[row["id"]] = row
        elif change.place == "worker":
            alive[row["id"]] = bool(row["is_alive"])
        elif change.old is None and not row.get("is_retired"):
            run = runs.get(row["run"])
            if run is None:
                yield Violation("S10", f"a {change.place} was written for run {row['run']}, which is not there")
            elif (run["status"], run["token"]) != ("running", row["token"]):
                yield Violation(
                    "S10", f"run {row['run']}: a {change.place} of token {row['token']} was written while it was {run['status']} with {run['token']}"
                )
            elif not alive.get(run["worker"]):
                yield Violation("S10", f"run {row['run']}: a {change.place} was written by worker {run['worker']} after it was ended")


def s11(evidence: Evidence) -> Iterator[Violation]:
    """Only what is due and free is claimed, by who has its version; only who is silent or dead loses a run."""
    yield from _claims(evidence)
    yield from _takeovers(evidence)
    yield from _versions(evidence)
    for worker, changes in evidence.worker_changes.items():
        for change in changes:
            if change.old and change.new and change.old["is_alive"] and not change.new["is_alive"]:
                yield from _end_of_worker(evidence, worker, change)


def _claims(evidence: Evidence) -> Iterator[Violation]:
    for (run, token), change in evidence.claims.items():
        old = change.old
        if old is None:
            continue
        if old["status"] != "pending":
            yield Violation("S11", f"run {run} was claimed while it was {old['status']} (token {token})")
        elif old["due_at"] is None or old["due_at"] > change.at + TOLERANCE:
            yield Violation("S11", f"run {run} was claimed before it was due (token {token})")


def _takeovers(evidence: Evidence) -> Iterator[Violation]:
    alive: dict[int, bool] = {}
    for change in evidence.changes:
        if change.place == "worker" and change.new:
            alive[change.new["id"]] = bool(change.new["is_alive"])
        elif change.place == "run" and change.old and change.new:
            if change.new["recoveries"] > change.old["recoveries"] and alive.get(change.old["worker"]):
                yield Violation("S11", f"run {change.old['id']} was taken from worker {change.old['worker']}, which had not been ended")
            if change.new["status"] == "dead" and change.new["recoveries"] < LOSSES_OF_THE_DEAD:
                yield Violation("S11", f"run {change.old['id']} was called dead after {change.new['recoveries']} lost workers")


def _versions(evidence: Evidence) -> Iterator[Violation]:
    declared: dict[str, list[list[Any]]] = {}
    for line in evidence.worker_lines:
        if line["event"] == "declares":
            declared[line["file"]] = line["tasks"]
        elif line["event"] == "body_begun" and line["file"] in declared:
            run = evidence.runs[line["run"]]
            if [run["kind"], run["version"]] not in declared[line["file"]] or line["version"] != run["version"] or line["kind"] != run["kind"]:
                yield Violation(
                    "S11", f"run {line['run']} ({run['kind']} v{run['version']}) was executed by {line['file']} as {line['kind']} v{line['version']}"
                )


def _end_of_worker(evidence: Evidence, worker: int, change: Change) -> Iterator[Violation]:
    assert change.old is not None  # the caller has looked
    assert change.new is not None
    end = change.new["end"]
    if end == "silent" and change.old["lease_until"] > change.at + TOLERANCE:
        yield Violation("S11", f"worker {worker} was called silent {change.old['lease_until'] - change.at:.2f} s before its lease ended")
    if end == "dead" and not _may_be_dead(evidence, change.old["name"], change.at):
        yield Violation("S11", f"worker {worker} ({change.old['name']}) was called dead while its process lived and its wires were whole")


def _may_be_dead(evidence: Evidence, name: str, at: float) -> bool:
    """Its process was gone, frozen, or its connections had been broken a moment ago."""
    slot = name.rpartition("-")[0]
    for line in evidence.fault_lines:
        if line["event"] == "exited" and line["name"] == name and line["at"] <= at + 1.0:
            return True
        is_near = line["event"] == "fault" and line["landed"] and at - DISTURBED_SECONDS <= line["at"] <= at + 3.0
        if is_near and (line["fault"] in ON_WIRES or (line["fault"] in ON_PROCESSES and line["slot"] == slot)):
            return True
    return False


def s12(evidence: Evidence) -> Iterator[Violation]:
    """A renewal moves only a living worker's lease, and never to an earlier instant; who was ended stays so."""
    for worker, changes in evidence.worker_changes.items():
        for change in changes:
            old, new = change.old, change.new
            if old is None or new is None:
                continue
            if not old["is_alive"] and (new["is_alive"] or (old["lease_until"], old["beat"]) != (new["lease_until"], new["beat"])):
                yield Violation("S12", f"worker {worker} was renewed after it had been ended (change {change.id})")
            if new["lease_until"] < old["lease_until"] or new["beat"] < old["beat"]:
                yield Violation("S12", f"the lease of worker {worker} moved backwards (change {change.id})")


def s13(evidence: Evidence) -> Iterator[Violation]:
    """What a worker takes for written is there, and who went on under an old token was told."""
    tokens: dict[tuple[str, str], int] = {}
    for line in evidence.worker_lines:
        if line["event"] == "run_started":
            tokens[line["file"], line["run"]] = line["token"]
        elif line["event"] in ("run_ended", "run_parked"):
            token = tokens.get((line["file"], line["run"]))
            if token is not None and not _is_let_go(evidence, line["run"], token, line["status"]):
                yield Violation("S13", f"{line['file']} was told that run {line['run']} is {line['status']} by its token {token}, and it is not")
    yield from _untold(evidence)


def _is_let_go(evidence: Evidence, run: str, token: int, status: str) -> bool:
    return any(
        change.old and change.new and change.old["status"] == "running" and change.old["token"] == token and change.new["status"] == status
        for change in evidence.run_changes.get(run, ())
    )


def _untold(evidence: Evidence) -> Iterator[Violation]:
    """A step that ended after its run was claimed anew: since its own claim the process was told that it lost it, unless it ended first."""
    said: dict[str, list[Line]] = {}
    last: dict[str, float] = {}
    for line in evidence.worker_lines:
        last[line["file"]] = line["at"]
        if line["event"] in ("lease_lost", "write_refused", "run_told", "worker_started", "worker_stopped"):
            said.setdefault(line["file"], []).append(line)
    for line in evidence.lines("step_ended"):
        newer = evidence.claims.get((line["run"], line["token"] + 1))
        if newer is None or newer.at >= line["at"] or last[line["file"]] < line["at"] + 3:
            continue
        own = evidence.claims.get((line["run"], line["token"]))
        if not any(own is None or other["at"] >= own.at for other in said.get(line["file"], ())):
            yield Violation("S13", f"{line['file']} ended {line['key']} of run {line['run']} under the old token {line['token']} and was told nothing")
