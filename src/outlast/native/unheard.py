"""Unheard: signals that were given to a run, and that its body did not get, because it gave the wait up in that very moment.

The record of such a wait stands, and the run's cursor has passed the signal: so that it is not lost, the next wait of this run
for its topic gets it. A replay comes to the same, for it gives up the same waits.
"""

from __future__ import annotations

from collections import defaultdict

from outlast.driver import TopicWait

from .call import Call
from .history import Record


class Unheard:
    """The unheard signals of one execution, as the texts of their records, each of which names its signal."""

    def __init__(self) -> None:
        self._texts: defaultdict[str, list[str]] = defaultdict(list)
        self._taken: set[str] = set()
        """Given to a wait that has not been handed its record yet."""

    def put(self, call: Call, record: Record | None) -> None:
        """A wait was given up; `record` is its record, if that is durable. One that ended without a signal leaves none."""
        text = record.result if record is not None else call.met
        if not isinstance(call.awaited, TopicWait) or text is None or text == "null":
            return
        self._taken.discard(text)
        if text not in self._texts[call.awaited.topic]:  # else it was given up before, and keeps its place
            self._texts[call.awaited.topic].append(text)

    def has(self, topic: str) -> bool:
        """Tell whether there is one on a topic that nobody has taken."""
        return any(text not in self._taken for text in self._texts.get(topic, ()))

    def take(self, topic: str) -> str | None:
        """Return the oldest on a topic that nobody has taken, for another wait."""
        text = next((text for text in self._texts.get(topic, ()) if text not in self._taken), None)
        if text is not None:
            self._taken.add(text)
        return text

    def heard(self, call: Call, record: Record) -> None:
        """The body gets a record: if its signal was unheard before, it is no more."""
        if isinstance(call.awaited, TopicWait) and record.result in self._texts.get(call.awaited.topic, ()):
            self._texts[call.awaited.topic].remove(record.result or "")
            self._taken.discard(record.result or "")
