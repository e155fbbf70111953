"""The supervisor with real processes: children that die, freeze or do not stop, and a supervisor that is killed.

The children are small programs that speak the supervisor's protocol, so that what they do is exactly known. What is
asserted is which processes live.
"""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from outlast.cli.supervisor import Supervisor

SECONDS_MAX = 30.0
SOURCE = str(Path(__file__).parents[2] / "src")

CHILD = """
import json, os, signal, sys, threading, time
way, log, pipes = sys.argv[1], sys.argv[2], sys.argv[-1]
lifeline, messages = map(int, pipes.split(":"))
def tell(event, **facts):
    os.write(messages, json.dumps({"event": event, **facts}).encode() + b"\\n")
with open(log, "a") as file:
    file.write(f"{os.getpid()}\\n")
if way == "wrong":
    sys.exit(2)
if way == "crash":
    sys.exit(1)
def orphaned():
    os.read(lifeline, 1)
    os._exit(1)
threading.Thread(target=orphaned, daemon=True).start()
stopped = threading.Event()
signal.signal(signal.SIGTERM, (lambda *_: None) if way == "stubborn" else lambda *_: stopped.set())
tell("hello", lease=1.0)
tell("worker_started")
with open(log + ".ready", "a") as file:
    file.write(f"{os.getpid()}\\n")
while not stopped.wait(0.05):
    tell("lease_renewed")
sys.exit(1 if way == "leaves" else 0)
"""

PARENT = """
import json, sys
from outlast.cli.supervisor import Supervisor
from outlast.cli.worker_process import WorkerProcess
way, program, log, count, stop_timeout = sys.argv[1:]
def report(event, /, **facts):
    print(json.dumps({"event": event, **facts}), flush=True)
start = lambda: WorkerProcess([sys.executable, program, way, log])
sys.exit(Supervisor(start, int(count), stop_timeout=float(stop_timeout), report=report).run())
"""


class Supervised:
    """A supervisor in a process of its own."""

    def __init__(self, folder, way, count, stop_timeout):
        self.log = folder / "children"
        (folder / "child.py").write_text(CHILD)
        arguments = [way, str(folder / "child.py"), str(self.log), str(count), str(stop_timeout)]
        environment = os.environ | {"PYTHONPATH": SOURCE}
        self.process = subprocess.Popen([sys.executable, "-c", PARENT, *arguments], stdout=subprocess.PIPE, text=True, env=environment)

    def event(self, name):
        """Wait for an event of this name; return its facts."""
        for line in self.process.stdout:
            facts = json.loads(line)
            if facts["event"] == name:
                return facts
        pytest.fail(f"the supervisor ended with {self.process.wait()} before it said {name}")

    def end(self):
        """Wait for the supervisor's end; return its exit code."""
        return self.process.wait(SECONDS_MAX)

    def wait_until_ready(self, count=1):
        """Wait until so many children renew their leases and listen for signals."""
        ready = Path(f"{self.log}.ready")
        end = time.monotonic() + SECONDS_MAX
        while not ready.exists() or len(ready.read_text().split()) < count:
            assert time.monotonic() < end, f"{count} children were never ready"
            time.sleep(0.01)

    def children(self):
        """All children that it ever started."""
        return [int(line) for line in self.log.read_text().split()] if self.log.exists() else []


@pytest.fixture
def supervise(tmp_path):
    """Start a supervisor of children that behave in a given way; nothing of it is left afterwards."""
    started = []

    def start(way, *, count=1, stop_timeout=5.0):
        started.append(Supervised(tmp_path, way, count, stop_timeout))
        return started[-1]

    yield start
    for supervised in started:
        supervised.process.kill()
        supervised.process.wait()
        supervised.process.stdout.close()
    for pid in started[0].children():
        wait_until_gone(pid)


def wait_until_gone(pid):
    """Wait for a process's end, with a limit that names it."""
    end = time.monotonic() + SECONDS_MAX
    while is_alive(pid):
        assert time.monotonic() < end, f"process {pid} lives on"
        time.sleep(0.01)


