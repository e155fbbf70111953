"""Durations at the surface: a timedelta, seconds, or text such as "90s" and "1h30m"."""

import re
from datetime import timedelta

Duration = timedelta | float | str

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d|w)")
_LONGEST = timedelta(days=36500)


def as_duration(value: Duration, name: str = "duration") -> timedelta:
    """Return `value` as a timedelta between zero and a hundred years; anything else is a ValueError that names `name`."""
    duration = _parsed(value, name)
    if not timedelta(0) <= duration <= _LONGEST:
        raise ValueError(f"{name} is {value!r}: it must be between 0 and a hundred years")
    return duration


def _parsed(value: Duration, name: str) -> timedelta:
    if isinstance(value, timedelta):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        if not abs(value) <= _LONGEST.total_seconds():  # false for nan, and an integer beyond every float is compared all the same
            raise ValueError(f"{name} is {value!r}: it must be between 0 and a hundred years")
        return timedelta(seconds=value)
    if isinstance(value, str) and value and not _PART.sub("", value):
        seconds = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(value))
        return _parsed(seconds, name)
    raise ValueError(f'{name} is {value!r}: write a timedelta, seconds, or text such as "90s" or "1h30m"')


def duration_text(duration: timedelta) -> str:
    """Return the short text form, such as "1h30m"; parts below a millisecond are dropped."""
    milliseconds = round(duration.total_seconds() * 1000)
    parts = []
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, milliseconds = divmod(milliseconds, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"
