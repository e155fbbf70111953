"""The checker of effects: S25 and S26, from the tables' own changes and the provider's own log; S23 and S27 are in `bank_checker`.

Pure: evidence in, violations out. It asks the engine nothing, imports nothing of it, and has its own table of allowed changes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .bank_checker import Violation

Row = dict[str, Any]
TOLERANCE = 0.05
"""Seconds by which two clocks of one machine, read in two processes, may disagree."""

ALLOWED: dict[str | None, set[str]] = {
    None: {"planned"},
    "planned": {"attempting", "failed"},
    "attempting": {"done", "planned", "unknown", "asked"},
    "unknown": {"done", "planned", "asked"},
    "asked": {"done", "planned", "failed"},
    "failed": {"planned", "done"},
    "done": set(),
}
"""From which state of an operation to which. A row may also change without changing its state."""


class Change(NamedTuple):
    """A committed change of a row; the numbers are the order of the commits wherever one transaction waits for the other."""

    id: int
    at: float
    place: str
    old: Row | None
    new: Row | None


@dataclass
class Evidence:
    """What is known of a world of effects. Rows have the ledger's own columns; instants are seconds since 1970."""

    changes: list[Change] = field(default_factory=list)
    """Of `operation`, `operation_attempt`, `decision`, `run` and `worker`."""
    requests: list[Row] = field(default_factory=list)
    """The provider's log."""

    def of(self, place: str) -> list[Change]:
        return [change for change in self.changes if change.place == place and change.new is not None]

    def lines(self, *events: str) -> list[Row]:
        return [line for line in self.requests if line["event"] in events]


def name_of(row: Row) -> tuple[str, str]:
    return row["effect"], row["key"]


def grouped(changes: Iterable[Change]) -> dict[tuple[str, str], list[Change]]:
    found: dict[tuple[str, str], list[Change]] = defaultdict(list)
    for change in sorted(changes):
        found[name_of(change.new or {})].append(change)
    return found


def check_effects(evidence: Evidence) -> list[Violation]:
    """Return everything of S25 and S26 that does not hold."""
    return [*s25_states(evidence), *s25_attempts(evidence), *s25_belief(evidence), *s26_requests(evidence), *s26_executions(evidence)]


# --- S25: plan, (attempt, (failure | unknown, reconcile))*, (attempt, result | abandon) -------------------------------------
def s25_states(evidence: Evidence) -> Iterator[Violation]:
    """Each operation begins planned, changes as it may, and has one result that never changes."""
    for name, changes in grouped(evidence.of("operation")).items():
        state, result = None, None
        for change in changes:
            assert change.new is not None  # see `of`
            new = change.new
            if new["status"] != state and new["status"] not in ALLOWED[state]:
                yield Violation("S25", f"operation {name} went from {state} to {new['status']}")
            if state == "done" and new["result"] != result:
                yield Violation("S25", f"the result of operation {name} became {new['result']!r} after it was {result!r}")
            if (new["status"] == "done") != (new["result"] is not None):
                yield Violation("S25", f"operation {name} is {new['status']} with the result {new['result']!r}")
            state, result = new["status"], new["result"]


def s25_attempts(evidence: Evidence) -> Iterator[Violation]:
    """An attempt begins under its run's current token, after the one before is known not to have been done; its number and token grow."""
    planned_at = {name: changes[0].id for name, changes in grouped(evidence.of("operation")).items()}
    for name, changes in grouped(evidence.of("operation_attempt")).items():
        last: Row | None = None
        for change in changes:
            assert change.new is not None  # see `of`
            new = change.new
            if change.old is not None:
                if new["number"] == (last or new)["number"]:
                    last = new
                continue
            if name not in planned_at or planned_at[name] > change.id:
                yield Violation("S25", f"attempt {new['number']} of {name} began without a plan")
            if new["number"] != (last["number"] if last else 0) + 1:
                yield Violation("S25", f"attempt {new['number']} of {name} came after {last and last['number']}")
            if last is not None and new["token"] <= last["token"]:
                yield Violation("S25", f"attempt {new['number']} of {name} has the token {new['token']} after {last['token']}")
            if last is not None and last["outcome"] != "not_done":
                yield Violation("S25", f"attempt {new['number']} of {name} began while the one before was {last['outcome'] or 'under way'}")
            current = token_at(evidence, new["run"], change.id)
            if new["run"] and current != new["run_token"]:
                yield Violation("S25", f"attempt {new['number']} of {name} began under token {new['run_token']} while the run's was {current}")
            last = new
        done = [change.new["number"] for change in changes if change.new and change.new["outcome"] == "done"]
        if len(set(done)) > 1:
            yield Violation("S25", f"attempts {sorted(set(done))} of {name} were all recorded as done")


def token_at(evidence: Evidence, run: str, change_id: int) -> int | None:
    """Return the token that a run had when a change was made."""
    token = None
    for change in evidence.of("run"):
        if change.new and change.new["id"] == run and change.id < change_id:
            token = change.new["token"]
    return token


