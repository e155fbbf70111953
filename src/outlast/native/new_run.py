"""NewRun from what a caller wrote: every option checked, and named where it is wrong, before anything is written."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from outlast.clock import Clock, ensure_aware
from outlast.duration import Duration, as_duration
from outlast.engine import EnqueueOptions
from outlast.errors import LimitExceededError, PayloadError, UsageError
from outlast.ids import run_id, seed
from outlast.limits import HEADER_CHARACTERS_MAX, HEADERS_MAX, IDEMPOTENCY_KEY_CHARACTERS_MAX, NAME_CHARACTERS_MAX, PRIORITY_MAX, PRIORITY_MIN, TAGS_MAX
from outlast.payload import digest
from outlast.task import Task
from outlast.task_ref import TaskRef

from .encoding import headers_to_json, texts_to_json
from .store import NO_HEADERS, NO_TAGS, NewRun

NO_INPUT: Any = object()


def new_runs(
    task: TaskRef[Any, Any], inputs: Sequence[Any], lane: int, clock: Clock, idempotency_keys: Sequence[str | None], options: EnqueueOptions
) -> list[NewRun]:
    """Return a run for each input and key; `UsageError` and its kinds name what is wrong. The options are of all of them."""
    priority = _checked_priority(options.get("priority", 0))
    due_at = _due_at(options.get("available_at"), options.get("delay"), clock)
    deadline_at = _aware(options.get("deadline"), "deadline")
    tags = texts_to_json(_checked_tags(options["tags"])) if "tags" in options else NO_TAGS
    given_headers = options.get("headers")
    headers = headers_to_json(checked_headers(given_headers)) if given_headers else NO_HEADERS

    def new_run(input: Any, key: str | None) -> NewRun:
        text = encoded_input(task, input)
        checked_key = None if key is None else checked_text(key, "idempotency_key", IDEMPOTENCY_KEY_CHARACTERS_MAX)
        return NewRun(run_id(), lane, task.name, task.version, priority, due_at, deadline_at, seed(), text, digest(text), checked_key, tags, headers)

    return [new_run(input, key) for input, key in zip(inputs, idempotency_keys, strict=True)]


def _checked_priority(priority: int) -> int:
    if isinstance(priority, bool) or not isinstance(priority, int) or not PRIORITY_MIN <= priority <= PRIORITY_MAX:
        raise UsageError(f"priority is {priority!r}: write a whole number from {PRIORITY_MIN} to {PRIORITY_MAX}, smaller first")
    return priority


def encoded_input(task: TaskRef[Any, Any], input: Any) -> str:
    if input is NO_INPUT:
        if isinstance(task, Task) and task.takes_input:
            raise UsageError(f"task {task.name} takes an input: write enqueue({task.name}, input)")
        return "null"
    if isinstance(task, Task) and not task.takes_input and input is not None:
        raise UsageError(f"task {task.name} takes no input: write enqueue({task.name})")
    return task.input.encode(input, "input")


def checked_text(text: str, name: str, limit: int) -> str:
    """Return `text` if both databases and a log line bear it: 1 to `limit` characters, no control characters, in NFC."""
    if not isinstance(text, str) or not text or text.isspace():
        raise UsageError(f"{name} is {text!r}: write 1 to {limit} characters")
    if len(text) > limit:
        raise LimitExceededError(f"{name} has {len(text):,} characters; at most {limit} are allowed, so use a digest of what it stands for")
    if text.isascii() and text.isprintable():
        return text  # the usual case, at once: nothing below can be wrong with it
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in text):
        raise UsageError(f"{name} {text!r} has control characters or lone surrogates: leave them out")
    if unicodedata.normalize("NFC", text) != text:
        raise UsageError(f"{name} {text!r} is not in the Unicode form NFC: write unicodedata.normalize('NFC', ...), so that equal texts are equal keys")
    return text


def _due_at(available_at: datetime | None, delay: Duration | None, clock: Clock) -> datetime | None:
    if delay is None:
        return _aware(available_at, "available_at")
    if available_at is not None:
        raise UsageError("available_at and delay are both given: write one of them")
    try:
        duration = as_duration(delay, "delay")
    except ValueError as error:
        raise UsageError(str(error)) from None
    return clock.now() + duration if duration > timedelta(0) else None


def _aware(instant: datetime | None, name: str) -> datetime | None:
    if instant is None:
        return None
    if not isinstance(instant, datetime):
        raise UsageError(f"{name} is {instant!r}: write an aware datetime")
    try:
        return ensure_aware(instant, name)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _checked_tags(tags: Sequence[str]) -> Sequence[str]:
    if isinstance(tags, str):
        raise UsageError(f"tags is the text {tags!r}: write a sequence, ({tags!r},)")
    if len(tags) > TAGS_MAX:
        raise LimitExceededError(f"{len(tags)} tags are too many; at most {TAGS_MAX} are kept")
    return [checked_text(tag, f"tags[{number}]", NAME_CHARACTERS_MAX) for number, tag in enumerate(tags)]


def checked_headers(headers: Mapping[str, str]) -> Mapping[str, str]:
    """Return headers that both databases bear; they are few and short."""
    if len(headers) > HEADERS_MAX:
        raise LimitExceededError(f"{len(headers)} headers are too many; at most {HEADERS_MAX} are kept")
    for name, value in headers.items():
        checked_text(name, "a header's name", NAME_CHARACTERS_MAX)
        if not isinstance(value, str) or len(value) > HEADER_CHARACTERS_MAX or not _is_storable(value):
            remedy = f"write text of at most {HEADER_CHARACTERS_MAX:,} characters without NUL and lone surrogates"
            raise PayloadError(f"header {name!r} is {value!r:.80}: {remedy}", field=f"headers.{name}")
    return headers


def _is_storable(text: str) -> bool:
    return "\0" not in text and not any(unicodedata.category(character) == "Cs" for character in text)
