"""Durations at the surface: what is understood, and what is refused by name."""

import string
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.duration import as_duration, duration_text


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("90s", 90),
        ("1h30m", 5400),
        ("5m", 300),
        ("7d", 604_800),
        ("2w", 1_209_600),
        ("250ms", 0.25),
        ("1.5h", 5400),
        ("0s", 0),
        ("1m1m", 120),
        (0, 0),
        (3, 3),
        (0.5, 0.5),
        (timedelta(minutes=2), 120),
        (timedelta(days=36500), 36500 * 86400),
    ],
)
def test_accepted_forms(value, seconds):
    """A timedelta, seconds, and text made of numbers and units."""
    assert as_duration(value) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "s",
        "90",
        "1h 30m",
        "-5s",
        "1.s",
        ".5s",
        "1e3s",
        "5 m",
        "5M",
        "5s\n",
        "\u0663s",
        "9" * 400 + "s",
        "5000000w",
        -1,
        -0.1,
        float("nan"),
        float("inf"),
        -float("inf"),
        10**400,
        3_153_600_001,
        timedelta(microseconds=-1),
        timedelta(days=36501),
        True,
        None,
        b"5s",
        [5],
    ],
)
def test_everything_else_is_refused_with_its_name(value):
    """The message has the name of the setting and the value; no other exception escapes."""
    with pytest.raises(ValueError, match="^patience is "):
        as_duration(value, "patience")


@given(st.one_of(st.text(string.printable), st.integers(), st.floats(), st.timedeltas(), st.text("0123456789.msdhw")))
def test_any_value_is_a_duration_or_a_value_error(value):
    """Whatever is given, the answer is a bounded duration or one kind of error."""
    try:
        duration = as_duration(value)
    except ValueError:
        return
    assert timedelta(0) <= duration <= timedelta(days=36500)


@given(st.integers(0, 36500 * 86_400_000))
def test_text_form_reads_back(milliseconds):
    """What is shown to people can be written by them."""
    duration = timedelta(milliseconds=milliseconds)
    assert as_duration(duration_text(duration)) == duration


def test_text_form_is_short():
    """Only units that occur are named."""
    assert duration_text(timedelta(hours=1, minutes=30)) == "1h30m"
    assert duration_text(timedelta(0)) == "0s"
    assert duration_text(timedelta(days=8, milliseconds=5)) == "8d5ms"
