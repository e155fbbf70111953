"""Trial: one chaos run from an empty database to its evidence in a folder.

Faults under a mixed load; then everything is healed and must come to rest; then one more worker is killed with nothing
else going on, to see how soon its runs go on; then workers are left idle, to see what they cost.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .checks_end import landed
from .crew import Crew, Member
from .evidence import TERMINAL, load_evidence
from .journal import Journal, read_journal
from .nemesis import Nemesis, plan
from .places import Place, PostgresPlace, open_place, wait_until
from .planted import VARIABLE

LEASE = 2.0
WORKERS = 3
CLIENTS = 3
RECOVERY_SECONDS = 5.0
"""After healing, before calls must succeed again: the longest backoff between tries is five seconds at first."""
TAIL_SECONDS = 9.0
"""How long clients go on calling after everything is healed."""
BURST = 16
FREEZE_LEASES = 2.75
IDLE_SETTLE_SECONDS = 4.0
IDLE_SECONDS = 8.0


@dataclass(frozen=True)
class Options:
    """What a trial is."""

    database: str
    seed: int
    seconds: float = 60.0
    every: float = 1.6
    """Seconds between two faults, on average."""
    settle_seconds: float = 90.0
    planted: str = ""
    """A planted bug, in workers and clients."""
    is_idle_measured: bool = True
    has_faults: bool = True
    machine_seconds: float = 4.0
    """What a loaded machine may add to a bound."""


class Trial:
    """See the file's description."""

    def __init__(self, options: Options, folder: Path) -> None:
        self._options = options
        self._folder = folder
        self._facts: dict[str, Any] = {**options.__dict__, "lease": LEASE, "recovery_seconds": RECOVERY_SECONDS, "idle": []}
        workers = [f"worker{number}" for number in range(WORKERS)]
        self._clients = [f"client{number}" for number in range(CLIENTS)]
        self._slots = [*workers, *self._clients, "client_burst", "idle0", "idle1"]

    def run(self) -> None:
        """Play the trial and leave its evidence in the folder."""
        self._folder.mkdir(parents=True, exist_ok=True)
        options = self._options
        journal = Journal(self._folder / "faults.jsonl")
        place = open_place(options.database, self._folder, self._slots)
        crew = Crew(place, self._folder, journal)
        nemesis = Nemesis(place, crew, journal, options.seed)
        try:
            self._play(place, crew, nemesis, journal)
        finally:
            nemesis.close()
            crew.close()
            place.close()
            journal.close()

    def _play(self, place: Place, crew: Crew, nemesis: Nemesis, journal: Journal) -> None:
        options = self._options
        faults = plan(options.seed, options.seconds, options.database, every=options.every, lease=LEASE) if options.has_faults else []
        self._write("plan.json", [fault.__dict__ for fault in faults])
        self._facts["began_at"] = time.time()
        self._start(crew)
        nemesis.carry_out(faults, options.seconds)
        nemesis.heal()
        self._facts["healed_at"] = time.time()
        nemesis.carry_out([], TAIL_SECONDS)
        self._end(crew, crew.clients(), journal)
        self._come_to_rest(place, crew)
        if self._facts["is_at_rest"]:
            self._strike_last(place, crew)
        self._facts["over_at"] = time.time()
        self._end(crew, crew.workers(), journal)
        if options.is_idle_measured and self._facts["is_at_rest"]:
            self._measure_idle(place, crew, journal)
        self._facts["self_check"] = place.self_check()
        self._write("state.json", {"facts": self._facts, "tables": place.dump()})

    def _start(self, crew: Crew) -> None:
        planted = {VARIABLE: self._options.planted}
        for slot in self._slots[:WORKERS]:
            without = ("--without", "chain:2") if slot == "worker2" else ()
            crew.add(slot, "executor", "--lease", f"{LEASE}s", *without, environment=planted)
        for slot in self._clients:
            crew.add(slot, "client", "--seed", f"{self._options.seed} {slot}", environment=planted)

    # --- rest ------------------------------------------------------------------------------------------------------------------
    def _come_to_rest(self, place: Place, crew: Crew) -> None:
        def is_at_rest() -> bool:
            crew.tend()
            return not set(statuses(place)) - TERMINAL

        self._facts["is_at_rest"] = wait_until(is_at_rest, self._options.settle_seconds, pause=0.3)

    def _strike_last(self, place: Place, crew: Crew) -> None:
        """With nothing else going on, kill a worker in the middle of its work, and freeze another for longer than its lease."""
        burst = crew.add("client_burst", "client", "--burst", str(BURST))
        wait_until(lambda: not burst.is_up, 60)
        crew.tend()
        burst.is_wanted = False
        victim, sleeper = crew.workers()[:2]
        wait_until(lambda: statuses(place)["running"] >= BURST - 2 or not set(statuses(place)) - TERMINAL, 20)
        wait_until(lambda: self._is_working(victim) and self._is_working(sleeper), 5)
        crew.freeze(sleeper)
        crew.kill(victim, comes_back=False)
        time.sleep(FREEZE_LEASES * LEASE)
        crew.thaw(sleeper)
        wait_until(lambda: self._said(sleeper, "lease_lost"), 20)
        self._come_to_rest(place, crew)

    def _is_working(self, member: Member) -> bool:
        lines = read_journal(self._folder / f"{member.slot}-{member.lives}.jsonl")
        return len([line for line in lines if line["event"] == "step_begun"]) > len([line for line in lines if line["event"] in ("step_ended", "step_told")])

    def _end(self, crew: Crew, members: list[Member], journal: Journal) -> None:
        for member in members:
            if member.process is not None:
                journal.add("ended", slot=member.slot, child=member.process.pid)
        crew.end(members)

    # --- idleness --------------------------------------------------------------------------------------------------------------
    def _measure_idle(self, place: Place, crew: Crew, journal: Journal) -> None:
        """Leave two workers alone with nothing to do, and count what they ask and what they use."""
        planted = {VARIABLE: self._options.planted}
        slots = ("idle0", "idle1")
        idle = [crew.add(slot, "executor", "--lease", "30s", "--counts", environment=planted) for slot in slots]
        wait_until(lambda: all(self._said(member, "worker_started") for member in idle), 60)
        time.sleep(IDLE_SETTLE_SECONDS)
        began_at, cpu, counted = time.time(), [cpu_seconds(member) for member in idle], place.transactions(slots)
        time.sleep(IDLE_SECONDS)
        seconds = time.time() - began_at
        used = [after - before for after, before in zip([cpu_seconds(member) for member in idle], cpu, strict=True)]
        now_counted = place.transactions(slots)
        for member, share in zip(idle, used, strict=True):
            asked = [line for line in self._said(member, "before_store") if began_at <= line["at"] <= began_at + seconds]
            self._facts["idle"].append({"queries_a_second": len(asked) / seconds, "cpu_share": share / seconds, "counted_by": "the worker"})
        if counted is not None and now_counted is not None:
            rate = (now_counted - counted) / seconds / len(idle)
            self._facts["idle"].append({"queries_a_second": rate, "cpu_share": 0.0, "counted_by": "the wire"})
        self._end(crew, idle, journal)

    def _said(self, member: Member, event: str) -> list[dict[str, Any]]:
        return [line for line in read_journal(self._folder / f"{member.slot}-{member.lives}.jsonl") if line["event"] == event]

    def _write(self, name: str, value: Any) -> None:
        (self._folder / name).write_text(json.dumps(value), encoding="utf-8")


def statuses(place: Place) -> Counter[str]:
    """Return how many runs are in each state."""
    table = "outlast.run" if isinstance(place, PostgresPlace) else "outlast_run"
    with place.connection() as connection:
        return Counter(dict(connection.execute(f"SELECT status, count(*) FROM {table} GROUP BY status").fetchall()))


def cpu_seconds(member: Member) -> float:
    """Return how much processor time a process has used, from the system."""
    if member.process is None:
        return 0.0
    fields = Path(f"/proc/{member.process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def summary(folder: Path) -> str:
    """Return what happened in a trial, in one line for each kind of thing."""
    evidence = load_evidence(folder)
    idle = ", ".join(f"{each['queries_a_second']:.2f}/s by {each['counted_by']}, {each['cpu_share']:.1%} cpu" for each in evidence.facts["idle"])
    counts = ", ".join(f"{name} {count}" for name, count in sorted(landed(evidence).items()))
    ends = Counter(run["status"] for run in evidence.runs.values())
    return f"{counts}\nruns by state: {dict(ends)}\nidle workers: {idle}"