def is_alive(pid):
    """Whether a process lives; one that ended and was not reaped does not."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_a_killed_child_is_started_again(supervise):
    """A child that dies is replaced after a second, and the report says how it died."""
    supervised = supervise("works")
    first = supervised.event("worker_process_started")["pid"]
    os.kill(first, signal.SIGKILL)
    ended = supervised.event("worker_process_ended")
    assert (ended["pid"], ended["exit_code"], ended["again_after_seconds"]) == (first, -signal.SIGKILL, 1.0)
    second = supervised.event("worker_process_started")["pid"]
    assert second != first
    supervised.process.send_signal(signal.SIGTERM)
    assert supervised.end() == 0
    assert not is_alive(second)


def test_a_child_that_dies_at_once_is_started_ever_later(supervise):
    """What cannot start is tried after 1, 2, 4 seconds and not in a loop."""
    supervised = supervise("crash")
    delays = [supervised.event("worker_process_ended")["again_after_seconds"] for _ in range(3)]
    assert delays == [1.0, 2.0, 4.0]


def test_a_frozen_child_is_killed_past_its_lease(supervise):
    """A child that says nothing for longer than its lease is killed, even though it is stopped, and replaced."""
    supervised = supervise("works")
    child = supervised.event("worker_process_started")["pid"]
    supervised.wait_until_ready()
    os.kill(child, signal.SIGSTOP)
    silent = supervised.event("worker_process_silent")
    assert silent["pid"] == child
    assert silent["seconds"] >= 1.0
    assert supervised.event("worker_process_ended")["exit_code"] == -signal.SIGKILL
    assert supervised.event("worker_process_started")["pid"] != child


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_all_children(supervise, number):
    """SIGTERM and SIGINT are passed on, and nothing being left is exit code 0."""
    supervised = supervise("works", count=3)
    pids = [supervised.event("worker_process_started")["pid"] for _ in range(3)]
    supervised.wait_until_ready(3)
    supervised.process.send_signal(number)
    assert supervised.end() == 0
    assert not any(is_alive(pid) for pid in pids)


def test_a_child_that_leaves_runs_is_told_by_the_exit_code(supervise):
    """If a child left runs whose bodies did not end, the supervisor's exit code is 1."""
    supervised = supervise("leaves")
    supervised.event("worker_process_started")
    supervised.wait_until_ready()
    supervised.process.send_signal(signal.SIGTERM)
    assert supervised.end() == 1


def test_a_second_signal_ends_at_once(supervise):
    """Whoever asks twice does not wait for the stop time-out: the children are killed."""
    supervised = supervise("stubborn", stop_timeout=600.0)
    child = supervised.event("worker_process_started")["pid"]
    supervised.wait_until_ready()
    supervised.process.send_signal(signal.SIGTERM)
    supervised.event("stopping")
    supervised.process.send_signal(signal.SIGTERM)
    assert supervised.end() == 1
    assert not is_alive(child)


def test_a_child_that_does_not_stop_is_killed(supervise):
    """Stopping ends within the stop time-out and a grace of five seconds, whatever a child does."""
    supervised = supervise("stubborn", stop_timeout=0.1)
    child = supervised.event("worker_process_started")["pid"]
    supervised.wait_until_ready()
    supervised.process.send_signal(signal.SIGTERM)
    assert supervised.end() == 1
    assert not is_alive(child)


def test_wrong_use_is_not_repeated(supervise):
    """A child that says it was used wrongly ends all, with exit code 2, instead of being started for ever."""
    supervised = supervise("wrong", count=2)
    assert supervised.end() == 2


def test_children_do_not_outlive_a_killed_supervisor(supervise):
    """A supervisor that is killed cannot stop its children; they see the end of its pipe and stop."""
    supervised = supervise("works", count=2)
    pids = [supervised.event("worker_process_started")["pid"] for _ in range(2)]
    supervised.wait_until_ready(2)
    supervised.process.kill()
    supervised.process.wait()
    for pid in pids:
        wait_until_gone(pid)


def test_a_child_that_cannot_be_started_is_tried_again():
    """A machine that has no process left for now does not end the supervisor: the start is tried again after a while."""
    reports = []

    def start():
        raise BlockingIOError(11, "Resource temporarily unavailable")

    def report(event, /, **facts):
        reports.append((event, facts.get("again_after_seconds")))
        if len(reports) == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    assert Supervisor(start, 1, stop_timeout=1.0, report=report).run() == 0
    assert reports[:2] == [("worker_process_not_started", 1.0), ("worker_process_not_started", 2.0)]
