"""EventLog: what an engine said, kept so that a test can wait for something whether or not it has happened already."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, deque
from typing import Any

from outlast.duration import Duration, as_duration
from outlast.events import NAMES, Event, Events

EVENTS_KEPT_MAX = 100_000
"""A test that says more than this is no test any more; the oldest go."""


class EventLog:
    """All events of one engine from now on, in their order."""

    def __init__(self, events: Events) -> None:
        self._heard: deque[Event] = deque(maxlen=EVENTS_KEPT_MAX)
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        self._lock = threading.Lock()
        self.stop = events.subscribe(self._hear)

    def _hear(self, event: Event) -> None:
        with self._lock:
            self._heard.append(event)
            waiting = list(self._waiting)
        for loop, news in waiting:
            try:
                loop.call_soon_threadsafe(news.set)
            except RuntimeError:
                continue  # that loop is closed, and nobody waits on it any more

    def find(self, name: str, /, **facts: Any) -> list[Event]:
        """Return the events of this name that have all these facts."""
        with self._lock:
            heard = list(self._heard)
        return [event for event in heard if event.name == name and all(event.facts.get(fact) == value for fact, value in facts.items())]

    async def wait(self, name: str, /, *, timeout: Duration = 30, count: int = 1, **facts: Any) -> Event:
        """Return the `count`th such event, waiting for it if it has not happened. Raises `TimeoutError`, which names it."""
        if name not in NAMES:
            raise ValueError(f"{name!r} is no event; there are {', '.join(sorted(NAMES))}")
        news, loop = asyncio.Event(), asyncio.get_running_loop()
        self._waiting.append((loop, news))
        try:
            async with asyncio.timeout(as_duration(timeout, "timeout").total_seconds()):
                while len(found := self.find(name, **facts)) < count:
                    await news.wait()
                    news.clear()
        except TimeoutError:
            raise TimeoutError(f"no {_told(name, facts, count)} within {timeout}; heard: {self._summary()}") from None
        finally:
            self._waiting.remove((loop, news))
        return found[count - 1]

    def _summary(self) -> str:
        with self._lock:
            counts = Counter(event.name for event in self._heard if not event.name.endswith("_store"))
        return ", ".join(f"{name} x {count}" for name, count in counts.items()) or "nothing"


def _told(name: str, facts: dict[str, Any], count: int) -> str:
    given = ", ".join(f"{fact}={value!r}" for fact, value in facts.items())
    return f"event {name}({given})" + (f" for the {count}. time" if count > 1 else "")
