"""The checkers of effects and transactions themselves: each finds what is wrong in evidence that is right but for one thing."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from .bank_checker import BankEvidence, check_bank
from .effect_checker import Change, Evidence, check_effects

RUN, KEY = "run 1", "run 1/0/place"
TIMEOUT, SETTLE = 30.0, 0.5


class Written:
    """Evidence as it is written row by row: the last state of each row is remembered."""

    def __init__(self) -> None:
        self.evidence = Evidence()
        self._rows: dict[Any, dict[str, Any]] = {}
        self.at = 1000.0

    def row(self, place: str, which: Any, /, **values: Any) -> None:
        old = self._rows.get((place, which))
        new = self._rows[place, which] = {**(old or {}), **values}
        self.at += 0.01
        self.evidence.changes.append(Change(len(self.evidence.changes) + 1, self.at, place, deepcopy(old), deepcopy(new)))

    def operation(self, status: str, **values: Any) -> None:
        known = {"effect": "place", "key": KEY, "result": None}
        self.row("operation", KEY, **(known if ("operation", KEY) not in self._rows else {}), status=status, **values)

    def begin(self, number: int, run_token: int, **values: Any) -> None:
        self.operation("attempting")
        facts = {"effect": "place", "key": KEY, "number": number, "token": 10 + number, "run": RUN, "run_token": run_token, "worker": run_token}
        lengths = {"timeout": TIMEOUT, "settle": SETTLE, "started_at": self.at}
        self.row("operation_attempt", number, **{**facts, **lengths, "outcome": None, "error": None, **values})

    def end(self, number: int, outcome: str, **values: Any) -> None:
        self.row("operation_attempt", number, outcome=outcome, **values)

    def claim(self, token: int) -> None:
        self.row("run", RUN, id=RUN, token=token)

    def line(self, event: str, number: int = 1, **facts: Any) -> None:
        self.at += 0.01
        known = {"event": event, "at": self.at, "request": len(self.evidence.requests), "name": "bread", "is_keyed": False, "key": KEY}
        self.evidence.requests.append({**known, "attempt": number, "token": 10 + number, **facts})

    def arrive(self, number: int, **facts: Any) -> None:
        self.line("arrived", number, **{"seen": [{"number": n, "token": 10 + n} for n in range(1, number + 1)], **facts})

    def look(self, number: int, word: str = "tell") -> None:
        self.line("looked", number, word=word, receipt=None)

    def answer(self, option: str, number: int = 1) -> None:
        about = {"key": KEY, "attempt": number}
        self.row("decision", 1, id=1, about=about, answer=option, answered_at=self.at)


def good() -> Written:
    """A worker dies in its first attempt, nothing was done, and the second attempt of another worker does it."""
    world = Written()
    world.claim(1)
    world.operation("planned")
    world.begin(1, 1)
    world.row("worker", 1, id=1, end=None, ended_at=None)
    world.arrive(1)
    world.at += 3
    world.row("worker", 1, end="dead", ended_at=world.at)
    world.claim(2)
    world.at += SETTLE + 0.1
    world.look(1)
    world.operation("planned")
    world.end(1, "not_done")
    world.begin(2, 2)
    world.arrive(2)
    world.line("executed", 2)
    world.line("answered", 2, answer={"number": 1})
    world.operation("done", result={"number": 1})
    world.end(2, "done")
    return world


def asked(option: str = "again") -> Written:
    """An attempt of which nobody knows, and a person who says what it was."""
    world = Written()
    world.claim(1)
    world.operation("planned")
    world.begin(1, 1)
    world.arrive(1)
    world.line("executed", 1)
    world.operation("asked")
    world.end(1, "unknown")
    world.answer(option)
    world.operation("planned")
    world.end(1, "not_done")
    world.begin(2, 1)
    world.arrive(2)
    world.line("executed", 2)
    world.operation("done", result={"number": 2})
    world.end(2, "done")
    return world


def invariants(evidence: Evidence) -> set[str]:
    return {violation.invariant for violation in check_effects(evidence)}


def changed(evidence: Evidence, place: str, nth: int, /, **values: Any) -> None:
    """Change what the `nth` change of a table, counted from 0, made of its row."""
    change = [change for change in evidence.changes if change.place == place][nth]
    assert change.new is not None
    change.new.update(values)


def test_good_evidence_has_no_violations():
    """What is right is found right: after a crash, and after a person said that it was to be done again."""
    assert check_effects(good().evidence) == []
    assert check_effects(asked().evidence) == []


S25 = {
    "it begins attempting": (
        "from None to attempting",
        lambda world: changed(world.evidence, "operation", 0, status="attempting"),
    ),
    "it leaves done": (
        "from done to planned",
        lambda world: world.operation("planned", result=None),
    ),
    "its result changes": (
        "became",
        lambda world: world.operation("done", result={"number": 7}),
    ),
    "it is done without a result": (
        "is done with the result None",
        lambda world: changed(world.evidence, "operation", -1, result=None),
    ),
    "attempts have one number": (
        "came after 1",
        lambda world: changed(world.evidence, "operation_attempt", 2, number=1),
    ),
    "an attempt is left out": (
        "came after 1",
        lambda world: changed(world.evidence, "operation_attempt", 2, number=3),
    ),
    "tokens do not grow": (
        "has the token 11 after 11",
        lambda world: changed(world.evidence, "operation_attempt", 2, token=11),
    ),
    "an older claim begins it": (
        "under token 1 while the run's was 2",
        lambda world: changed(world.evidence, "operation_attempt", 2, run_token=1),
    ),
    "it begins beside another": (
        "while the one before was under way",
        lambda world: world.evidence.changes.remove([c for c in world.evidence.changes if c.place == "operation_attempt"][1]),
    ),
    "nobody had looked": (
        "nobody had been asked",
        lambda world: world.evidence.requests.remove(world.evidence.lines("looked")[0]),
    ),
    "it is believed too early": (
        "before that could be believed",
        lambda world: world.evidence.lines("looked")[0].update(at=world.evidence.lines("looked")[0]["at"] - 0.5),
    ),
    "the death was not proven": (
        "before that could be believed",
        lambda world: changed(world.evidence, "worker", 1, end="silent"),
    ),
    "two attempts are done": (
        "all recorded as done",
        lambda world: world.end(1, "done"),
    ),
}
S26 = {
    "an order comes without an attempt": (
        "and the ledger had []",
        lambda world: world.evidence.lines("arrived")[1].update(seen=[]),
    ),
    "an order comes after the next attempt began": (
        "after attempt 2 had begun",
        lambda world: world.evidence.lines("arrived")[0].update(seen=world.evidence.lines("arrived")[1]["seen"]),
    ),
    "an order comes under another token": (
        "with token 99",
        lambda world: world.evidence.lines("arrived")[1].update(token=99),
    ),
    "an order comes under another key": (
        "under the keys",
        lambda world: world.evidence.lines("arrived")[1].update(key="another"),
    ),
    "it is executed twice": (
        "executed 2 times",
        lambda world: world.line("executed", 1),
    ),
    "it is done and was never executed": (
        "never executed it",
        lambda world: world.evidence.requests.remove(world.evidence.lines("executed")[0]),
    ),
}


@pytest.mark.parametrize("what", S25)
def test_a_broken_sequence_is_found(what):
    """Whatever one thing is wrong with the ledger's sequence, S25 names it."""
    world = good()
    words, spoil = S25[what]
    spoil(world)
    assert [violation for violation in check_effects(world.evidence) if violation.invariant == "S25" and words in violation.what]


