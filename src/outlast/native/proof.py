"""Proof: the thread that keeps the lock which shows that a worker's process lives.

It stands apart from the thread that renews, because to take a lost lock again means to connect, and where nobody answers that
takes as long as a connection may: renewals must never wait for it. A lock that cannot be had is tried for ever more seldom.
"""

from __future__ import annotations

import logging
import threading
from datetime import timedelta

from outlast.errors import OutlastError

from .liveness import Liveness

logger = logging.getLogger("outlast")

_CHECK = timedelta(milliseconds=500)  # a lost lock is back before a watcher's second look
_CHECK_MAX = timedelta(seconds=8)  # where the lock cannot be had: each try may cost a connection
_END = timedelta(seconds=1)  # for the thread, which may hang in a connection that nobody answers


class Proof:
    """The lock of one worker incarnation."""

    def __init__(self, liveness: Liveness, worker_id: int) -> None:
        self._liveness = liveness
        self._worker_id = worker_id
        self.is_held = False
        """What the next renewal says: while the lock is not ours, only silence tells."""
        self.has_changed = threading.Event()
        """Set when a renewal has to say at once that something about the lock changed."""
        self._unprovable = ""
        self._is_left = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="outlast-proof", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, *, keep: bool = False) -> None:
        """End the looks, and give the lock back unless it is to stay. A thread that hangs is left, and gives back what it yet gets."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(_END.total_seconds())
        if keep:
            return
        if self._thread.is_alive():
            self._is_left = True
        else:
            self._liveness.release(self._worker_id)

    def _run(self) -> None:
        pause = _CHECK
        while not self._stop.wait(pause.total_seconds()):
            if self.look():
                self.has_changed.set()
            pause = _CHECK if self.is_held else min(pause * 2, _CHECK_MAX)
        if self._is_left and self.is_held:
            self._liveness.release(self._worker_id)

    def look(self) -> bool:
        """See to the lock once; return whether something about it changed."""
        was_held, self.is_held = self.is_held, self._is_ours()
        if self.is_held:
            return False
        if was_held:
            self.has_changed.set()  # before the lock is taken again, which may take long: a renewal moves the beat meanwhile
        return self.hold() or was_held

    def hold(self) -> bool:
        """Take the lock, if it can be had; return whether it is ours."""
        if not self.is_held:
            try:
                self._liveness.hold(self._worker_id)
                self.is_held = True
            except OutlastError as error:
                self._say_unprovable(error)
        return self.is_held

    def _is_ours(self) -> bool:
        try:
            return self.is_held and self._liveness.is_held(self._worker_id)
        except OutlastError:
            return False

    def _say_unprovable(self, error: OutlastError) -> None:
        if str(error) != self._unprovable:
            self._unprovable = str(error)
            logger.info("this worker cannot show that its process lives, so that only its silence would tell: %s", error)
