"""Wakes: how one process tells another that there is something to do. Losing one costs latency, never work."""

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from outlast.database.transaction import Transaction


class Wakes(Protocol):
    """Wake-ups between processes. Callbacks come on a thread of its own and must return at once."""

    def listen(self, on_wake: Callable[[frozenset[int], frozenset[int]], None]) -> None:
        """Begin to listen. `on_wake(lanes, workers)`: lanes that may have work, and workers that have something to be told.

        Both empty means that anything may have changed (SQLite, and after a gap in listening).
        """
        ...

    def set_eager(self, is_eager: bool) -> None:
        """Say whether a wake-up is awaited right now; SQLite looks at its file more often then."""
        ...

    def send(self, lanes: Sequence[int] = (), workers: Sequence[int] = ()) -> None:
        """Wake others, after the commit of what they are woken for. Never raises: a lost wake-up is made up for by polls."""
        ...

    def send_after(self, tx: Transaction, lanes: Collection[int]) -> bool:
        """Wake who has asked for one of these lanes as soon as `tx` is committed, on its own way to the database.

        False where that cannot be done: then `has_idle_worker` has to be asked, and `send` called, after the commit.
        """
        ...

    @property
    def is_deaf(self) -> bool:
        """True while wake-ups do not arrive and polls have to do."""
        ...

    def close(self) -> None: ...
