"""The benchmark's rows fit its trials, and each goal is shown beside the side that it is compared with."""

import pytest
from bench.report import as_markdown, as_text
from bench.rows import ROWS, Goal, Result, Row, Spread
from bench.trials import TRIALS, WARM_UP, delays

SIDES = {trial.key: list(trial.sides) for trial in TRIALS}
BESIDE = {(row.trial, row.figure): [goal.against or "outlast" for goal in row.goals] for row in ROWS}


def test_every_goal_has_its_row() -> None:
    """What is to be reached is measured: rates beside peers and beside SQL, a second worker, latency, waking, takeover, growth, memory, import."""
    assert {key: beside for key, beside in BESIDE.items() if beside} == {
        ("one_step", "rate"): ["OpenWorkflow", "batched SQL"],
        ("ten_steps", "rate"): ["OpenWorkflow", "batched SQL"],
        ("enqueue_single", "rate"): ["OpenWorkflow"],
        ("enqueue_fifty", "rate"): ["OpenWorkflow"],
        ("enqueue_many", "rate"): ["OpenWorkflow"],
        ("two_workers", "rate"): ["outlast, one worker"],
        ("latency", "median"): ["outlast"],
        ("latency", "p99"): ["outlast"],
        ("wake", "median"): ["outlast"],
        ("takeover", "seconds"): ["outlast"],
        ("crowd", "rate"): ["outlast, none waiting behind"],
        ("past", "rate"): ["outlast, none finished"],
        ("one_step", "memory"): ["outlast"],
        ("import", "milliseconds"): ["outlast"],
    }


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.trial} {row.figure}")
def test_a_row_compares_with_sides_that_are_measured(row: Row) -> None:
    """A goal against a side that no trial measures would never be judged."""
    assert (row.beside or "outlast") in SIDES[row.trial]
    assert not (row.beside and row.goals), "a row is judged, or shows ratios"
    assert set(BESIDE[row.trial, row.figure]) <= set(SIDES[row.trial])


def test_what_durable_calls_cost_is_shown_beside_a_plain_step() -> None:
    """A ratio stands beside each other side, on the terminal and on the page, where nothing is to be reached."""
    rows = [row for row in ROWS if row.trial == "one_call"]
    assert [row.figure for row in rows] == ["rate", "cpu"]
    plain, *others = SIDES["one_call"]
    assert all(row.beside == plain for row in rows)
    sides = {plain: Spread.of([400.0])} | {side: Spread.of([100.0 * number]) for number, side in enumerate(others, 1)}
    result = Result(rows[0], sides)
    assert result.verdicts() == {side: f"{number / 4:.2f} x {plain}" for number, side in enumerate(others, 1)}
    assert f"| {others[0]} | 100 | 100 - 100 | 0.25 x {plain} |" in as_markdown({}, [result], rounds=1, is_short=False)
    assert f"0.25 x {plain}" in as_text([result], is_short=False)


def test_delays_are_those_after_the_warm_up() -> None:
    """Each number's end minus its own beginning, in whatever order they were told; the first ones count for nothing."""
    late = dict.fromkeys(range(WARM_UP), 9_000_000_000)
    asked = {number: 1_000_000 * number for number in range(WARM_UP + 100)}
    begun = late | {WARM_UP + place: asked[WARM_UP + place] + 1_000_000 * (place + 1) for place in reversed(range(100))}
    assert delays(asked, begun) == {"median": 50.5, "p99": 99.0}


@pytest.mark.parametrize(
    ("goal", "ours", "theirs", "verdict"),
    [
        (Goal("peer", 20, 10), 200.0, 10.0, "20.00 x, reached (20 x, least 10 x)"),
        (Goal("peer", 20, 10), 199.0, 10.0, "19.90 x, least reached (20 x, least 10 x)"),
        (Goal("peer", 20, 10), 99.0, 10.0, "9.90 x, MISSED (20 x, least 10 x)"),
        (Goal(None, 3), 3.0, 10.0, "reached (at most 3)"),
        (Goal(None, 3), 3.1, 10.0, "MISSED (at most 3)"),
        (Goal("nobody", 1), 3.1, 10.0, ""),
    ],
)
def test_a_goal_is_judged_and_shown(goal: Goal, ours: float, theirs: float, verdict: str) -> None:
    """On the terminal and on the page, a ratio beside the peer and a bound beside our own figure."""
    row = Row("one_step", "rate", "a title", "runs/s", (goal,))
    result = Result(row, {"outlast": Spread.of([ours]), "peer": Spread.of([theirs])})
    assert result.verdicts() == {goal.against or "outlast": verdict}
    shown = [line for line in as_markdown({}, [result], rounds=1, is_short=False).splitlines() if line.startswith("|")][2:]
    expected = {"peer": verdict if goal.against == "peer" else "", "outlast": verdict if goal.against is None else ""}
    assert [line.split(" | ")[-1].removesuffix(" |").strip() for line in shown] == [expected["outlast"], expected["peer"]]
    assert not verdict or verdict in as_text([result], is_short=False)
