"""Signals: durable messages on a topic. What a sender is told, and what a run that waits is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic

from typing_extensions import TypeVar

from outlast.duration import Duration, as_duration
from outlast.errors import UsageError
from outlast.limits import NAME_CHARACTERS_MAX, OPTIONS_MAX, QUESTION_CHARACTERS_MAX, SIGNAL_BYTES_MAX, SIGNAL_TTL_MAX, TOPIC_CHARACTERS_MAX
from outlast.payload import codec_for

T_co = TypeVar("T_co", covariant=True, default=Any)


@dataclass(frozen=True, slots=True)
class Signal(Generic[T_co]):
    """One signal, as a run that waited for it gets it."""

    id: str
    payload: T_co
    """Decoded as the wait's `of`; None is a payload like any other."""
    sent_at: datetime


@dataclass(frozen=True, slots=True)
class SignalReceipt:
    """What the sender is told: the signal is kept, whoever waits."""

    id: str
    """Of the signal; the same for the same idempotency key."""
    waiting: int
    """How many runs waited for it at that moment: a hint, counted up to a bound, and no promise."""
    created: bool = True
    """False when this key had sent it before."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a person decided."""

    option: str
    by: str
    """Who answered."""
    note: str
    at: datetime


def checked_topic(topic: Any) -> str:
    """Return a topic that users may name; `UsageError` for what is none."""
    if not isinstance(topic, str) or not 0 < len(topic) <= TOPIC_CHARACTERS_MAX or not topic.isprintable() or topic.startswith("$"):
        raise UsageError(f"topic {topic!r:.80}: write 1 to {TOPIC_CHARACTERS_MAX} printable characters, of which the first is not '$'")
    return topic


def topic_of_run(run_id: str, name: str) -> str:
    """Return a topic that belongs to one run: `ctx.topic(name)` there, and `run.signal(name)` from outside."""
    topic = f"{run_id}/{checked_topic(name)}"
    if len(topic) > TOPIC_CHARACTERS_MAX:
        longest = TOPIC_CHARACTERS_MAX - len(run_id) - 1
        raise UsageError(f"topic {name!r:.80} of a run has {len(name)} characters: write at most {longest}, for the run's id comes before it")
    return topic


def encoded_payload(payload: Any) -> str:
    """Return a signal's payload as JSON text; `PayloadError` for what cannot be kept, or is too large for a message."""
    text = codec_for(Any if payload is None else type(payload)).encode(payload, "payload")
    size = len(text.encode())
    if size > SIGNAL_BYTES_MAX:
        raise UsageError(f"the payload has {size:,} bytes, and a signal at most {SIGNAL_BYTES_MAX:,}: store the value, and send its name")
    return text


def checked_ttl(ttl: Duration) -> timedelta:
    """Return how long a signal is kept."""
    try:
        kept = as_duration(ttl, "ttl")
    except ValueError as error:
        raise UsageError(str(error)) from None
    if not timedelta(0) < kept <= SIGNAL_TTL_MAX:
        raise UsageError(f"ttl is {ttl!r}: write more than 0 and at most {SIGNAL_TTL_MAX.days} days")
    return kept


def checked_question(question: Any, options: Sequence[str]) -> str:
    """Return a question that can be put; `UsageError` names what is wrong with it or with its options."""
    if not isinstance(question, str) or not 0 < len(question) <= QUESTION_CHARACTERS_MAX:
        raise UsageError(f"question {question!r:.80}: write 1 to {QUESTION_CHARACTERS_MAX:,} characters")
    if isinstance(options, str) or not isinstance(options, Sequence) or not 0 < len(options) <= OPTIONS_MAX:
        raise UsageError(f"options is {options!r:.80}: write a list of 1 to {OPTIONS_MAX} different words")
    for option in options:
        if not isinstance(option, str) or not 0 < len(option) <= NAME_CHARACTERS_MAX or not option.isprintable():
            raise UsageError(f"options has {option!r:.80}: each option is 1 to {NAME_CHARACTERS_MAX} printable characters")
    if len(set(options)) != len(options):
        raise UsageError(f"options is {options!r:.80}: write a list of 1 to {OPTIONS_MAX} different words")
    return question
