"""RetryPolicy: when it is tried again and when not."""

import copy
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.errors import FinalError, UsageError
from outlast.failure import Failure, capture
from outlast.retry import FILES, NETWORK, ONCE, STEP_DEFAULT, RetryPolicy

SECOND = timedelta(seconds=1)
ROUNDING = timedelta(microseconds=2)
policies = st.builds(
    lambda delays, factor, jitter: RetryPolicy(initial_delay=min(delays), maximum_delay=max(delays), factor=factor, jitter=jitter),
    st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)),
    st.floats(1, 100),
    st.floats(0, 1),
)
randoms = st.floats(0, 1, exclude_max=True)


@given(policies, st.integers(0, 10**6), randoms)
def test_delay_is_finite_and_inside_its_bounds(policy, attempts, random):
    """For any policy and any number of attempts the delay is a duration between zero and the maximum."""
    assert timedelta(0) <= policy.delay(attempts, random) <= policy.maximum + ROUNDING


@given(policies, st.integers(0, 10**6), randoms)
def test_jitter_stays_inside_its_share(policy, attempts, random):
    """The delay is within the share of what it would be without jitter, or mirrored at the maximum."""
    middle = policy.delay(attempts, 0.5)
    low = middle * (1 - policy.jitter)
    high = min(middle * (1 + policy.jitter), policy.maximum)
    assert low - ROUNDING <= policy.delay(attempts, random) <= high + ROUNDING


@given(policies, st.integers(0, 10**6), st.integers(0, 10**6))
def test_delay_never_shrinks_with_attempts(policy, first, second):
    """Without jitter a later attempt never waits less than an earlier one."""
    first, second = sorted((first, second))
    assert policy.delay(first, 0.5) <= policy.delay(second, 0.5) + ROUNDING


@pytest.mark.parametrize("factor", [1.001, 1.1, 2.0, 100.0])
def test_every_growing_delay_reaches_the_maximum(factor):
    """However slowly it grows, the delay arrives at its cap and stays there."""
    policy = RetryPolicy(initial_delay="1s", maximum_delay="1h", factor=factor, jitter=0)
    assert policy.delay(20_000, 0) == timedelta(hours=1)
    assert policy.delay(10**6, 0) == timedelta(hours=1)


def test_delays_of_the_defaults():
    """One second, doubled, at most a minute."""
    plain = RetryPolicy(jitter=0)
    assert [plain.delay(attempts, 0) / SECOND for attempts in (0, 1, 2, 3, 6, 7, 8)] == [1, 1, 2, 4, 32, 60, 60]


def test_what_failed_together_comes_back_apart_also_at_the_maximum():
    """The spread is not cut off at the cap: no two of a hundred evenly spread retries fall on one moment."""
    policy = RetryPolicy(initial_delay="60s", maximum_delay="60s", jitter=0.2)
    delays = {policy.delay(9, number / 101) for number in range(101)}
    assert len(delays) > 50
    assert timedelta(seconds=59) < max(delays) <= timedelta(seconds=60)
    assert sum(delay == timedelta(seconds=60) for delay in (policy.delay(9, number / 101) for number in range(101))) <= 1


def test_no_delay_stays_no_delay():
    """A policy without a delay retries at once, for ever, also where its factor would overflow."""
    assert RetryPolicy(initial_delay=0, factor=100.0).delay(10**6, 0.9) == timedelta(0)


# --- exhausted or final ---------------------------------------------------------------------------------------------------
def test_attempts_are_counted_with_the_first():
    """Three attempts means three."""
    failure = Failure("builtins.OSError", "")
    assert [RetryPolicy(maximum_attempts=3).is_exhausted(attempts, failure) for attempts in (1, 2, 3, 4)] == [False, False, True, True]
    assert ONCE.is_exhausted(1, failure)


class TeapotError(LookupError):
    """An error of the test's own."""


FINAL = RetryPolicy(maximum_attempts=9, final=(LookupError, TimeoutError))


@pytest.mark.parametrize(
    ("error", "is_final"),
    [
        (LookupError(), True),
        (TeapotError(), True),
        (KeyError("x"), True),
        (TimeoutError(), True),
        (OSError(), False),
        (ValueError(), False),
        (FinalError("no"), True),
        (ExceptionGroup("g", [ValueError(), KeyError("x")]), True),
        (ExceptionGroup("g", [ExceptionGroup("h", [OSError(), TeapotError()])]), True),
        (ExceptionGroup("g", [ValueError(), ExceptionGroup("h", [FinalError("no")])]), True),
        (ExceptionGroup("g", [ValueError(), OSError()]), False),
    ],
    ids=repr,
)
def test_final_errors_are_known_by_name_with_those_below_them_and_in_groups(error, is_final):
    """One final member is enough; a class counts with its subclasses; `FinalError` needs no policy."""
    assert FINAL.is_final(capture(error)) is is_final
    assert FINAL.is_exhausted(1, capture(error)) is is_final


def test_a_final_cause_does_not_make_an_error_final():
    """What an error came from was handled by whoever raised the error."""
    error = OSError()
    error.__cause__ = KeyError("x")
    assert capture(error).cause is not None
    assert not FINAL.is_final(capture(error))


# --- wrong settings ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("setting", "value", "remedy"),
    [
        *(("maximum_attempts", value, "write a whole number from 1 to 1,000,000") for value in (0, -1, 1_000_001, 2.0, True, "3", None)),
        *(("factor", value, "write a number from 1 to 100") for value in (0.99, 101, float("nan"), float("inf"), "2", True, None)),
        *(("jitter", value, "write a share from 0 to 1") for value in (-0.1, 1.01, float("nan"), "0.2", None)),
        *(("final", value, "write a tuple of exception classes") for value in (ValueError, [ValueError], (3,), ("ValueError",), (ValueError(),), None)),
        *(("initial_delay", value, "initial_delay is") for value in (-1, "soon", None, float("nan"))),
        *(("maximum_delay", value, "maximum_delay is") for value in (-1, "", True, timedelta(days=-1))),
    ],
)
def test_wrong_setting_is_refused_when_the_policy_is_made(setting, value, remedy):
    """A policy that cannot work is refused at once, with the setting, the value and what to write."""
    with pytest.raises(UsageError) as caught:
        RetryPolicy(**{setting: value})
    assert str(caught.value).startswith(f"{setting} is {value!r}")
    assert remedy in str(caught.value)


def test_policies_are_values():
    """Equal settings are one policy, usable as a key, and copies are equal."""
    assert RetryPolicy(final=(ValueError,)) == RetryPolicy(final=(ValueError,))
    assert len({RetryPolicy(), RetryPolicy(), NETWORK, FILES}) == 3
    assert copy.deepcopy(NETWORK) == NETWORK
    assert STEP_DEFAULT.maximum_attempts == 3
    assert (NETWORK.maximum_attempts, FILES.maximum_attempts, ONCE.maximum_attempts) == (5, 3, 1)
