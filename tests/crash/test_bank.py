"""Bank transfers while workers are killed and frozen and sessions are ended: at every instant no money is made or lost, and each transfer
is there once, with its record.

Half a minute for each pair of databases all in all; OUTLAST_BANK_SECONDS=600 makes the faults go on for longer, OUTLAST_BANK_SEED
draws the same ones again.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from outlast import UnavailableError, connect

from .bank_checker import BankEvidence, check_bank
from .bank_child import Transfer, move_money
from .bank_world import ACCOUNTS, BALANCE, Observer, count_cut_off, last_note, open_bank, prepare_bank, read_evidence
from .world import Child, World

PROGRAM = Path(__file__).with_name("bank_child.py")
SECONDS = float(os.environ.get("OUTLAST_BANK_SECONDS", "12"))
WAITING_MAX = 60
"""Transfers that are accepted and not over: enough that workers never wait for work."""
FAULT_SECONDS = (0.4, 1.3)
"""Between two faults; a worker that was killed is back after half a second of its own start."""
MOMENT_SECONDS_MAX = 2.0
PROLONGED = 4.0
"""How much longer than asked for it may take until enough faults have landed."""
FREEZE_SECONDS = 3.5
"""Longer than a lease and the look of a watcher."""
SESSIONS = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name <> 'observer'"
PLACES = ["sqlite-own", "postgres-own", "postgres-postgres", "sqlite-sqlite", "sqlite-postgres"]


@pytest.fixture(params=PLACES)
def urls(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """The engine's database and the bank's."""
    engine, bank = request.param.split("-")
    made: list[str] = []

    def url_of(database: str, name: str) -> str:
        if database == "sqlite":
            return f"sqlite:///{tmp_path / name}.db"
        server = request.getfixturevalue("postgres_server")
        made.append(f"{name}_{os.getpid()}_{random.randrange(1 << 30)}")
        return server.create_database(made[-1])

    engine_url = url_of(engine, "engine")
    yield engine_url, engine_url if bank == "own" else url_of(bank, "bank")
    for name in made:
        request.getfixturevalue("postgres_server").drop_database(name)


class Trial:
    """One load with its faults."""

    def __init__(self, engine_url: str, bank_url: str, folder: Path, seed: int) -> None:
        self.world = World(engine_url, folder)
        self._bank_url = bank_url
        self._chance = random.Random(seed)
        self._transfer_chance = random.Random(seed)
        self._workers: list[Child] = []
        self._is_over = threading.Event()
        self.landed: Counter[str] = Counter()
        self.accepted: list[str] = []
        self.complaints: list[BaseException] = []

    def start_worker(self) -> Child:
        own = self._bank_url == self.world.url
        return self.world._start(self.world.url, "own" if own else self._bank_url, str(self.world.folder), program=PROGRAM)

    # --- load ----------------------------------------------------------------------------------------------------------------
    def feed(self) -> None:
        """Accept transfers until the trial is over, each under a key, so that a call whose answer was lost is repeated."""
        try:
            asyncio.run(self._feed())
        except BaseException as error:
            self.complaints.append(error)

    async def _feed(self) -> None:
        async with connect(self.world.url, tasks=(move_money,)) as engine:
            while not self._is_over.is_set():
                if self._count_waiting() < WAITING_MAX:
                    await self._accept_one(engine)
                else:
                    await asyncio.sleep(0.05)

    async def _accept_one(self, engine: Any) -> None:
        chance = self._transfer_chance
        source, target = chance.sample(range(ACCOUNTS), 2)
        transfer = Transfer(source, target, chance.randrange(1, 50), is_refused=chance.random() < 0.1)
        key = f"transfer {len(self.accepted)}"
        while True:
            try:
                run = await engine.enqueue(move_money, transfer, idempotency_key=key)
            except UnavailableError:  # it may have been accepted: only an answer to the same key tells
                await asyncio.sleep(0.05)
            else:
                self.accepted.append(run.id)
                return

    def _count_waiting(self) -> int:
        return sum(count for status, count in self._statuses().items() if status in ("pending", "running", "waiting"))

    def _statuses(self) -> Counter[str]:
        try:
            return self.world.statuses()
        except Exception:  # this session may be the one that was ended
            return Counter(pending=WAITING_MAX)

    # --- faults --------------------------------------------------------------------------------------------------------------
    def disturb(self, seconds: float) -> None:
        """Do one fault after the other; whoever was killed is started again before the next."""
        kinds = [self._kill_one] * 6 + [self._freeze_one] + ([self._end_sessions] * 3 if self.is_on_a_server else [])
        self._workers = [self.start_worker(), self.start_worker()]
        began_at = time.monotonic()
        while (lasted := time.monotonic() - began_at) < seconds or (not self.has_landed() and lasted < PROLONGED * seconds):
            self._is_over.wait(self._chance.uniform(*FAULT_SECONDS))
            self._chance.choice(kinds)()
            self.tend()
        self._is_over.set()

    def has_landed(self) -> bool:
        """Whether the faults were enough to prove something."""
        is_ended = self.landed["_end_sessions"] >= 3 or not self.is_on_a_server
        return is_ended and self.landed["_kill_one"] >= 4 and self.landed["_freeze_one"] >= 1 and count_cut_off(self.world) >= 2

    def tend(self) -> None:
        self._workers = [worker if worker.process.poll() is None else self.start_worker() for worker in self._workers]

    @property
    def is_on_a_server(self) -> bool:
        return "postgresql" in (self.world.url + self._bank_url)

    def _kill_one(self) -> None:
        """Kill a worker at any moment, or one that has just begun a transfer, before it can have ended it."""
        worker = self._chance.choice(self._workers)
        worker.wait_for("worker_started")  # a kill during its start would cut nothing off
        if self._chance.random() < 0.6:
            worker = self._find_transferring() or worker
        worker.signal(signal.SIGKILL)
        self.landed["_kill_one"] += worker.wait() == -signal.SIGKILL

    def _find_transferring(self) -> Child | None:
        """Wait for a moment in which the last thing that was noted is the begin of a transfer, and return who began it."""
        ends_at = time.monotonic() + MOMENT_SECONDS_MAX
        while time.monotonic() < ends_at:
            last = last_note(self.world.folder)
            found = [worker for worker in self._workers if last.get("event") == "begun" and worker.process.pid == last.get("pid")]
            if found:
                return found[0]
            time.sleep(0.001)
        return None

    def _freeze_one(self) -> None:
        """Stop a worker for longer than its lease, so that it comes back with transactions that are not its own any more."""
        worker = self._chance.choice(self._workers)
        worker.wait_for("worker_started")
        self.world.freeze(worker)
        time.sleep(FREEZE_SECONDS)
        self.landed["_freeze_one"] += worker.process.poll() is None
        worker.signal(signal.SIGCONT)

    def _end_sessions(self) -> None:
        """End half of the sessions of one of the databases, whatever they are in the middle of."""
        url = self._chance.choice(sorted(url for url in {self.world.url, self._bank_url} if url.startswith("postgresql")))
        with open_bank(url) as connection:
            for (pid,) in connection.execute(SESSIONS).fetchall():
                if self._chance.random() < 0.5:
                    (is_ended,) = connection.execute("SELECT pg_terminate_backend(%s)", [pid]).fetchone()
                    self.landed["_end_sessions"] += is_ended

    # --- all of it ---------------------------------------------------------------------------------------------------------------
    def run(self, seconds: float) -> BankEvidence:
        prepare_bank(self.world.url, self._bank_url)
        feeding = threading.Thread(target=self.feed, daemon=True)
        with self.world, Observer(self._bank_url) as observer:
            feeding.start()
            self.disturb(seconds)
            feeding.join(60)
            self.world.wait_until("every transfer is over", lambda: not set(self._statuses()) - {"succeeded", "failed"})
        assert not self.complaints, self.complaints
        return read_evidence(self.world, self._bank_url, observer)


@pytest.mark.timeout(300 + 2 * PROLONGED * SECONDS)
def test_transfers_survive_every_kill(urls, tmp_path):
    """The sum is constant in every committed snapshot; a transfer is there once if its step is recorded as done, else not at all."""
    seed = int(os.environ.get("OUTLAST_BANK_SEED") or random.randrange(10_000))
    trial = Trial(*urls, tmp_path, seed)
    evidence = trial.run(SECONDS)
    found = check_bank(evidence, total=ACCOUNTS * BALANCE)
    assert not found, f"OUTLAST_BANK_SEED={seed}\n" + "\n".join(map(str, found))
    assert len(evidence.runs) == len(set(trial.accepted)) >= 40, "too few transfers for the faults to meet any"
    assert trial.has_landed(), f"too few faults landed: {trial.landed}, {count_cut_off(trial.world)} transfers were cut off"
    assert len(evidence.snapshots) >= 20, "the observer hardly looked"
    assert {"succeeded", "failed"} <= set(evidence.runs.values())