@pytest.mark.parametrize("what", S26)
def test_a_broken_order_is_found(what):
    """Whatever one thing is wrong with what the provider got and did, S26 names it."""
    world = good()
    words, spoil = S26[what]
    spoil(world)
    assert [violation for violation in check_effects(world.evidence) if violation.invariant == "S26" and words in violation.what]


def test_a_revoked_attempt_is_believed_at_once():
    """Too early is not too early for a reconciler that has seen to it that nothing comes any more."""
    world = good()
    look = world.evidence.lines("looked")[0]
    look.update(at=look["at"] - 0.5, word="revoke")
    assert check_effects(world.evidence) == []


def test_a_rejected_order_needs_no_reconciler():
    """An attempt that ended with an error, and whose order was rejected, is not done without anybody being asked."""
    world = Written()
    world.claim(1)
    world.operation("planned")
    world.begin(1, 1)
    world.arrive(1)
    world.line("answered", 1, answer={"error": "rejected"})
    world.operation("planned")
    world.end(1, "not_done", error={"message": "rejected"})
    assert check_effects(world.evidence) == []
    changed(world.evidence, "operation_attempt", 1, error=None)
    assert invariants(world.evidence) == {"S25"}


def test_a_person_allows_one_more_execution_and_not_two():
    """Without a key the executions are at most one more than the times that a person said again; with one there is one."""
    world = asked()
    world.line("executed", 2)
    assert invariants(world.evidence) == {"S26"}
    keyed = asked()
    for line in keyed.evidence.lines("executed"):
        line["is_keyed"] = True
    assert invariants(keyed.evidence) == {"S26"}
    assert "S25" in invariants(asked("done").evidence), "who said that it was done allowed no other attempt"


# --- the bank --------------------------------------------------------------------------------------------------------------
def bank() -> BankEvidence:
    """Two transfers, one of which was refused, in a database that is not the engine's."""
    records: dict[str, tuple[str, str | None]] = {"run 1": ("result", "nonce 1"), "run 2": ("error", None)}
    return BankEvidence([(100, 0, 0), (100, 2, 1)], {"nonce 1": 1}, records, {"run 1": "nonce 1"}, {"run 1": "succeeded", "run 2": "failed"})


BANK = {
    "S23": {
        "a row without a record": lambda it: it.counters.update({"nonce 3": 1}),
        "a record without a row": lambda it: it.counters.clear(),
        "another nonce is remembered": lambda it: it.remembered.update({"run 1": "nonce 2"}),
        "a refused one is remembered": lambda it: it.remembered.update({"run 2": "nonce 2"}),
    },
    "S27": {
        "money is made": lambda it: it.snapshots.append((101, 4, 2)),
        "half a transfer is seen": lambda it: it.snapshots.append((100, 3, 1)),
        "a transfer is there twice": lambda it: it.counters.update({"nonce 1": 2}),
        "a run succeeds without a record": lambda it: it.records.pop("run 1"),
        "a run fails with its transfer": lambda it: it.runs.update({"run 1": "failed"}),
    },
}


@pytest.mark.parametrize(("invariant", "what"), [(invariant, what) for invariant, breaks in BANK.items() for what in breaks])
def test_a_broken_bank_is_found(invariant, what):
    """Whatever one thing is wrong with the bank, its invariant is named; a good one has no violations."""
    evidence = bank()
    assert check_bank(evidence, total=100) == []
    BANK[invariant][what](evidence)
    assert invariant in {violation.invariant for violation in check_bank(evidence, total=100)}
