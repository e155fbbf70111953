"""Outage: a world of crash tests whose database goes away and comes back under workers and callers that nobody restarts.

What is held after an outage is the same whatever it was: every run that a caller was told about is there and has ended
well, none that he was told does not exist is there, and no finished step ran again.
"""

import signal
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.crash.journey import expected_total
from tests.crash.world import PATIENCE, Child, World

CLIENT = Path(__file__).with_name("client.py")
RESULTS: dict[str, Callable[[int], str]] = {"journey": lambda number: f'"published-{number}"', "once": lambda number: str(number * 10)}
STEPS = {"journey": 7, "once": 1}


class Answer(NamedTuple):
    """What a caller was told about one number."""

    word: str
    number: int
    seconds: float
    run: str


class Caller:
    """A process that enqueues until it is told to stop."""

    def __init__(self, child: Child, kind: str, *, insists: bool) -> None:
        self.child = child
        self.kind = kind
        self.insists = insists

    def wait_for(self, word: str, more: int = 1) -> None:
        """Wait until so many more calls were answered with this word."""
        self.child.wait_for(word, count=len(self.told(word)) + more)

    def told(self, *words: str) -> list[Answer]:
        """What was answered with these words so far; with none, everything."""
        answers = [(*line.split(), "")[:4] for line in list(self.child.said)]
        return [Answer(word, int(number), float(seconds), run) for word, number, seconds, run in answers if not words or word in words]

    def stop(self) -> None:
        """Let it finish what it has begun, and end."""
        self.child.signal(signal.SIGTERM)
        assert self.child.wait() == 0, self.child.report()


class Outage(World):
    """See the file's description. `url` is asked; workers and callers may be given another address of the same database."""

    def __init__(self, url: str, folder: Path) -> None:
        super().__init__(url, folder)
        self.workers: list[Child] = []
        self.callers: list[Caller] = []

    def __enter__(self) -> "Outage":
        return self

    def work(self, *options: str, url: str | None = None, within: Sequence[str] = ()) -> Child:
        """Start a worker, and return it when it claims."""
        worker = self._start("execute", url or self.url, "--concurrency", "40", *options, within=within)
        self.workers.append(worker)
        worker.wait_for("worker_started")
        return worker

    def call(self, kind: str, *options: str, url: str | None = None) -> Caller:
        """Start callers of one kind, and return them when the first was accepted."""
        caller = Caller(self._start(url or self.url, "--kind", kind, *options, program=CLIENT), kind, insists="--insists" in options)
        self.callers.append(caller)
        caller.wait_for("accepted")
        return caller

    def stop_calls(self) -> None:
        for caller in self.callers:
            caller.stop()

    def logged(self, words: str) -> int:
        """How often workers have said this in their logs."""
        return sum(words in line for worker in self.workers for line in list(worker.complained))

    def wait_until_logged(self, words: str, count: int = 1) -> None:
        self.wait_until(f"the log has {words!r} {count} times", lambda: self.logged(words) >= count)

    # --- what must hold ----------------------------------------------------------------------------------------------------
    def assert_whole(self) -> None:
        """Stop the callers, wait for the end of everything, and hold what must hold after any outage."""
        self.stop_calls()
        self.wait_until_all()
        self._assert_nobody_was_restarted()
        for caller in self.callers:
            self._assert_told_the_truth(caller)
        self._assert_each_ended_once()
        self._assert_no_finished_step_ran_again()

    def _assert_nobody_was_restarted(self) -> None:
        for worker in self.workers:
            assert worker.process.poll() is None, worker.report()

    def _assert_told_the_truth(self, caller: Caller) -> None:
        rows = self.query("SELECT run.kind, CAST(run.id AS text), CAST(body.input AS text) FROM {run} run JOIN {run_body} body ON body.run = run.id")
        there = {run: int(input) for kind, run, input in rows if kind == caller.kind}
        asked, count = {answer.number for answer in caller.told()}, Counter(there.values())
        accepted = caller.told("accepted")
        assert len(accepted) == len({answer.number for answer in accepted})
        assert {answer.run: answer.number for answer in accepted}.items() <= there.items(), "a run that was accepted is lost"
        assert set(count) <= asked
        assert not [number for number in count if count[number] > 1], "one call made two runs"
        if caller.insists:
            assert {answer.number for answer in accepted} == asked
        else:
            assert not [answer for answer in caller.told("refused") if answer.number in count], "a run exists that a caller was told does not"
        slow = [answer for answer in caller.told() if answer.seconds > PATIENCE / 4]
        assert not slow, "a call took much longer than its ten seconds"

    def _assert_each_ended_once(self) -> None:
        rows = self.query(
            "SELECT run.kind, CAST(body.input AS text), CAST(body.output AS text), (SELECT count(*) FROM {step} step WHERE step.run = run.id)"
            " FROM {run} run JOIN {run_body} body ON body.run = run.id"
        )
        for kind, input, output, steps in rows:
            if kind in RESULTS:
                assert (output, steps) == (RESULTS[kind](int(input)), STEPS[kind]), (kind, input)
            if kind == "journey":
                assert (self.folder / f"published-{input}").read_text() == str(expected_total(int(input)))

    def _assert_no_finished_step_ran_again(self) -> None:
        """No step's body began under a later claim than the one that recorded it, and none twice as the same attempt of one claim."""
        records = {
            (str(run), f"{path}/{name}" if path else name): token
            for run, path, name, token in self.query("SELECT CAST(run AS text), path, name, token FROM {step} WHERE number = 0")
        }
        bodies = self.bodies()
        assert not [body for body in bodies if body["token"] > records[body["run"], body["step"]]], "a finished step ran again"
        attempts = Counter((body["run"], body["step"], body["token"], body["attempt"]) for body in bodies)
        assert not [attempt for attempt, count in attempts.items() if count > 1], "two bodies had one claim of one run"


def pause(seconds: float) -> None:
    """Let time pass: an outage of a certain length is the fault itself."""
    threading.Event().wait(seconds)
