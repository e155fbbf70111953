"""What must hold at the end, S29, and that everything came to an end in time: L1, L4, L8; and that faults landed at all, V1.

Pure: evidence in, violations out.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

from .evidence import TERMINAL, Evidence, Violation

WATCH_SECONDS = 1.5
"""How often a worker looks at the others."""
IDLE_TRANSACTIONS_MAX = {("postgres", "the worker"): 2.5, ("postgres", "the wire"): 2.5, ("sqlite", "the worker"): 4.5}
"""A second, by who counts: two are promised, and a window of eight seconds catches up to four more by chance. On SQLite each
renewal of another worker changes the file, and so wakes whoever watches it, who looks twice: nothing tells what has changed."""
IDLE_CPU_SHARE_MAX = 0.06
LANDED_A_MINUTE: dict[str, dict[str, float]] = {
    "postgres": {
        "kill_executor": 2,
        "kill_client": 1,
        "freeze_executor": 1,
        "restart_server": 1,
        "terminate_backends": 1,
        "black_hole": 1,
        "cuts at a commit": 2,
        "takeovers": 2,
        "refused writes": 0.5,
        "unknown commits": 2,
        "outages": 1,
        "cancels that won": 1,
        "conflicts": 1,
    },
    "sqlite": {
        "kill_executor": 3,
        "kill_client": 1,
        "freeze_executor": 1,
        "hold_lock": 2,
        "kill_holder": 1,
        "takeovers": 2,
        "refused writes": 0.5,
        "cancels that won": 1,
        "conflicts": 1,
    },
}
"""What a trial must have met, for each minute; a trial of less than a minute needs as much as one of a minute."""


def s29(evidence: Evidence) -> Iterator[Violation]:
    """Nothing dangles: rows refer to runs, runs to bodies, what is over holds nothing, and what lives has a next action."""
    runs = evidence.runs
    for name in ("step", "step_failure", "wait", "activity", "run_body"):
        for row in evidence.tables[name]:
            if row["run"] not in runs:
                yield Violation("S29", f"a row of {name} belongs to run {row['run']}, which is not there")
    for name in ("wait", "activity"):
        for row in evidence.tables[name]:
            if runs.get(row["run"], {}).get("status") in TERMINAL:
                yield Violation("S29", f"run {row['run']} is over and has a row of {name}: {row['name']}")
    for name, columns in (("step", ("run", "generation", "path", "name", "number")), ("run", ("id",)), ("run_key", ("kind", "key"))):
        for place, count in Counter(tuple(row[column] for column in columns) for row in evidence.tables[name]).items():
            if count > 1:
                yield Violation("S29", f"{name} has {count} rows of {place}")
    for row in evidence.tables["run_key"]:
        run = runs.get(row["run"])
        if run is None or row["ended_status"] != (run["status"] if run["status"] in TERMINAL else None):
            yield Violation("S29", f"key {row['key']} says {row['ended_status']}, and its run {row['run']} is {run and run['status']}")
    for run in runs.values():
        yield from _half_run(evidence, run)
    yield from (Violation("S29", f"the database's own check: {text}") for text in evidence.facts.get("self_check", ()))


def _half_run(evidence: Evidence, run: dict[str, Any]) -> Iterator[Violation]:
    if run["id"] not in evidence.bodies:
        yield Violation("S29", f"run {run['id']} has no body")
    is_over = run["status"] in TERMINAL
    if is_over != (run["finished_at"] is not None) or (is_over and (run["worker"] is not None or run["due_at"] is not None)):
        yield Violation("S29", f"run {run['id']} is {run['status']} with worker {run['worker']}, due {run['due_at']}, finished {run['finished_at']}")
    if run["status"] in ("pending", "waiting") and (run["due_at"] is None or run["worker"] is not None):
        yield Violation("S29", f"run {run['id']} is {run['status']}, due {run['due_at']}, held by {run['worker']}")
    if run["status"] == "running" and run["worker"] not in {row["id"] for row in evidence.tables["worker"]}:
        yield Violation("S29", f"run {run['id']} is held by worker {run['worker']}, which is not there")


def l1(evidence: Evidence) -> Iterator[Violation]:
    """Every run is over within the time that was given after the last fault."""
    for run in evidence.runs.values():
        if run["status"] not in TERMINAL:
            recent = list(evidence.run_changes.get(run["id"], ()))[-3:]
            path = "; ".join(f"{change.new['status']} (token {change.new['token']}) at {change.at:.2f}" for change in recent if change.new)
            yield Violation("L1", f"run {run['id']} ({run['kind']}) is {run['status']} after {evidence.facts['settle_seconds']} s of rest: {path}")


def l4(evidence: Evidence) -> Iterator[Violation]:
    """What a killed worker held is taken over within its lease, a look and a second, counted from the last disturbance before that."""
    bound = evidence.facts["lease"] + WATCH_SECONDS + 1.0 + evidence.facts["machine_seconds"]
    disturbed = [line["at"] for line in evidence.fault_lines if line["event"] in ("fault", "thawed", "healed", "started")]
    for line in evidence.fault_lines:
        if line["event"] == "exited" and line["code"] == -9:
            for run, change in _held(evidence, line["name"], line["at"]):
                let_go_at = change.at if change is not None else math.inf
                since = max([line["at"], *(at for at in disturbed if line["at"] <= at <= let_go_at)])
                if min(let_go_at, evidence.facts["over_at"]) - since > bound:
                    yield Violation(
                        "L4", f"run {run} of {line['name']}, killed, was let go {let_go_at - since:.1f} s after the last disturbance; bound {bound:.1f} s"
                    )


def _held(evidence: Evidence, name: str, at: float) -> Iterator[tuple[str, Any]]:
    """Yield what the worker of this name held at an instant, with the change that let it go."""
    workers = {worker for worker, changes in evidence.worker_changes.items() if changes[0].new and changes[0].new["name"] == name}
    for run, changes in evidence.run_changes.items():
        before = [change for change in changes if change.at <= at]
        if before and before[-1].new and before[-1].new["status"] == "running" and before[-1].new["worker"] in workers:
            after = [change for change in changes if change.at > at and change.new and change.new["worker"] != before[-1].new["worker"]]
            yield run, after[0] if after else None


def l8(evidence: Evidence) -> Iterator[Violation]:
    """An idle worker asks at most two queries a second, and needs next to no processor."""
    for idle in evidence.facts.get("idle", ()):
        if idle["queries_a_second"] > IDLE_TRANSACTIONS_MAX[evidence.facts["database"], idle["counted_by"]]:
            yield Violation("L8", f"an idle worker had {idle['queries_a_second']:.2f} transactions a second ({idle['counted_by']})")
        if idle["cpu_share"] > IDLE_CPU_SHARE_MAX:
            yield Violation("L8", f"an idle worker used {idle['cpu_share']:.1%} of a processor")


def b01(evidence: Evidence) -> Iterator[Violation]:
    """A worker that has started ends only when it is told to, or killed."""
    asked = {line["child"] for line in evidence.faults("stop_executor")} | {line["child"] for line in evidence.fault_lines if line["event"] == "ended"}
    started = {line["pid"] for line in evidence.lines("worker_started")}
    for line in evidence.fault_lines:
        if line["event"] == "exited" and line["code"] != -9 and line["child"] in started - asked:
            yield Violation("B01", f"{line['name']} ended by itself with {line['code']}; its log is {line['name']}.log")


def landed(evidence: Evidence) -> Counter[str]:
    """Count what happened, by the faults' own proofs and by what the engine and the database say."""
    found = Counter(line["fault"] for line in evidence.faults())
    found["cuts at a commit"] = sum(found[name] for name in ("cut_before", "cut_after", "cut_held", "cut_enqueue"))
    found["takeovers"] = sum(
        bool(change.old and change.new and change.new["recoveries"] > change.old["recoveries"]) for change in evidence.changes if change.place == "run"
    )
    found["refused writes"] = len(evidence.lines("write_refused", "lease_lost"))
    found["unknown commits"] = len(evidence.lines("commit_unknown"))
    found["outages"] = len(evidence.lines("store_unavailable"))
    found["false or true silence"] = sum(row["end"] == "silent" for row in evidence.tables["worker"])
    found["deaths proven"] = sum(row["end"] == "dead" for row in evidence.tables["worker"])
    found["cancels that won"] = sum(run["status"] == "canceled" for run in evidence.runs.values())
    found["conflicts"] = sum(call.kind == "IdempotencyConflictError" for call in evidence.calls)
    found["calls"] = len(evidence.calls)
    found["calls of unknown end"] = sum(call.outcome == "unknown" for call in evidence.calls)
    found["runs"] = len(evidence.runs)
    found["steps begun"] = len(evidence.lines("step_begun"))
    return found


def v1(evidence: Evidence) -> Iterator[Violation]:
    """Each kind of fault landed at least as often as was planned: a trial without them proves nothing."""
    found = landed(evidence)
    minutes = max(evidence.facts["seconds"] / 60, 1.0)
    for name, count in LANDED_A_MINUTE[evidence.facts["database"]].items():
        if found[name] < math.ceil(count * minutes):
            yield Violation("V1", f"no evidence: {name} happened {found[name]} times, at least {math.ceil(count * minutes)} are needed")
