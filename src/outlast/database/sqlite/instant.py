"""Instants and spans as SQLite keeps them: whole microseconds, since 1970 in UTC. It reads no clock."""

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_number(instant: datetime) -> int:
    return (instant - _EPOCH) // _MICROSECOND


def to_number_or_none(instant: datetime | None) -> int | None:
    return None if instant is None else (instant - _EPOCH) // _MICROSECOND


def from_number(number: int) -> datetime:
    return _EPOCH + timedelta(microseconds=number)


def from_number_or_none(number: int | None) -> datetime | None:
    return None if number is None else _EPOCH + timedelta(microseconds=number)


def span_to_number(span: timedelta) -> int:
    return span // _MICROSECOND


def span_from_number(number: int) -> timedelta:
    return timedelta(microseconds=number)
