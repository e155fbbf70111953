"""The kit for tests of applications: an engine on a temporary file whose clock is moved by hand.

It is the real engine on a real SQLite file, with a worker in the test's own event loop; nothing is simulated but the
instants. It never waits for time to pass.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote
from weakref import WeakSet

from outlast.clock import StoreClock
from outlast.connect import backends
from outlast.duration import Duration, as_duration
from outlast.events import Event
from outlast.limits import LEASE, PAGE_MAX, STOP_TIMEOUT
from outlast.native.backend import Backend
from outlast.native.engine import NativeEngine
from outlast.native.settings import Settings, tasks_by_name
from outlast.run import RunStatus, RunView
from outlast.task import Task

from .clock import SkippingClock, SkippingStoreClock
from .event_log import EventLog

_LOOK_AGAIN_SECONDS = 0.02


@dataclass(frozen=True)
class _Settings(Settings):
    clock: SkippingClock = field(default_factory=SkippingClock)

    def store_clock(self) -> StoreClock:
        return SkippingStoreClock(self.clock)


class SkippingEngine(NativeEngine):
    """An engine whose time is moved with `advance`. Engines made with one clock have one time."""

    def __init__(self, backend: Backend, pulse: Backend, settings: _Settings) -> None:
        super().__init__(backend, pulse, settings)
        self.log = EventLog(self.events)
        self._clock = settings.clock
        self._sharing = _sharing.setdefault(id(settings.clock), WeakSet())
        self._sharing.add(self)
