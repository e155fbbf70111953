"""Other processes on a worker's file: one that keeps a reading transaction, one that is frozen in a write, one in another container."""

import itertools
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress

import pytest

from .outage import Outage, pause
from .supervised import Supervised

READER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN")
cursor = connection.execute("SELECT * FROM outlast_run")
cursor.fetchone()
print("reading", flush=True)
sys.stdin.read()
"""
HELD_SECONDS = 20
"""Longer than the three seconds until a worker's next renewal and the ten for which it waits."""


class Reader:
    """A process that reads the file and does not come to an end, within a `with` block."""

    def __init__(self, file):
        self.process = subprocess.Popen([sys.executable, "-c", READER, file], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self):
        assert self.process.stdout.readline() == "reading\n"

    def __exit__(self, *_):
        self.process.communicate()


def test_a_reader_that_stays_delays_commits_and_loses_nothing(sqlite_url, tmp_path):
    """While another process keeps a reading transaction open for longer than a write waits, nothing is lost, and each worker says it once."""
    with Outage(sqlite_url, tmp_path) as outage:
        for _ in range(2):
            outage.work("--lease", "60s")
        journeys = outage.call("journey", "--callers", "1", "--pause", "0.2", "--insists")
        journeys.wait_for("accepted", 10)
        with Reader(sqlite_url.removeprefix("sqlite:///")):
            pause(HELD_SECONDS)
        journeys.wait_for("accepted", 5)
        outage.assert_whole()
        for worker in outage.workers:
            said = [line for line in worker.complained if "the database takes no writes" in line]
            assert len(said) == 1, worker.report()
        outage.wait_until_logged("the database takes writes again", 2)
        assert outage.query("SELECT count(*) FROM {worker} WHERE ended_at IS NULL") == [(2,)]


# --- a process that is frozen in a write ----------------------------------------------------------------------------------
def test_a_child_that_is_frozen_in_a_write_is_killed_by_its_supervisor(sqlite_url, tmp_path):
    """A worker process frozen while it holds the file's lock blocks everybody until its supervisor kills it past its lease; then all runs end."""
    with Outage(sqlite_url, tmp_path) as outage:
        caller = outage.call("journey", "--callers", "2", "--pause", "0.05", "--insists")
        with Supervised(sqlite_url, tmp_path, lease="6s") as supervised:
            outage.wait_until("both execute", lambda: {body["pid"] for body in outage.bodies()} >= set(supervised.children))
            frozen = freeze_in_a_write(outage, supervised.children)
            while supervised.next("worker_process_silent")["pid"] != frozen:
                pass  # with so short a lease whoever waits for the file may be silent too
            caller.wait_for("accepted", 5)
            outage.assert_whole()


def freeze_in_a_write(outage, children):
    """Freeze one of these processes at a moment at which nobody else can write, and return it."""
    moved = threading.Event()
    for child in itertools.islice(itertools.cycle(children), 4000):
        os.kill(child, signal.SIGSTOP)
        if not outage.can_write() and not outage.can_write():
            return child
        os.kill(child, signal.SIGCONT)
        moved.wait(0.003)
    raise AssertionError("no process was ever inside of a write")


# --- two containers -----------------------------------------------------------------------------------------------------------
@pytest.fixture
def container(tmp_path):
    """What starts a program in namespaces of its own for process ids and mounts, where the folder has another name too."""
    if os.geteuid():
        pytest.skip("only root can make a namespace of process ids")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "files").mkdir()
    mount = f'mount --bind {tmp_path / "files"} {elsewhere} && exec "$@"'
    return ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", mount, "sh"), f"sqlite:///{elsewhere / 'outlast.db'}"


def test_workers_of_two_containers_see_each_other_live_and_die(container, tmp_path):
    """Two workers, both process 1 of their container, on one file under two names: neither is taken for dead while it lives, and a killed one is."""
    within, inner_url = container
    with Outage(f"sqlite:///{tmp_path / 'files' / 'outlast.db'}", tmp_path) as outage:
        victim = outage.work("--lease", "10m", url=inner_url, within=within)
        other = outage.work("--lease", "10m", url=inner_url, within=within)
        caller = outage.call("journey", "--callers", "2", "--pause", "0.1", "--insists")
        caller.wait_for("accepted", 60)
        assert not [line for worker in (victim, other) for line in worker.said if line.startswith(("worker_ended", "lease_lost"))]
        assert {body["pid"] for body in outage.bodies()} == {1}, "they share a namespace: there was no fault"
        outage.enqueue_now("--kind", "held", "--count", "2")
        victim.wait_for("step_attempt_started")
        with suppress(ProcessLookupError):
            os.killpg(victim.process.pid, signal.SIGKILL)
        outage.workers.remove(victim)
        assert '"end": "dead"' in other.wait_for("worker_ended")
        (tmp_path / "go").touch()
        caller.wait_for("accepted", 5)
        outage.assert_whole()
