"""A run as its caller described it: every option is checked and named, and what is stored is plain data."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from outlast.context import Context
from outlast.errors import LimitExceededError, PayloadError, UsageError
from outlast.ids import is_run_id
from outlast.limits import HEADERS_MAX, IDEMPOTENCY_KEY_CHARACTERS_MAX, TAGS_MAX
from outlast.native.new_run import NO_INPUT, checked_text, new_runs
from outlast.native.store import NewRun
from outlast.task import task

NOW = datetime(2026, 3, 1, tzinfo=UTC)


class StillClock:
    """A clock that stands still."""

    def now(self) -> datetime:
        return NOW

    def monotonic(self) -> float:
        return 0.0


@dataclass
class Order:
    path: str


@task
async def ship(ctx: Context, order: Order) -> None: ...


@task
async def sweep(ctx: Context) -> None: ...


ORDER = Order("/a")


def made(input: Any = ORDER, key: str | None = None, of: Any = ship, **options: Any) -> NewRun:
    (run,) = new_runs(of, [input], 3, StillClock(), [key], options)  # type: ignore[arg-type]  # wrong options are what is tested
    return run


def test_a_plain_run_is_plain_data() -> None:
    """Ids and seeds are new each time; the rest is what was said, and text."""
    run, again = made(), made()
    assert (run.kind, run.version, run.lane, run.priority, run.due_at, run.deadline_at) == ("ship", 1, 3, 0, None, None)
    assert (run.input, run.idempotency_key, run.tags, run.headers) == ('{"path":"/a"}', None, "[]", "{}")
    assert is_run_id(run.id)
    assert (run.id, run.seed) != (again.id, again.seed)
    assert run.input_digest == again.input_digest


def test_equal_inputs_have_equal_digests_and_others_have_not() -> None:
    """The digest is how a conflict of keys is seen."""
    assert made(Order("/b")).input_digest != made().input_digest


def test_a_task_without_input_takes_none() -> None:
    """Its input is null, whether it is left out or None."""
    assert made(NO_INPUT, of=sweep).input == made(None, of=sweep).input == "null"
    with pytest.raises(UsageError, match="takes no input"):
        made(Order("/a"), of=sweep)
    with pytest.raises(UsageError, match=r"write enqueue\(ship, input\)"):
        made(NO_INPUT)


def test_a_delay_counts_from_now_and_nothing_means_now() -> None:
    """A later instant makes a waiting run; none, or none left, makes a pending one."""
    assert made(delay="90s").due_at == NOW + timedelta(seconds=90)
    assert made(delay=0).due_at is None
    assert made(available_at=NOW).due_at == NOW


def test_instants_are_kept_in_utc() -> None:
    """Whatever zone the caller wrote them in."""
    instant = datetime(2026, 3, 1, 14, tzinfo=timezone(timedelta(hours=2)))
    run = made(available_at=instant, deadline=instant)
    assert (run.due_at, run.deadline_at) == (instant, instant)
    assert run.due_at is not None
    assert run.due_at.tzinfo is UTC


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"priority": 101}, "-100 to 100"),
        ({"priority": True}, "priority"),
        ({"priority": 1.0}, "priority"),
        ({"delay": "soon"}, "delay"),
        ({"delay": "1m", "available_at": NOW}, "both given"),
        ({"available_at": datetime(2026, 3, 1)}, "available_at has no time zone"),
        ({"deadline": "tomorrow"}, "deadline"),
        ({"tags": "nightly"}, "('nightly',)"),
        ({"tags": ["fine", ""]}, "tags[1]"),
        ({"headers": {"a\nb": "c"}}, "header"),
        ({"key": ""}, "idempotency_key"),
        ({"key": "  "}, "idempotency_key"),
        ({"key": "a\x00b"}, "idempotency_key"),
        ({"key": "a\ud800"}, "idempotency_key"),
        ({"key": "e\u0301"}, "NFC"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, Any], said: str) -> None:
    """The message says which one, and what to write."""
    with pytest.raises(UsageError, match=re.escape(said)):
        made(**options)


@pytest.mark.parametrize("value", ["a\0b", "\udfff", 5, "x" * 8_193])
def test_a_header_that_cannot_be_kept_is_named(value: Any) -> None:
    """The field is in the error, as for any payload."""
    with pytest.raises(PayloadError) as caught:
        made(headers={"trace": value})
    assert caught.value.field == "headers.trace"


def many(count: int) -> Iterable[str]:
    return (str(number) for number in range(count))


def test_the_limits_are_inclusive() -> None:
    """What is exactly as much as allowed is accepted, one more is refused."""
    made(key="k" * IDEMPOTENCY_KEY_CHARACTERS_MAX, tags=list(many(TAGS_MAX)), headers=dict.fromkeys(many(HEADERS_MAX), "v"))
    for options in (
        {"key": "k" * (IDEMPOTENCY_KEY_CHARACTERS_MAX + 1)},
        {"tags": list(many(TAGS_MAX + 1))},
        {"headers": dict.fromkeys(many(HEADERS_MAX + 1), "v")},
    ):
        with pytest.raises(LimitExceededError):
            made(**options)


def test_words_of_every_language_are_texts() -> None:
    """Only control characters and broken Unicode are refused."""
    for text in ("straße", "日本語", "emoji 🎬", "a b"):
        assert checked_text(text, "name", 20) == text
