"""Transitions: the one table of allowed changes, and what becomes of a run whose worker is not alive."""

import itertools
from datetime import timedelta

from outlast.limits import RECOVERY_DELAY_MAX
from outlast.native.store import Hold, Orphan, Recovery
from outlast.native.transitions import ALLOWED, RETRYABLE, recovery_delay, recovery_of
from outlast.run import RunStatus

TERMINAL = {status for status in RunStatus if status.is_terminal}


def orphan(**facts) -> Orphan:
    given = {"recoveries": 0, "losses": 0, "strikes": 0, "loss_mark": 0, "progress_mark": 0, "has_ended_worker": True} | facts
    return Orphan(hold=HOLD, **given)


HOLD = Hold("0190a6e0-0000-7000-8000-000000000000", 7)


def lose(run: Recovery, progress_mark: int) -> Recovery:
    """Lose the worker of a run that was claimed again after `run`."""
    return recovery_of(orphan(recoveries=run.recoveries, losses=run.losses, strikes=run.strikes, loss_mark=run.loss_mark, progress_mark=progress_mark))


FRESH = Recovery(HOLD, RunStatus.PENDING, timedelta(0), 0, 0, 0, 0, None)


# --- the table ----------------------------------------------------------------------------------------------------------
def test_nothing_leaves_succeeded():
    """A result is final, also for an operator."""
    assert not [pair for pair in ALLOWED if pair[0] is RunStatus.SUCCEEDED]


def test_only_operators_move_what_is_over():
    """Out of a terminal state lead a retry and a discard, and nothing else."""
    leaving = {pair for pair in ALLOWED if pair[0] in TERMINAL}
    assert leaving == {(status, RunStatus.PENDING) for status in RETRYABLE} | {
        (RunStatus.FAILED, RunStatus.CANCELED),
        (RunStatus.DEAD, RunStatus.CANCELED),
    }


def test_only_what_runs_succeeds_or_dies():
    """A run that nobody executes cannot end by itself."""
    for status in (RunStatus.SUCCEEDED, RunStatus.DEAD):
        assert [before for before, after in ALLOWED if after is status] == [RunStatus.RUNNING]


def test_only_what_is_pending_is_claimed():
    """The claim looks at one state only."""
    assert [before for before, after in ALLOWED if after is RunStatus.RUNNING] == [RunStatus.PENDING]


def test_every_state_that_is_not_over_can_be_left_and_every_state_is_reached():
    """No state is a dead end, and none is unreachable."""
    assert {before for before, _ in ALLOWED if before is not None} == set(RunStatus) - {RunStatus.SUCCEEDED}
    assert {after for _, after in ALLOWED} == set(RunStatus)


# --- poison -------------------------------------------------------------------------------------------------------------
def test_poison_is_dead_after_exactly_five_claims():
    """Two losses make a suspect, three more are the strikes: the sixth claim never comes."""
    seen, run = [], FRESH
    while run.status is not RunStatus.DEAD:
        run = lose(run, progress_mark=0)
        seen.append((run.status, run.losses, run.strikes, run.recoveries))
        assert len(seen) <= 5
    assert seen == [
        (RunStatus.PENDING, 1, 0, 1),
        (RunStatus.WAITING, 2, 0, 2),
        (RunStatus.WAITING, 3, 1, 3),
        (RunStatus.WAITING, 4, 2, 4),
        (RunStatus.DEAD, 5, 3, 5),
    ]
    assert run.error is not None
    assert "lost 3 times" in run.error.message


def test_innocent_that_makes_progress_never_dies():
    """With something recorded between the losses the machine is at fault, however often."""
    run = FRESH
    for claim in range(1, 200):
        run = lose(run, progress_mark=claim)
        assert (run.status, run.losses, run.strikes) == (RunStatus.PENDING, 1, 0)


def test_nobody_is_struck_without_three_losses_in_a_row_with_nothing_between():
    """Every history of losses that has something recorded before at least every second one stays free of strikes."""
    patterns = [p for p in itertools.product([False, True], repeat=9) if all(p[i] or p[i + 1] for i in range(1, 8))]
    assert len(patterns) > 100
    for pattern in patterns:
        run, mark = FRESH, 0
        for has_progress in pattern:
            mark += has_progress
            run = lose(run, mark)
            assert run.strikes == 0, pattern


def test_strikes_are_kept_while_the_count_of_losses_begins_anew():
    """Progress clears the suspicion and not what was proven."""
    run = FRESH
    for mark in (0, 0, 0):
        run = lose(run, mark)
    assert (run.losses, run.strikes) == (3, 1)
    run = lose(run, 5)
    assert (run.losses, run.strikes, run.status) == (1, 1, RunStatus.PENDING)
    run = lose(run, 5)
    assert (run.losses, run.strikes) == (2, 1)
    assert lose(run, 5).strikes == 2


def test_run_of_a_worker_that_stopped_by_itself_counts_nothing():
    """A stop is no loss: the run is pending at once with every counter as it was."""
    stopped = recovery_of(orphan(recoveries=4, losses=3, strikes=2, loss_mark=9, progress_mark=12, has_ended_worker=False))
    assert stopped == Recovery(HOLD, RunStatus.PENDING, timedelta(0), 4, 3, 2, 9, None)


def test_recovery_remembers_how_far_the_run_was():
    """The next loss compares with this one, not with the first."""
    assert recovery_of(orphan(progress_mark=6)).loss_mark == 6


def test_recovery_is_at_once_first_and_backs_off_to_its_bound():
    """The delay never shrinks, starts at nothing and ends at a minute, for any count."""
    delays = [recovery_delay(losses) for losses in (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 100, 10**6)]
    assert delays[:4] == [timedelta(0), timedelta(0), timedelta(seconds=1), timedelta(seconds=2)]
    assert delays == sorted(delays)
    assert delays[-1] == RECOVERY_DELAY_MAX


def test_a_delayed_recovery_waits_and_an_immediate_one_is_pending():
    """What is claimable later has a wake time; the two never disagree."""
    for losses in range(4):
        run = recovery_of(orphan(losses=losses))
        assert (run.status is RunStatus.WAITING) == bool(run.delay)
