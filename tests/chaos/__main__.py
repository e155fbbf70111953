"""Chaos: random faults under a mixed load on a real database, and a checker outside of the engine.

    python -m tests.chaos                        six minutes on each database, seeds drawn and printed
    python -m tests.chaos --database sqlite --seed 7 --seconds 60
    python -m tests.chaos --check FOLDER         look at a trial's evidence again
    python -m tests.chaos --planted              every planted bug must be caught; --planted NAME for one

Who does what. `client` processes call the engine at random and note every call before and after it (`client*.jsonl`). `executor`
processes are workers whose bodies and steps, in `load`, note what they begin, end and are handed (`worker*.jsonl`). `nemesis`
kills, freezes and stops them, restarts the server, ends its sessions, cuts wires at commits, holds the file's lock,
after a plan drawn from the seed (`plan.json`, `faults.jsonl`). Triggers note every committed change of a row. Then all is healed and
must come to rest, and `checker` holds the invariants on these notes and on the last state of the tables (`state.json`):

    S1 one end            S2 transitions      S3 records stay     S4 handed = recorded    S5 records have bodies
    S6 order in a branch  S7 attempts         S8 results follow   S9 tokens grow          S10 one live token
    S11 claims, deaths    S12 renewals        S13 refusals told   S18 cancel wins         S19 nothing after the end
    S21 enqueues          S22 keys            S29 nothing dangles B01 workers stay up
    L1 all runs end       L3 clients served   L4 takeover in time L8 idle workers rest    V1 faults landed    V3 calls succeed

A trial in which faults did not land fails too: it proves nothing. The same seed gives the same plan and the same draws of the clients;
what meets what is up to the machine. When something is found the folder stays, with a log of every process.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from .checker import violations
from .evidence import load_evidence
from .planted import PLANTED
from .proving import caught_by
from .trial import Options, Trial, summary


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def play(options: Options) -> bool:
    """Play one trial; return whether everything holds. The folder stays if not."""
    folder = Path(tempfile.mkdtemp(prefix=f"chaos-{options.database}-{options.seed}-"))
    began_at = time.monotonic()
    say(f"{options.database}: {options.seconds:g} s of chaos, seed {options.seed}")
    Trial(options, folder).run()
    found = violations(load_evidence(folder))
    say(f"{summary(folder)}\n{options.database}: {len(found)} violations after {time.monotonic() - began_at:.0f} s")
    for violation in found:
        say(f"  {violation}")
    if found:
        say(f"  the evidence is in {folder}; play it again with --database {options.database} --seed {options.seed} --seconds {options.seconds:g}")
    else:
        shutil.rmtree(folder)
    return not found


def prove(names: list[str], databases: list[str]) -> bool:
    """Play every planted bug; return whether each was caught."""
    is_complete = True
    for name in names:
        for database in databases:
            if database in PLANTED[name].databases:
                found = caught_by(name, database)
                is_caught = bool(set(found) & set(PLANTED[name].caught_by))
                is_complete &= is_caught
                say(f"{name} on {database}: {'caught by ' + ', '.join(found) if is_caught else f'NOT CAUGHT, only {found}'}")
    return is_complete


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description="Chaos and its checker.")
    parser.add_argument("--database", choices=("sqlite", "postgres"), action="append")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seconds", type=float, default=360.0)
    parser.add_argument("--every", type=float, default=1.6, help="seconds between two faults")
    parser.add_argument("--check", type=Path, help="a folder with the evidence of a trial")
    parser.add_argument("--planted", nargs="*", help="planted bugs to be caught, all when none is named")
    options = parser.parse_args()
    databases = options.database or ["postgres", "sqlite"]
    if options.check:
        found = violations(load_evidence(options.check))
        say("\n".join([summary(options.check), *map(str, found)]))
        sys.exit(bool(found))
    if options.planted is not None:
        sys.exit(not prove(options.planted or list(PLANTED), databases))
    seed = options.seed if options.seed is not None else random.randrange(10_000)
    trials = [Options(database, seed, options.seconds, options.every) for database in databases]
    outcomes = [play(trial) for trial in trials]  # all of them, also after one that failed
    sys.exit(not all(outcomes))


if __name__ == "__main__":
    main()
