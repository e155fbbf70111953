"""The checker of transactions: S23 and S27, from committed snapshots and from what is there when all is over.

Pure: evidence in, violations out. It asks the engine nothing and imports nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple


class Violation(NamedTuple):
    """An invariant that does not hold, and what shows it."""

    invariant: str
    what: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.what}"


@dataclass
class BankEvidence:
    """What the observer saw, and what is there when all is over."""

    snapshots: list[tuple[int, int, int]] = field(default_factory=list)
    """Of each committed snapshot: the sum of the balances, the moves of all accounts, and how often transfers were counted."""
    counters: dict[str, int] = field(default_factory=dict)
    """How often each nonce was counted."""
    records: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    """Of each run that has one, the outcome of its transactional step's record and the nonce in it."""
    remembered: dict[str, str] | None = None
    """In the bank's own database the nonce that is remembered for a run; None where that is the engine's."""
    runs: dict[str, str] = field(default_factory=dict)
    """How each run ended."""


def check_bank(evidence: BankEvidence, *, total: int) -> list[Violation]:
    """Return everything of S23 and S27 that does not hold."""
    return [*s23(evidence), *s27(evidence, total)]


def s23(evidence: BankEvidence) -> Iterator[Violation]:
    """A business row is there if its record says that it was committed, and only then; joined by the nonce in both."""
    recorded = {nonce: run for run, (outcome, nonce) in evidence.records.items() if outcome == "result"}
    for nonce in sorted(evidence.counters.keys() - recorded.keys()):
        yield Violation("S23", f"transfer {nonce} was committed, and no record has it")
    for nonce in sorted(recorded.keys() - evidence.counters.keys()):
        yield Violation("S23", f"run {recorded[nonce]} has a record of transfer {nonce}, which is not there")
    if evidence.remembered is not None and evidence.remembered != {run: nonce for nonce, run in recorded.items()}:
        differing = set(evidence.remembered.items()) ^ {(run, nonce) for nonce, run in recorded.items()}
        yield Violation("S23", f"the bank's database remembers others than the engine: {sorted(differing)[:5]}")


def s27(evidence: BankEvidence, total: int) -> Iterator[Violation]:
    """No money is made or lost in any committed snapshot; a transfer is counted once if its run's step is committed, else not."""
    for number, (balances, moves, times) in enumerate(evidence.snapshots):
        if balances != total or moves != 2 * times:
            yield Violation("S27", f"snapshot {number}: the balances are {balances} of {total}, with {moves} moves of {times} transfers")
    for nonce, times in evidence.counters.items():
        if times != 1:
            yield Violation("S27", f"transfer {nonce} was counted {times} times")
    for run, status in evidence.runs.items():
        outcome, _ = evidence.records.get(run, ("nothing", None))
        if (status == "succeeded") != (outcome == "result"):
            yield Violation("S27", f"run {run} {status}, and its transactional step is recorded with {outcome}")
