"""Settings of the native engine, checked when they are given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from outlast.clock import Clock, StoreClock, SystemClock
from outlast.errors import UsageError
from outlast.limits import LEASE, LEASE_MIN
from outlast.task import Task


@dataclass(frozen=True)
class Settings:
    """What an engine was given."""

    tasks: dict[tuple[str, int], Task[Any, Any]]
    """By kind and version."""
    services: Any = None
    """An object, or a factory of an asynchronous context manager."""
    migrate: bool | str = "create"
    lease: timedelta = LEASE
    name: str = ""
    """A label of this process for people."""
    clock: Clock = field(default_factory=SystemClock)
    now: Callable[[], datetime | None] = lambda: None
    """The instant by which the database decides; None for its own clock. Tests skip time with it."""

    def __post_init__(self) -> None:
        if self.lease < LEASE_MIN:
            raise UsageError(f"lease is {self.lease}: at least {LEASE_MIN} is needed, because shorter ones take ordinary delays for silence")
        if self.migrate not in ("create", True, False):
            raise UsageError(f'migrate is {self.migrate!r}: write "create", True or False')

    def store_clock(self) -> StoreClock:
        return StoreClock(self.clock)


def tasks_by_name(tasks: Any) -> dict[tuple[str, int], Task[Any, Any]]:
    """Return tasks by kind and version; anything else among them, or two of one kind and version, is a `UsageError`."""
    found: dict[tuple[str, int], Task[Any, Any]] = {}
    for task in tasks:
        if not isinstance(task, Task):
            raise UsageError(f"tasks has {task!r}: write functions declared with @task")
        if found.setdefault((task.name, task.version), task) is not task:
            raise UsageError(f"tasks has {task.name} version {task.version} twice: give one of them another name or version")
    return found
