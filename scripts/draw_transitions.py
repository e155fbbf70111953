"""Draws, in `docs/states.md`, every allowed change of runs, operations and decisions, from the tables that the code holds itself to.

Run it as `make generate`; with `--check` it writes nothing and fails where the page is not what it would write. A table says
between which states, the words here say when: a change without words, or words without a change, is an error.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

PROJECT = Path(__file__).parents[1]
sys.path.insert(0, str(PROJECT / "src"))

from outlast.decision import DecisionState as D  # noqa: E402  (the path above comes first)
from outlast.decisions.store import ALLOWED as DECISIONS_ALLOWED  # noqa: E402  (as above)
from outlast.ledger.operation import ALLOWED as OPERATIONS_ALLOWED  # noqa: E402  (as above)
from outlast.ledger.operation import OUTCOMES, Change, OperationStatus  # noqa: E402  (as above)
from outlast.native.transitions import ALLOWED as RUNS_ALLOWED  # noqa: E402  (as above)
from outlast.run import RunStatus as R  # noqa: E402  (as above)

PAGE = PROJECT / "docs" / "states.md"
BEGIN, END = "<!-- {}: written by scripts/draw_transitions.py, run `make generate` -->", "<!-- end of {} -->"

Pair = tuple[StrEnum | None, StrEnum]
"""From which state, None for what was not there before, and to which."""

RUNS: Mapping[Pair, str] = {
    (None, R.PENDING): "enqueued for now",
    (None, R.WAITING): "enqueued for later",
    (R.WAITING, R.PENDING): "its time has come, what it waits for is there, or it was canceled",
    (R.PENDING, R.RUNNING): "claimed",
    (R.RUNNING, R.WAITING): "every branch waits, or it backs off after a lost worker",
    (R.RUNNING, R.PENDING): "released at stop, or taken from a dead or silent worker",
    (R.RUNNING, R.SUCCEEDED): "the body returned",
    (R.RUNNING, R.FAILED): "the body ended with an error, or its deadline passed",
    (R.RUNNING, R.CANCELED): "a cancel was accepted before the end",
    (R.RUNNING, R.DEAD): "third strike",
    (R.PENDING, R.CANCELED): "canceled before it ever ran",
    (R.WAITING, R.CANCELED): "canceled before it ever ran",
    (R.PENDING, R.FAILED): "its deadline passed before it ever ran",
    (R.WAITING, R.FAILED): "its deadline passed before it ever ran",
    (R.FAILED, R.PENDING): "an operator retried it",
    (R.DEAD, R.PENDING): "an operator retried it",
    (R.CANCELED, R.PENDING): "an operator retried it",
    (R.FAILED, R.CANCELED): "an operator discarded it",
    (R.DEAD, R.CANCELED): "an operator discarded it",
}
OPERATIONS: Mapping[Change, str] = {
    Change.BEGIN: "an attempt begins: its row is durable before `perform` is called",
    Change.RESULT: "the current attempt returned",
    Change.NOT_DONE: "the current attempt is known not to have been done; another may follow",
    Change.DOUBT: "the current attempt ended, and nobody knows what it did",
    Change.FOUND_DONE: "the reconciler says that it was done",
    Change.ASK: "nobody can tell: a person is asked",
    Change.ASK_AGAIN: "the answer did not fit, or its question was withdrawn with its run: another one is put",
    Change.ANSWER_DONE: "the answer: it was done, with this result",
    Change.ANSWER_AGAIN: "the answer: it was not done, try again",
    Change.ANSWER_FAIL: "the answer: it was not done, and is not tried again",
    Change.GIVE_UP: "no attempts are left",
    Change.REVIVE: "the run was retried, or another one uses the same key",
    Change.RESUME: "a person gave the result of what had failed its run",
}
DECISIONS: Mapping[Pair, str] = {
    (None, D.OPEN): "somebody is asked",
    (D.OPEN, D.ANSWERED): "answered: of two at once, one",
    (D.OPEN, D.SUPERSEDED): "the run went on without it",
    (D.OPEN, D.WITHDRAWN): "the run is over",
    (D.ANSWERED, D.CONSUMED): "the run has used the answer: in the commit of what came of it",
    (D.ANSWERED, D.SUPERSEDED): "the answer did not fit and it was asked anew, or the run went on without it",
    (D.ANSWERED, D.WITHDRAWN): "the run is over",
}


@dataclass(frozen=True)
class Arrow:
    """One allowed change, and when it is made."""

    before: StrEnum | None
    after: StrEnum
    when: str


def draw(states: Iterable[StrEnum], arrows: Iterable[Arrow]) -> str:
    """Return a drawing for a plain file: a column for each state, and a line for each change, from its state to the next."""
    columns = list(states)
    width = max(map(len, columns)) + 3 | 1
    places: dict[StrEnum | None, int] = {state: 4 + width // 2 + width * number for number, state in enumerate(columns)}
    places[None] = 2
    right = places[columns[-1]] + 3
    head = "".join(f"{state:^{width}}" for state in columns)
    lines = [f"    {head}".rstrip(), _row(places, right).rstrip()]
    for arrow in arrows:
        lines.append(f"{_row(places, right, arrow)} {arrow.when.replace('`', '')}")
    return "\n".join(["```text", *lines, "```"])


def _row(places: Mapping[StrEnum | None, int], right: int, arrow: Arrow | None = None) -> str:
    cells = [" "] * (right + 1)
    for state, place in places.items():
        cells[place] = "|" if state is not None else " "
    if arrow is not None:
        begin, end = places[arrow.before], places[arrow.after]
        low, high = min(begin, end), max(begin, end)
        cells[low + 1 : high] = "-" * (high - low - 1)
        cells[begin] = "o" if arrow.before is None else "*" if begin == end else "|"
        if begin != end:
            cells[end - 1 if begin < end else end + 1] = ">" if begin < end else "<"
    return "".join(cells)


def runs() -> str:
    """Return the part about runs."""
    _check("RUNS", RUNS, RUNS_ALLOWED)
    return _part(R, [Arrow(before, after, when) for (before, after), when in RUNS.items()])


def decisions() -> str:
    """Return the part about decisions."""
    _check("DECISIONS", DECISIONS, {(before, after) for before, afters in DECISIONS_ALLOWED.items() for after in afters})
    return _part(D, [Arrow(before, after, when) for (before, after), when in DECISIONS.items()])


def operations() -> str:
    """Return the part about operations, whose changes have names and say something of the attempt."""
    _check("OPERATIONS", OPERATIONS, OPERATIONS_ALLOWED)
    planned = "an effect was asked for: its name, key and arguments are durable"
    arrows = [Arrow(None, OperationStatus.PLANNED, planned)]
    lines = [_line("change", "from", "to", "attempt", "when"), _line(*["---"] * 5), _line("-", "-", "planned", "-", planned)]
    for change, when in OPERATIONS.items():
        allowed, after = OPERATIONS_ALLOWED[change]
        befores = [status for status in OperationStatus if status in allowed]
        arrows += [Arrow(before, after, when) for before in befores]
        lines.append(_line(f"`{change}`", ", ".join(befores), after, OUTCOMES.get(change, "-"), when))
    return "\n".join([draw(OperationStatus, arrows), "", *lines, "", _final(OperationStatus, arrows)])


def _part(states: type[StrEnum], arrows: list[Arrow]) -> str:
    lines = [_line("from", "to", "when"), _line(*["---"] * 3)]
    lines += [_line(arrow.before or "-", arrow.after, arrow.when) for arrow in arrows]
    return "\n".join([draw(states, arrows), "", *lines, "", _final(states, arrows)])


def _final(states: Iterable[StrEnum], arrows: Iterable[Arrow]) -> str:
    left = {arrow.before for arrow in arrows}
    return f"Nothing leaves {' or '.join(f'`{state}`' for state in states if state not in left)}."


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _check(name: str, words: Iterable[object], allowed: Iterable[object]) -> None:
    wrong = set(words) ^ set(allowed)
    if wrong:
        sys.exit(f"{name} in scripts/draw_transitions.py and the table of allowed changes differ in {sorted(map(_told, wrong))}")


def _told(change: object) -> str:
    return " -> ".join(str(state or "nothing") for state in change) if isinstance(change, tuple) else str(change)


PARTS: Mapping[str, Callable[[], str]] = {"runs": runs, "operations": operations, "decisions": decisions}


def drawn(text: str) -> str:
    """Return the page with what is between its markers written anew."""
    for name, part in PARTS.items():
        begin, end = BEGIN.format(name), END.format(name)
        if text.count(begin) != 1 or text.count(end) != 1:
            sys.exit(f"{PAGE.name} needs once, each on a line of its own: {begin} and {end}")
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}\n\n{part()}\n\n{end}{rest.partition(end)[2]}"
    return text


def main(arguments: list[str]) -> int:
    """Write the page if it is not current, or with `--check` name it; return the exit code."""
    current = PAGE.read_text(encoding="utf-8")
    if (wanted := drawn(current)) == current:
        return 0
    if "--check" in arguments:
        print(f"{PAGE.name} is not what the tables of allowed changes say: run `make generate`", file=sys.stderr)
        return 1
    PAGE.write_text(wanted, encoding="utf-8")
    print(f"wrote {PAGE.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
