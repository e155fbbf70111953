"""Events: named things that happen in an engine, and who wants to hear of them: logs, metrics, tests.

A listener is called at once, on the thread where it happens, and must return at once. What it raises is logged and
otherwise ignored. Nothing in the engine depends on a listener.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

logger = logging.getLogger("outlast")


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened. The names are listed in `NAMES`."""

    name: str
    facts: dict[str, Any] = field(default_factory=dict)


NAMES = {
    "worker_started": "worker, name",
    "worker_stopped": "worker, left: ids of runs whose bodies did not end",
    "lease_renewed": "worker",
    "lease_not_renewed": "worker, error: it is tried again",
    "lease_lost": "worker, reason",
    "worker_ended": "worker, end: `dead` or `silent`, as found by this watcher",
    "runs_claimed": "runs: ids",
    "run_started": "run, kind, token",
    "run_parked": "run, due_at",
    "run_ended": "run, kind, status",
    "run_recovered": "run, status: what a watcher made of an orphan",
    "run_told": "run, reason",
    "write_refused": "run, token, what: the database refused a write of an older claim, or after a cancel",
    "step_attempt_started": "run, step, attempt",
    "effect_attempt_started": "run, effect, attempt, token: plan and attempt are durable, and `perform` is called next",
    "effect_performed": "run, effect, attempt: `perform` has returned, and nothing of that is recorded yet",
    "effect_reconciled": "run, effect, attempt, verdict",
    "effect_recorded": "run, effect, step",
    "late_result_refused": "run, effect, attempt: it came when its attempt was not the current one any more",
    "decision_opened": "run, effect, decision",
    "foreign_await": "run, kind, version, place",
    "commit_unknown": "what: a connection broke at a commit, and reading resolves it",
    "store_unavailable": "what, error",
    "store_available": "what",
    "wakes_deaf": "error",
    "before_store": "call: a fault point before a transaction of this name",
    "after_store": "call: a fault point after its commit",
}
"""Every event and its facts."""


class Events:
    """The listeners of one engine."""

    def __init__(self) -> None:
        self._listeners: tuple[tuple[Callable[[Event], None], frozenset[str]], ...] = ()
        self._heard: frozenset[str] | None = frozenset()
        """Names that somebody listens to; None when somebody listens to all."""
        self._changing = threading.Lock()

    def subscribe(self, listener: Callable[[Event], None], *names: str) -> Callable[[], None]:
        """Call `listener` for every event from now on, or only for those of these names; call what is returned to stop that."""

        def subscribed(event: Event) -> None:  # an object of its own, so that one who subscribed twice can stop once
            listener(event)

        with self._changing:
            self._set((*self._listeners, (subscribed, frozenset(names))))

        def unsubscribe() -> None:
            with self._changing:
                self._set(tuple(other for other in self._listeners if other[0] is not subscribed))

        return unsubscribe

    def _set(self, listeners: tuple[tuple[Callable[[Event], None], frozenset[str]], ...]) -> None:
        self._listeners = listeners
        self._heard = None if any(not names for _, names in listeners) else frozenset().union(*(names for _, names in listeners))

    def is_heard(self, name: str) -> bool:
        """Ask before making facts that cost something."""
        return self._heard is None or name in self._heard

    def emit(self, name: str, /, **facts: Any) -> None:
        if not self.is_heard(name):
            return
        event = Event(name, facts)
        for listener, names in self._listeners:
            if names and name not in names:
                continue
            try:
                listener(event)
            except Exception:
                logger.exception("a listener failed at %s", name)