def s25_belief(evidence: Evidence) -> Iterator[Violation]:
    """An attempt of which nobody knew is taken for not done only after somebody was asked, and a reconciler's word not too early."""
    for name, changes in grouped(evidence.of("operation_attempt")).items():
        for change in changes:
            old, new = change.old, change.new
            if old is None or new is None or new["outcome"] != "not_done" or old["outcome"] == "not_done":
                continue
            which = f"attempt {new['number']} of {name}"
            looks = [
                line
                for line in evidence.lines("looked")
                if line["key"] == new["key"] and line["attempt"] == new["number"] and line["at"] <= change.at + TOLERANCE
            ]
            if is_answered(evidence, new, change.at) or (has_said_so_itself(evidence, new) and not looks):
                continue
            believable = believable_at(evidence, new)
            if not looks:
                yield Violation("S25", f"{which} was taken for not done, and nobody had been asked")
            elif not any(line["word"] == "revoke" or line["at"] >= believable - TOLERANCE for line in looks):
                last = max(line["at"] for line in looks)
                yield Violation("S25", f"{which} was taken for not done by what was seen {believable - last:.2f} s before that could be believed")


def has_said_so_itself(evidence: Evidence, attempt: Row) -> bool:
    """Whether the attempt itself could tell that nothing was done: its order was rejected, or its connection was refused."""
    mine = [line for line in evidence.requests if line.get("key") == attempt["key"] and line.get("attempt") == attempt["number"]]
    is_rejected = any(line["event"] == "answered" and "error" in line["answer"] for line in mine)
    has_arrived = any(line["event"] == "arrived" for line in mine)
    return attempt["error"] is not None and (is_rejected or not has_arrived)


def answers(evidence: Evidence, key: str) -> list[Row]:
    """Return what people decided about an operation of this key, and about which attempt."""
    last = {change.new["id"]: change.new for change in sorted(evidence.of("decision")) if change.new}
    return [decision for decision in last.values() if decision["about"]["key"] == key and decision["answer"] is not None]


def is_answered(evidence: Evidence, attempt: Row, at: float) -> bool:
    """Whether a person had said that this attempt was not done."""
    mine = [answer for answer in answers(evidence, attempt["key"]) if answer["about"]["attempt"] == attempt["number"]]
    return any(answer["answer"] in ("again", "fail") and answer["answered_at"] <= at + TOLERANCE for answer in mine)


def believable_at(evidence: Evidence, attempt: Row) -> float:
    """Return from when "not done" may be believed: time-out, or proven death, and `settle` more."""
    deaths = [
        change.new["ended_at"]
        for change in evidence.of("worker")
        if change.new and change.new["id"] == attempt["worker"] and change.new["end"] == "dead" and change.new["ended_at"] is not None
    ]
    began = attempt["started_at"]
    return float(min([began + attempt["timeout"], *(max(died, began) for died in deaths)]) + attempt["settle"])


# --- S26: nothing is sent without a plan and an attempt; what is executed --------------------------------------------------
def s26_requests(evidence: Evidence) -> Iterator[Violation]:
    """When an order arrives its attempt is committed, and is the last; one name has one provider key."""
    keys: dict[str, set[str]] = defaultdict(set)
    for line in evidence.lines("arrived"):
        which = f"order {line['request']} of {line['name']}"
        keys[line["name"]].add(line["key"])
        seen = {(row["number"], row["token"]) for row in line["seen"] or []}
        if (line["attempt"], line["token"]) not in seen:
            yield Violation("S26", f"{which} arrived as attempt {line['attempt']} with token {line['token']}, and the ledger had {sorted(seen)}")
        elif line["attempt"] < max(number for number, _ in seen):
            yield Violation("S26", f"{which} arrived as attempt {line['attempt']} after attempt {max(number for number, _ in seen)} had begun")
    for name, found in keys.items():
        if len(found) > 1:
            yield Violation("S26", f"orders of {name} came under the keys {sorted(found)}")


def s26_executions(evidence: Evidence) -> Iterator[Violation]:
    """What was keyed is executed at most once, and once if it is done; what was not, once more for each time that a person said so."""
    executed: dict[tuple[str, bool], list[Row]] = defaultdict(list)
    for line in evidence.lines("executed"):
        executed[line["key"], line["is_keyed"]].append(line)
    for (key, is_keyed), lines in executed.items():
        again = 0 if is_keyed else sum(answer["answer"] == "again" for answer in answers(evidence, key))
        if len(lines) > 1 + again:
            how = "keyed" if is_keyed else f"not keyed, said to be repeated {again} times"
            yield Violation("S26", f"the orders of key {key} ({how}) were executed {len(lines)} times, as attempts {[line['attempt'] for line in lines]}")
    for name, changes in grouped(evidence.of("operation")).items():
        row = changes[-1].new or {}
        is_told = any(answer["answer"] == "done" for answer in answers(evidence, name[1]))
        if row["status"] == "done" and not is_told and not any(key == name[1] for key, _ in executed):
            yield Violation("S26", f"operation {name} is done, and the provider never executed it")
