"""The `outlast` program with a real engine: an application's runs under `outlast worker`, seen through the other commands."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SECONDS_MAX = 90.0
SOURCE = str(Path(__file__).parents[2] / "src")

APPLICATION = """
import os, pathlib, threading
from outlast import Context, connect, step, task, this_step

FOLDER = pathlib.Path(__file__).parent

def note(text):
    with (FOLDER / "notes").open("a") as file:
        file.write(f"{text} {os.getpid()}\\n")

@step
def gated(name: str) -> str:
    note(f"began {name}")
    while not (FOLDER / "gate").exists():
        this_step().raise_if_canceled()
        threading.Event().wait(0.02)
    return name

@step
def stubborn() -> None:
    note("began stubborn")
    while not (FOLDER / "gate").exists():
        threading.Event().wait(0.02)

@task
async def greet(ctx: Context, name: str) -> str:
    return "hello " + await ctx.step(gated, name)

@task
async def hang(ctx: Context) -> None:
    await ctx.step(stubborn)

@step
def divide(number: int) -> float:
    return number / 0

@task
async def fail(ctx: Context, number: int) -> float:
    return await ctx.step(divide.with_options(retry=__import__("outlast").RetryPolicy(maximum_attempts=1)), number)

engine = connect(os.environ["OUTLAST_DATABASE_URL"], tasks=(greet, hang, fail), lease=os.environ.get("LEASE_OF_TEST", "30s"))
"""


class Program:
    """The `outlast` program in an application's folder, on one database."""

    def __init__(self, folder, database_url):
        self.folder = folder
        (folder / "application.py").write_text(APPLICATION)
        self.environment = os.environ | {"PYTHONPATH": SOURCE, "OUTLAST_DATABASE_URL": database_url}
        self.started = []

    def start(self, *arguments):
        process = subprocess.Popen(
            [sys.executable, "-m", "outlast", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.environment, cwd=self.folder
        )
        self.started.append(process)
        return process

    def call(self, *arguments, code=0):
        """Run a command to its end; return what it printed as JSON."""
        process = self.start(*arguments, "--json")
        out, err = process.communicate(timeout=SECONDS_MAX)
        assert process.returncode == code, out + err
        return json.loads(out.splitlines()[-1]) if out else err

    def worker(self, *arguments):
        """Start a supervisor; return it with the process ids of its children."""
        process = self.start("worker", "--app", "application:engine", "--json", *arguments)
        return process, [event_of(process, "worker_process_started")["pid"]]

    def notes(self, count):
        """Wait until the application has noted so many things."""
        path = self.folder / "notes"
        end = time.monotonic() + SECONDS_MAX
        while not path.exists() or len(path.read_text().splitlines()) < count:
            assert time.monotonic() < end, f"{count} notes were never there"
            time.sleep(0.02)
        return path.read_text().splitlines()

    def open_gate(self):
        (self.folder / "gate").touch()


def event_of(process, name):
    """Wait for an event that a supervisor prints; return its facts."""
    for line in process.stdout:
        facts = json.loads(line)
        if facts["event"] == name:
            return facts
    pytest.fail(f"no {name}: {process.communicate()[1]}")


@pytest.fixture
def program(tmp_path, database_url):
    """The program on each database in turn; what it started is killed at the end."""
    program = Program(tmp_path, database_url)
    yield program
    for process in program.started:
        process.kill()
        process.communicate()


def test_a_run_outlasts_the_worker_that_is_killed(program):
    """A killed worker process is replaced, its run goes on, and the waiting caller gets the result."""
    supervisor, (child,) = program.worker()
    waiter = program.start("enqueue", "greet", '"ann"', "--app", "application:engine", "--wait", "60s")
    program.notes(1)
    os.kill(child, signal.SIGKILL)
    assert event_of(supervisor, "worker_process_ended")["exit_code"] == -signal.SIGKILL
    assert len({line.split()[-1] for line in program.notes(2)}) == 2
    program.open_gate()
    out, err = waiter.communicate(timeout=SECONDS_MAX)
    assert (waiter.returncode, out) == (0, '"hello ann"\n'), err
    (run,) = program.call("runs")["runs"]
    shown = program.call("show", run["id"])
    assert (shown["run"]["status"], shown["run"]["output"], shown["run"]["recoveries"]) == ("succeeded", "hello ann", 1)
    assert [step["key"] for step in shown["history"]] == ["gated"]
    assert {worker["end"] for worker in program.call("workers")["workers"]} == {"dead", None}
    supervisor.send_signal(signal.SIGTERM)
    assert supervisor.wait(SECONDS_MAX) == 0


def test_a_frozen_worker_is_killed_and_replaced(program):
    """A worker process that is frozen past its lease is killed by its supervisor, and its run goes on in the next one."""
    program.environment["LEASE_OF_TEST"] = "2s"
    supervisor, (child,) = program.worker()
    run = program.call("enqueue", "greet", '"bob"')
    program.notes(1)
    os.kill(child, signal.SIGSTOP)
    assert event_of(supervisor, "worker_process_silent")["pid"] == child
    assert event_of(supervisor, "worker_process_started")["pid"] != child
    program.notes(2)
    program.open_gate()
    again = program.call("enqueue", "greet", '"bob"', "--key", "k", "--wait", "60s")
    assert again["output"] == "hello bob"
    assert program.call("show", run["id"])["run"]["status"] in ("running", "succeeded")
    supervisor.send_signal(signal.SIGTERM)
    assert supervisor.wait(SECONDS_MAX) == 0


def test_a_body_that_does_not_end_is_told_by_the_exit_code(program):
    """A worker that had to leave a run behind at its stop time-out ends with exit code 1."""
    supervisor, _ = program.worker("--stop-timeout", "1s")
    program.call("enqueue", "hang")
    program.notes(1)
    supervisor.send_signal(signal.SIGTERM)
    assert event_of(supervisor, "worker_process_stopped")["exit_code"] == 1
    assert supervisor.wait(SECONDS_MAX) == 1


def test_failed_canceled_and_retried_runs(program):
    """Failing is exit code 1 with the error; a failed run is retried; a pending one is canceled, and then nothing more can be."""
    supervisor, _ = program.worker()
    ended = program.call("enqueue", "fail", "3", "--wait", "60s", code=1)
    assert ended["status"] == "failed"
    assert "ZeroDivisionError" in json.dumps(ended["error"])
    assert program.call("retry", ended["id"])["id"] == ended["id"]
    waiting = program.call("enqueue", "greet", '"eve"', "--delay", "1h")
    assert program.call("cancel", waiting["id"])["outcome"] == "canceled"
    assert program.call("runs", "--status", "canceled")["runs"][0]["id"] == waiting["id"]
    done = program.call("enqueue", "greet", '"eve"')
    program.open_gate()
    assert program.call("enqueue", "greet", '"last"', "--wait", "60s")["output"] == "hello last"
    assert done["created"]
    supervisor.send_signal(signal.SIGINT)
    assert supervisor.wait(SECONDS_MAX) == 0


def test_several_processes_share_the_work(program):
    """`--processes 2` starts two, and each is listed as a living worker."""
    supervisor, _ = program.worker("--processes", "2", "--concurrency", "1")
    event_of(supervisor, "worker_process_started")
    for name in ("a", "b"):
        program.call("enqueue", "greet", f'"{name}"')
    assert len({line.split()[-1] for line in program.notes(2)}) == 2
    assert len(program.call("workers", "--alive")["workers"]) == 2
    program.open_gate()
    supervisor.send_signal(signal.SIGTERM)
    assert supervisor.wait(SECONDS_MAX) == 0


def test_an_application_that_is_not_there_ends_the_worker(program):
    """A wrong --app ends the supervisor with exit code 2 and says what to write."""
    process = program.start("worker", "--app", "application:no_engine", "--processes", "2")
    _, err = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 2
    assert "connect()" in err
