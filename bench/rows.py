"""Rows: what the results say, one figure of one trial a row, and what is to be reached. Pure: figures in, verdicts out."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    """The figures of one side over all rounds."""

    median: float
    lowest: float
    highest: float
    rounds: int

    @classmethod
    def of(cls, figures: Sequence[float]) -> "Spread":
        """Return the spread of at least one figure."""
        return cls(statistics.median(figures), min(figures), max(figures), len(figures))


@dataclass(frozen=True)
class Goal:
    """What outlast's median is to reach: a ratio to another side's, or, without one, a figure not to exceed."""

    against: str | None
    reach: float
    least: float | None = None
    """What must be reached at the very least, where that is less."""

    def verdict(self, medians: Mapping[str, float]) -> str:
        """Say in words how far it is reached, or nothing where a side was not measured."""
        ours = medians.get("outlast")
        theirs = medians.get(self.against) if self.against else 0.0
        if ours is None or theirs is None:
            return ""
        if self.against is None:
            return f"{'reached' if ours <= self.reach else 'MISSED'} (at most {self.reach:,g})"
        ratio = ours / theirs
        least = self.least or self.reach
        word = "reached" if ratio >= self.reach else "least reached" if ratio >= least else "MISSED"
        return f"{ratio:.2f} x, {word} ({_goal_text(self)})"


def _goal_text(goal: Goal) -> str:
    return f"{goal.reach:g} x" + (f", least {goal.least:g} x" if goal.least else "")


@dataclass(frozen=True)
class Row:
    """One line of the results."""

    trial: str
    figure: str
    title: str
    unit: str
    goals: tuple[Goal, ...] = ()
    beside: str | None = None
    """Where nothing is to be reached: the side that the others are shown as a ratio to."""


@dataclass(frozen=True)
class Result:
    """A row with what was measured for it, by side."""

    row: Row
    sides: Mapping[str, Spread]

    def verdicts(self) -> dict[str, str]:
        """Return the verdict beside each side: a ratio beside the side it compares with, a bound beside outlast; or ratios without a goal."""
        medians = {side: spread.median for side, spread in self.sides.items()}
        if self.row.beside in medians:
            return {side: f"{median / medians[self.row.beside]:.2f} x {self.row.beside}" for side, median in medians.items() if side != self.row.beside}
        return {goal.against or "outlast": goal.verdict(medians) for goal in self.row.goals}


_SHARE = Goal("batched SQL", 0.5)

ROWS = (
    Row("one_step", "rate", "runs of one trivial step, 5,000 waiting, 100 at once", "runs/s", (Goal("OpenWorkflow", 20, 10), _SHARE)),
    Row("ten_steps", "rate", "runs of ten steps in sequence, 2,000 waiting, 100 at once", "steps/s", (Goal("OpenWorkflow", 20, 10), _SHARE)),
    Row("enqueue_single", "rate", "enqueue, one by one", "runs/s", (Goal("OpenWorkflow", 1),)),
    Row("enqueue_fifty", "rate", "enqueue, 50 at once", "runs/s", (Goal("OpenWorkflow", 3),)),
    Row("enqueue_many", "rate", "enqueue_many of 20,000", "runs/s", (Goal("OpenWorkflow", 7),)),
    Row("two_workers", "rate", "two worker processes, 20,000 waiting", "runs/s", (Goal("outlast, one worker", 1.5),)),
    Row("one_call", "rate", "runs of one call, 2,000 waiting, 100 at once", "runs/s", beside="outlast, plain step"),
    Row("latency", "median", "idle: enqueue to the body's first line, median", "ms", (Goal(None, 4),)),
    Row("latency", "p99", "idle: enqueue to the body's first line, 99th percentile", "ms", (Goal(None, 10),)),
    Row("wake", "median", "signal to the next line of one of 10,000 waiting bodies, median", "ms", (Goal(None, 50),)),
    Row("wake", "p99", "signal to the next line of one of 10,000 waiting bodies, 99th percentile", "ms"),
    Row("takeover", "seconds", "takeover after kill -9, default settings", "s", (Goal(None, 3),)),
    Row("crowd", "rate", "the first 5,000 runs with 100,000 waiting behind them", "runs/s", (Goal("outlast, none waiting behind", 0.9),)),
    Row("past", "rate", "5,000 runs with 1,000,000 finished ones beside them", "runs/s", (Goal("outlast, none finished", 0.9),)),
    Row("one_step", "cpu", "processor time of the worker process for a run of one step", "us"),
    Row("ten_steps", "cpu", "processor time of the worker process for one of ten steps", "us"),
    Row("one_call", "cpu", "processor time of the worker process for a run of one call", "us", beside="outlast, plain step"),
    Row("one_step", "memory", "peak memory of a worker at 100 at once", "MiB", (Goal(None, 60),)),
    Row("import", "milliseconds", "import outlast", "ms", (Goal(None, 100),)),
)


def results(figures: Mapping[str, Mapping[str, Sequence[Mapping[str, float]]]]) -> list[Result]:
    """Bring figures, by trial, side and round, into the rows for which there are any."""
    return [
        Result(row, {side: Spread.of([one[row.figure] for one in rounds]) for side, rounds in figures[row.trial].items() if rounds})
        for row in ROWS
        if any(figures.get(row.trial, {}).values())
    ]
