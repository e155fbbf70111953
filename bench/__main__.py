"""`python -m bench`: measure outlast and its peers in turns, print them side by side, and keep the results."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]  # runs from any folder, before anything was installed

from bench import machine, report  # noqa: E402  (the path above comes first)
from bench.contender import CONTENDERS, Contender, ContenderError, make_ready  # noqa: E402  (as above)
from bench.rows import results  # noqa: E402  (as above)
from bench.trials import TRIALS, Figures, Trial  # noqa: E402  (as above)
from bench.world import World  # noqa: E402  (as above)
from outlast.testing.postgres_server import PostgresServer  # noqa: E402  (as above)

RESULTS = Path(__file__).with_name("RESULTS.md")
ROUNDS = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark and return the exit code."""
    options = _parser().parse_args(arguments)
    contenders = [CONTENDERS[name] for name in options.contenders]
    trials = [_restricted(trial, contenders) for trial in TRIALS if trial.key in options.rows]
    rounds = options.rounds or (1 if options.short else ROUNDS)
    try:
        for contender in contenders:
            make_ready(contender)
        with PostgresServer(options.database, binaries=options.binaries, is_private=options.database is None) as server:
            facts = machine.describe(server.url("postgres"))
            figures = {trial.key: _measured(trial, World(server, is_short=options.short), rounds) for trial in trials}
    except ContenderError as error:
        print(error, file=sys.stderr)
        return 1
    measured = results(figures)
    print(report.as_json(facts, measured) if options.json else report.as_text(measured, is_short=options.short))
    is_whole = not options.short and rounds >= ROUNDS and len(trials) == len(TRIALS) and len(contenders) == len(CONTENDERS)
    target = options.results or (RESULTS if is_whole else None)
    if target:
        target.write_text(report.as_markdown(facts, measured, rounds=rounds, is_short=options.short), encoding="utf-8")
    else:
        print("RESULTS.md was left as it is: it is written by a whole run, or with --results", file=sys.stderr)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description="outlast and its peers, side by side on this machine")
    keys = [trial.key for trial in TRIALS]
    parser.add_argument("--rows", nargs="+", choices=keys, default=keys, metavar="ROW", help=f"what to measure: {', '.join(keys)} (default: all)")
    parser.add_argument("--contenders", nargs="+", choices=list(CONTENDERS), default=list(CONTENDERS), metavar="SIDE", help="who is measured (default: all)")
    parser.add_argument("--rounds", type=_positive, help=f"how often each side has its turn (default: {ROUNDS})")
    parser.add_argument("--short", action="store_true", help="small numbers and one round: shows that it works, proves nothing")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--results", type=Path, help="where to write the page (default: RESULTS.md beside this file, by whole runs only)")
    parser.add_argument("--database", metavar="URL", help="a PostgreSQL server to use, in which databases are made (default: one of our own)")
    parser.add_argument("--binaries", type=Path, metavar="FOLDER", help="the PostgreSQL programs to start our own server with")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least one round")
    return number


def _restricted(trial: Trial, contenders: Sequence[Contender]) -> Trial:
    names = tuple(contender.name for contender in contenders)
    return Trial(trial.key, {side: measure for side, measure in trial.sides.items() if side.startswith(names)})


def _measured(trial: Trial, world: World, rounds: int) -> dict[str, list[Figures]]:
    """Let the sides take turns, so that what else happens on the machine meets all of them alike."""
    figures: dict[str, list[Figures]] = {side: [] for side in trial.sides}
    for number in range(1, rounds + 1):
        for side, measure in trial.sides.items():
            print(f"{trial.key}, round {number} of {rounds}: {side}", file=sys.stderr, flush=True)
            figures[side].append(measure(world))
    return figures


if __name__ == "__main__":
    sys.exit(main())
