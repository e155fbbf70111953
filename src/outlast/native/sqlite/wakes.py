"""SqliteWakes: who looks at a file learns that somebody wrote it. One thread stats the database's files; nothing is read.

The file system's time moves in ticks of some milliseconds, so that a second write within one tick changes nothing that
can be seen. Every change is therefore reported twice, the second time when its tick is over.
"""

import os
import threading
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from weakref import WeakSet

from outlast.clock import SystemClock
from outlast.database.transaction import Transaction
from outlast.limits import FILE_POLL_BUSY, FILE_POLL_IDLE

Callback = Callable[[frozenset[int], frozenset[int]], None]

_EAGER_SECONDS = 1.0
_TICK_SECONDS = 0.012
_NOTHING: frozenset[int] = frozenset()
_listening: "WeakSet[SqliteWakes]" = WeakSet()
_listening_lock = threading.Lock()


class SqliteWakes:
    """Wake-ups between the processes, and the engines of one process, that share a file."""

    def __init__(self, database_file: Path) -> None:
        self._files = [f"{database_file}{suffix}" for suffix in ("", "-wal")]  # a commit changes one of them; the rollback journal changes twice beside it
        self._clock = SystemClock()
        self._is_eager = False
        self._looks_often_until = 0.0
        self._nudge = threading.Event()
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def listen(self, on_wake: Callback) -> None:
        self._thread = threading.Thread(target=self._watch, args=(on_wake,), name="outlast-wakes", daemon=True)
        with _listening_lock:
            _listening.add(self)
        self._thread.start()

    def set_eager(self, is_eager: bool) -> None:
        if is_eager and not self._is_eager:
            self._looks_often_until = self._clock.monotonic() + _EAGER_SECONDS
        self._is_eager = is_eager

    def send(self, lanes: Sequence[int] = (), workers: Sequence[int] = ()) -> None:
        """Wake the other engines of this process at once; other processes see that the file has changed."""
        with _listening_lock:
            others = [other for other in _listening if other is not self and other._files == self._files]
        for other in others:
            other._nudge.set()

    def send_after(self, tx: Transaction, lanes: Collection[int]) -> bool:
        """Never: there is nothing to send but to the engines of this process, after the commit."""
        return False

    @property
    def is_deaf(self) -> bool:
        return self._thread is None or not self._thread.is_alive()

    def close(self) -> None:
        with _listening_lock:
            _listening.discard(self)
        self._is_closed = True
        self._nudge.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _watch(self, on_wake: Callback) -> None:
        seen = self._look()
        repeat_at: float | None = None
        while True:
            is_nudged = self._nudge.wait(self._pause())
            if self._is_closed:
                return
            if is_nudged:
                self._nudge.clear()
            now, found = self._clock.monotonic(), self._look()
            if found != seen:
                seen, repeat_at = found, now + _TICK_SECONDS
                self._looks_often_until = now + _EAGER_SECONDS
            elif repeat_at is not None and now >= repeat_at:
                repeat_at = None
            elif not is_nudged:
                continue
            on_wake(_NOTHING, _NOTHING)

    def _pause(self) -> float:
        is_often = self._is_eager and self._clock.monotonic() < self._looks_often_until
        return (FILE_POLL_BUSY if is_often else FILE_POLL_IDLE).total_seconds()

    def _look(self) -> tuple[tuple[int, int] | None, ...]:
        return tuple(map(_mark, self._files))


def _mark(file: str) -> tuple[int, int] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
