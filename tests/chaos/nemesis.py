"""Nemesis: what is done to the crew and to the database, and when. The plan is drawn from a seed before anything begins.

Every kind of fault comes once in a shuffled deck before any comes again, so that even a short trial has met them all.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import random
import select
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.concurrency.tcp_proxy import Where

from .crew import Crew, Member
from .journal import Journal
from .places import Place, PostgresPlace, SqlitePlace

COMMON = ("kill_executor", "kill_executor", "freeze_executor", "stop_executor", "kill_client")
ON_POSTGRES = (
    "restart_server",
    "terminate_backends",
    "cut_before",
    "cut_after",
    "cut_after",
    "cut_held",
    "cut_enqueue",
    "cut_enqueue",
    "black_hole",
    "reset_wires",
)
ON_SQLITE = ("hold_lock", "hold_lock", "kill_holder", "freeze_executor", "kill_executor")
RECORDS = ("outlast.fence(", "INSERT INTO outlast.step (")
ENQUEUES = ("SELECT outlast.accept_runs(",)
FENCED = ("outlast.fence(",)
HOLD_SECONDS_MAX = 5.0
"""How long the one that is to hold the lock may take to get it."""
TAIL_SECONDS = 1.0
"""Nothing new begins so close to the end."""


@dataclass(frozen=True)
class Fault:
    """One entry of the plan."""

    at: float
    """Seconds from the beginning."""
    kind: str
    target: int
    length: float
    """Seconds that it lasts, where it lasts."""


def plan(seed: int, seconds: float, database: str, *, every: float, lease: float) -> list[Fault]:
    """Draw a plan: the same seed gives the same one."""
    chance = random.Random(f"nemesis {seed} {database}")
    deck: list[str] = []
    faults: list[Fault] = []
    at = 1.5
    while at < seconds - TAIL_SECONDS:
        if not deck:
            deck = [*COMMON, *(ON_POSTGRES if database == "postgres" else ON_SQLITE)]
            chance.shuffle(deck)
        kind = deck.pop()
        length = chance.uniform(1.5, 2.5) * lease if kind in ("freeze_executor", "black_hole") else chance.uniform(0.2, 1.5)
        faults.append(Fault(round(at, 3), kind, chance.randrange(100), round(length, 3)))
        at += every * chance.uniform(0.5, 1.5)
    return faults


class Nemesis:
    """Carries a plan out. It lives on one thread, which also tends the crew."""

    def __init__(self, place: Place, crew: Crew, journal: Journal, seed: int) -> None:
        self._place = place
        self._crew = crew
        self._journal = journal
        self._chance = random.Random(f"carrying out {seed}")
        self._undoing: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._holders: list[subprocess.Popen[bytes]] = []

    def carry_out(self, faults: list[Fault], seconds: float) -> None:
        began_at = time.monotonic()
        waiting = list(faults)
        while time.monotonic() < began_at + seconds:
            self._crew.tend()
            self._undo_due()
            if waiting and time.monotonic() >= began_at + waiting[0].at:
                self._do(waiting.pop(0))
            time.sleep(0.03)

    def heal(self) -> None:
        """End what is under way, and bring everybody back."""
        while self._undoing:
            heapq.heappop(self._undoing)[2]()
        self._place.heal()
        for holder in self._holders:
            self._end(holder)
        self._crew.tend()
        for member in self._crew.members.values():
            self._crew.thaw(member)
            if not member.is_up:
                self._crew.start(member)
        self._journal.add("healed")

    def _do(self, fault: Fault) -> None:
        workers, clients = self._crew.workers(), self._crew.clients()
        worker, client = workers[fault.target % len(workers)], clients[fault.target % len(clients)]
        if fault.kind == "kill_executor":
            self._crew.kill(worker)
        elif fault.kind == "stop_executor":
            self._crew.ask_to_stop(worker)
        elif fault.kind == "kill_client":
            self._crew.kill(client)
        elif fault.kind == "freeze_executor":
            self._freeze(worker, fault.length)
        elif isinstance(self._place, PostgresPlace):
            self._do_to_postgres(self._place, fault, worker, client)
        elif isinstance(self._place, SqlitePlace):
            self._do_to_sqlite(self._place, fault)

    def _freeze(self, worker: Member, length: float) -> None:
        if self._crew.freeze(worker):
            process = worker.process
            self._later(length, lambda: self._crew.thaw(worker) if worker.process is process else None)

    # --- PostgreSQL ------------------------------------------------------------------------------------------------------------
    def _do_to_postgres(self, place: PostgresPlace, fault: Fault, worker: Member, client: Member) -> None:
        proxy = place.proxies[worker.slot]
        if fault.kind == "restart_server":
            place.server.restart("immediate")
            self._note(fault, landed=True)
        elif fault.kind == "terminate_backends":
            self._note(fault, landed=place.terminate_backends(0.5, self._chance) > 0)
        elif fault.kind == "reset_wires":
            for each in place.proxies.values():
                each.reset()
            self._note(fault, landed=True)
        elif fault.kind == "black_hole":
            proxy.passing.clear()
            self._note(fault, landed=True, slot=worker.slot)
            self._later(fault.length, proxy.passing.set)
        elif fault.kind == "cut_enqueue":
            self._cut(fault, place, client, Where.AFTER, ENQUEUES)
        else:
            where = {"cut_before": Where.BEFORE, "cut_after": Where.AFTER, "cut_held": Where.HELD}[fault.kind]
            self._cut(fault, place, worker, where, self._chance.choice((RECORDS, RECORDS, FENCED)))

    def _cut(self, fault: Fault, place: PostgresPlace, member: Member, where: Where, fragments: tuple[str, ...]) -> None:
        """Cut the wire at the next such commit; whether one came is noted when it is over."""
        cut = place.proxies[member.slot].cut(where, *fragments)

        def look() -> None:
            cut.let_go.set()
            self._note(fault, landed=cut.happened.is_set(), committed=cut.committed.is_set(), slot=member.slot)
            proxy = place.proxies[member.slot]
            proxy.cuts = [other for other in proxy.cuts if other is not cut]

        self._later(max(fault.length, 1.0), look)

    # --- SQLite ----------------------------------------------------------------------------------------------------------------
    def _do_to_sqlite(self, place: SqlitePlace, fault: Fault) -> None:
        seconds = fault.length * 2
        command = [sys.executable, str(Path(__file__).with_name("holder.py")), str(place.path), str(60 if fault.kind == "kill_holder" else seconds)]
        for other in list(self._holders):  # a second one would wait for it, and the plan with it
            self._end(other)
        holder = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
        self._holders.append(holder)
        is_said = bool(holder.stdout and select.select([holder.stdout], [], [], HOLD_SECONDS_MAX)[0])
        self._note(fault, landed=is_said and holder.stdout is not None and holder.stdout.readline() == b"held\n", seconds=seconds)
        if fault.kind == "kill_holder":
            self._later(fault.length, lambda: self._end(holder))

    def _end(self, holder: subprocess.Popen[bytes]) -> None:
        holder.kill()
        holder.wait()
        if holder.stdout is not None:
            holder.stdout.close()
        self._holders = [other for other in self._holders if other is not holder]

    # --- time ------------------------------------------------------------------------------------------------------------------
    def _later(self, seconds: float, undo: Callable[[], None]) -> None:
        heapq.heappush(self._undoing, (time.monotonic() + seconds, next(self._order), undo))

    def _undo_due(self) -> None:
        while self._undoing and self._undoing[0][0] <= time.monotonic():
            heapq.heappop(self._undoing)[2]()

    def _note(self, fault: Fault, *, landed: bool, **facts: Any) -> None:
        self._journal.add("fault", fault=fault.kind, landed=landed, **facts)

    def close(self) -> None:
        for holder in list(self._holders):
            with contextlib.suppress(OSError):
                self._end(holder)
