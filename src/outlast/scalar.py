"""The checks of single values: would this one come back from JSON as exactly what it is?

A check raises `Refused` with the reason and the remedy, and returns True where the value is taken but written in another
form (an int where a float is declared). No check may put the value itself into a message: it can be a secret.
"""

from collections.abc import Callable, Collection
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from math import isfinite
from typing import Any, NoReturn
from uuid import UUID

from outlast.limits import INTEGER_MAX, INTEGER_MIN

Check = Callable[[Any, int], bool]
"""Takes the value and how deep it lies; True means that what is written has to be decoded and encoded once more."""


class Refused(Exception):  # noqa: N818 - never leaves this layer; the codec turns it into a PayloadError
    """A value cannot be stored, and where inside the whole it lies, innermost part first."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.parts: list[str] = []

    @property
    def path(self) -> str:
        return "".join(reversed(self.parts))


def refuse_type(expected: str, value: Any) -> NoReturn:
    raise Refused(f"expected {expected}, got {type_name(value)}; pass exactly this type, or change the annotation")


def type_name(value: Any) -> str:
    kind = type(value)
    return "None" if value is None else kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def check_text(value: Any, depth: int) -> bool:
    if type(value) is not str:
        refuse_type("str", value)
    if "\0" in value:
        raise Refused("text must not contain NUL, which PostgreSQL cannot keep; remove it, or declare the type as bytes")
    if not value.isascii():
        _refuse_surrogates(value)
    return False


def _refuse_surrogates(value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Refused("text has a lone surrogate, so it is no UTF-8; declare a file's name as Path, other data as bytes") from None


def check_integer(value: Any, depth: int) -> bool:
    if type(value) is not int:
        refuse_type("int", value)
    if not INTEGER_MIN <= value <= INTEGER_MAX:
        raise Refused("the integer is beyond 64 bits; declare the type as Decimal or str")
    return False


def check_float(value: Any, depth: int) -> bool:
    if type(value) is float:
        if not isfinite(value):
            raise Refused("NaN and infinity cannot be written as JSON; pass None or text instead")
        return False
    if type(value) is not int:
        refuse_type("float", value)
    check_integer(value, depth)
    if int(float(value)) != value:
        raise Refused("the integer is too large to be kept exactly as a float; declare the type as int")
    return True


def check_decimal(value: Any, depth: int) -> bool:
    if type(value) is not Decimal:
        refuse_type("Decimal", value)
    if not value.is_finite():
        raise Refused("NaN and infinity cannot be kept; pass None or text instead")
    return False


def check_datetime(value: Any, depth: int) -> bool:
    if type(value) is not datetime:
        refuse_type("datetime", value)
    _refuse_odd_offset(value)
    return False


def check_time(value: Any, depth: int) -> bool:
    if type(value) is not time:
        refuse_type("time", value)
    _refuse_odd_offset(value)
    return False


def _refuse_odd_offset(value: datetime | time) -> None:
    if value.tzinfo is None:
        return
    offset = value.utcoffset()
    if offset is None:
        raise Refused("the time zone gives no offset here and would be lost; use a fixed offset or no time zone")
    if offset % timedelta(minutes=1):
        raise Refused("the time zone's offset has seconds, which would be lost; use .astimezone(UTC)")


def exactly(kind: type) -> Check:
    """Return a check that takes values of this class and of none below it."""
    name = kind.__qualname__ if kind is not type(None) else "None"

    def check(value: Any, depth: int) -> bool:
        if type(value) is not kind:
            refuse_type(name, value)
        return False

    return check


def one_of(values: Collection[Any]) -> Check:
    """Return a check for `Literal`, which tells 1 from True."""
    pairs = frozenset((type(value), value) for value in values)
    kinds = frozenset(kind for kind, _ in pairs)
    expected = f"one of {', '.join(sorted(map(repr, values)))}"

    def check(value: Any, depth: int) -> bool:
        if type(value) not in kinds or (type(value), value) not in pairs:
            refuse_type(expected, value)
        return False

    return check


def are_texts(values: Collection[Any]) -> bool:
    """Tell quickly, for long lists, that no single value needs to be looked at."""
    if set(map(type, values)) != {str}:
        return False
    whole = "".join(values)
    return whole.isascii() and "\0" not in whole


def are_integers(values: Collection[Any]) -> bool:
    """Tell quickly, for long lists, that no single value needs to be looked at."""
    return set(map(type, values)) == {int} and min(values) >= INTEGER_MIN and max(values) <= INTEGER_MAX


def are_floats(values: Collection[Any]) -> bool:
    """Tell quickly, for long lists, that no single value needs to be looked at."""
    return set(map(type, values)) == {float} and all(map(isfinite, values))


CHECKS: dict[type, Check] = {
    str: check_text,
    int: check_integer,
    float: check_float,
    bool: exactly(bool),
    type(None): exactly(type(None)),
    bytes: exactly(bytes),
    bytearray: exactly(bytearray),
    datetime: check_datetime,
    date: exactly(date),
    time: check_time,
    timedelta: exactly(timedelta),
    UUID: exactly(UUID),
    Decimal: check_decimal,
}
QUICK_CHECKS: dict[Check, Callable[[Collection[Any]], bool]] = {check_text: are_texts, check_integer: are_integers, check_float: are_floats}
