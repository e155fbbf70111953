"""Evidence: everything that is known of a trial, read from its folder and put into order for the checker."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from .journal import Line, read_journal

TERMINAL = frozenset({"succeeded", "failed", "canceled", "dead"})
TOLERANCE = 0.05
"""Seconds by which two clocks of one machine, read in two processes, may disagree."""
Key = tuple[str, str]
"""A run and the text form of a step key."""


class Violation(NamedTuple):
    """An invariant that does not hold, and what shows it."""

    invariant: str
    what: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.what}"


class Change(NamedTuple):
    """A committed change of a row; for one row the numbers are the order of the commits."""

    id: int
    at: float
    place: str
    old: dict[str, Any] | None
    new: dict[str, Any] | None


@dataclass
class Call:
    """One call of a client."""

    name: str
    op: str
    asked: Line
    invoked_at: float
    outcome: str = "unknown"
    """`ok`, `fail` or `unknown`."""
    value: Any = None
    ended_at: float = float("inf")
    kind: str = ""
    """The class of the error."""

    @property
    def has_ended(self) -> bool:
        return self.ended_at != float("inf")


@dataclass
class Evidence:
    """What the logs and the tables say."""

    facts: dict[str, Any]
    """Of the trial: database, lease, when what began."""
    client_lines: list[Line] = field(default_factory=list)
    worker_lines: list[Line] = field(default_factory=list)
    """In each file in the order in which they were written."""
    fault_lines: list[Line] = field(default_factory=list)
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)

    # --- clients ---------------------------------------------------------------------------------------------------------------
    @cached_property
    def calls(self) -> list[Call]:
        calls: dict[str, Call] = {}
        for line in self.client_lines:
            if line["event"] == "invoke":
                calls[line["call"]] = Call(line["call"], line["op"], line, line["at"])
            elif line["event"] in ("ok", "fail", "unknown"):
                call = calls[line["call"]]
                call.outcome, call.value, call.ended_at, call.kind = line["event"], line.get("value"), line["at"], line.get("kind", "")
        return list(calls.values())

    # --- runs ------------------------------------------------------------------------------------------------------------------
    @cached_property
    def runs(self) -> dict[str, dict[str, Any]]:
        return {row["id"]: row for row in self.tables["run"]}

    @cached_property
    def bodies(self) -> dict[str, dict[str, Any]]:
        return {row["run"]: row for row in self.tables["run_body"]}

    @cached_property
    def run_changes(self) -> dict[str, list[Change]]:
        return self._by(lambda row: row["id"], "run")

    @cached_property
    def worker_changes(self) -> dict[int, list[Change]]:
        return self._by(lambda row: row["id"], "worker")

    @cached_property
    def record_changes(self) -> dict[Key, list[Change]]:
        return self._by(key_of, "step")

    @cached_property
    def records(self) -> dict[Key, dict[str, Any]]:
        """The final records, of every kind."""
        return {key_of(row): row for row in self.tables["step"]}

    def _by(self, key: Any, place: str) -> dict[Any, list[Change]]:
        found: dict[Any, list[Change]] = defaultdict(list)
        for change in self.changes:
            if change.place == place:
                found[key(change.new or change.old)].append(change)
        return found

    @cached_property
    def claims(self) -> dict[tuple[str, int], Change]:
        """The change that gave each token of each run."""
        return {
            (run, change.new["token"]): change
            for run, changes in self.run_changes.items()
            for change in changes
            if change.new and change.old and change.new["token"] != change.old["token"]
        }

    # --- steps and bodies --------------------------------------------------------------------------------------------------------
    @cached_property
    def begins(self) -> dict[Key, list[Line]]:
        found: dict[Key, list[Line]] = defaultdict(list)
        for line in self.lines("step_begun"):
            found[line["run"], line["key"]].append(line)
        return found

    def lines(self, *events: str) -> list[Line]:
        return [line for line in self.worker_lines if line["event"] in events]

    def faults(self, *kinds: str) -> list[Line]:
        return [line for line in self.fault_lines if line["event"] == "fault" and line["landed"] and (not kinds or line["fault"] in kinds)]


def key_of(row: dict[str, Any]) -> Key:
    """Return a row's run and step key as text: `name`, `name:1`, `0.1/name`."""
    number = f":{row['number']}" if row["number"] else ""
    return row["run"], f"{row['path']}/{row['name']}{number}" if row["path"] else f"{row['name']}{number}"


def load_evidence(folder: Path) -> Evidence:
    """Read what a trial has left in its folder."""
    state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
    audit = state["tables"].pop("audit")

    def lines(pattern: str) -> list[Line]:
        return [line for path in sorted(folder.glob(pattern)) for line in read_journal(path)]

    return Evidence(
        facts=state["facts"],
        client_lines=lines("client*.jsonl"),
        worker_lines=lines("worker*.jsonl"),
        fault_lines=lines("faults.jsonl"),
        tables=state["tables"],
        changes=[Change(row["id"], row["at"], row["place"], row["old"], row["new"]) for row in audit],
    )


def told(violations: Iterable[Violation]) -> str:
    return "\n".join(map(str, violations))
