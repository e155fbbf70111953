"""The results for people and for programs: a table on the terminal, RESULTS.md, JSON. It computes nothing but reads what the profiles taught."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from .contender import CONTENDERS
from .rows import Result, Spread

_INTRODUCTION = """\
# Benchmark results

Written by `make bench`. All sides were measured on one machine in one run, in turns, each time on a new database, and a
side's figure is the median over its rounds. Compare the ratios: an absolute figure says nothing on a shared machine.
"""


_PROFILE = Path(__file__).with_name("profile.md")
"""Why the goals that are missed are missed: written by hand after each profile, and shown with every result."""

_SHORT = "A short run: it shows that everything works; the sizes are smaller than the titles say, and the figures prove nothing."


def as_text(results: Sequence[Result], *, is_short: bool) -> str:
    """Return the table for a terminal."""
    lines: list[str] = [_SHORT] if is_short else []
    for result in results:
        lines.append(f"{result.row.title} [{result.row.unit}]")
        verdicts = result.verdicts()
        lines.extend(
            f"  {side:<30}{_number(spread.median):>10}   {_range(spread):<21}{verdicts.get(side, '')}".rstrip() for side, spread in result.sides.items()
        )
    return "\n".join(lines)


def as_json(facts: Mapping[str, str], results: Sequence[Result]) -> str:
    """Return the same for programs, with nothing rounded."""
    rows = [
        {
            "trial": result.row.trial,
            "figure": result.row.figure,
            "unit": result.row.unit,
            "sides": {side: dataclasses.asdict(spread) for side, spread in result.sides.items()},
            "verdicts": result.verdicts(),
        }
        for result in results
    ]
    return json.dumps({"machine": dict(facts), "rows": rows}, indent=2)


def as_markdown(facts: Mapping[str, str], results: Sequence[Result], *, rounds: int, is_short: bool) -> str:
    """Return the page that is kept beside the code."""
    lines = [
        _INTRODUCTION,
        f"Rounds: {rounds}." + (f" {_SHORT}" if is_short else ""),
        "",
        "| what | side | median | lowest - highest | outlast beside it |",
        "| --- | --- | ---: | --- | --- |",
    ]
    for result in results:
        verdicts = result.verdicts()
        title = f"{result.row.title} ({result.row.unit})"
        for side, spread in result.sides.items():
            lines.append(f"| {title} | {side} | {_number(spread.median)} | {_range(spread)} | {verdicts.get(side, '')} |")
            title = ""
    lines += ["", _PROFILE.read_text(encoding="utf-8").rstrip()]
    lines += ["", "## Machine and settings", "", *(f"- {name}: {value}" for name, value in facts.items())]
    lines += ["", "## How the sides were set up", "", *(f"- {contender.name}: {contender.settings}." for contender in CONTENDERS.values())]
    return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:,.2f}"


def _range(spread: Spread) -> str:
    return f"{_number(spread.lowest)} - {_number(spread.highest)}"
