"""Pulse: the thread that renews one worker's lease.

Theory of operation. A lease is a promise in database time that a worker's runs are not taken from it; one row is renewed
ten times a lease, however many runs there are. The thread stands beside the event loop, so that a loop which is busy for
a while costs no lease; but it watches the loop's tick, and when that is older than the lease it renews no more: a loop
that is blocked for good must go silent too.

What each failure does:

- The database does not answer: it is asked again. Before the lease ends by this process's own clock the bodies are told,
  since somebody else may have their runs from then on. When the database then says that the worker is still alive, the
  worker goes on with new claims.
- A renewal hangs, so that this thread cannot tell them: the loop sees to it in its place.
- The database says that the worker is not alive: it was judged dead or silent. This incarnation is over.
- The lock that proves life is lost (its connection was cut): it is taken again at once, and the beat is raised by a
  renewal, so that a watcher which saw the lock free does not conclude that the process died.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import datetime, timedelta

from outlast.clock import Clock
from outlast.errors import OutlastError
from outlast.events import Events
from outlast.limits import RENEWALS_PER_LEASE

from .calls import Calls
from .liveness import Liveness
from .store import Store

logger = logging.getLogger("outlast")

_LOCK_CHECK = timedelta(milliseconds=500)  # a lost lock is back before a watcher's second look
_SAFE_SHARE = 0.85  # of the lease: bodies are told while there is still time to end, at the ninth failing renewal
_HANGS_BEFORE = timedelta(seconds=1)  # that end the loop looks whether a renewal hangs, for it takes two of its ticks
_HANGS_SHARE_MIN = 0.4  # of the shortest leases: an ordinary renewal takes milliseconds


class Pulse:
    """The renewals of one worker incarnation."""

    def __init__(
        self,
        *,
        calls: Calls,
        store: Store,
        liveness: Liveness,
        worker_id: int,
        lease: timedelta,
        clock: Clock,
        events: Events,
        now: Callable[[], datetime | None],
        loop_tick: Callable[[], float],
        on_time: Callable[[datetime], None],
        on_silent: Callable[[str], None],
        on_ended: Callable[[str], None],
    ) -> None:
        self._calls = calls
        self._store = store
        self._liveness = liveness
        self._worker_id = worker_id
        self._lease = lease.total_seconds()
        self._clock = clock
        self._events = events
        self._now = now
        self._loop_tick = loop_tick
        self._on_time = on_time
        self._on_silent = on_silent
        self._on_ended = on_ended
        self._renewed_at = clock.monotonic()
        self._hangs_after = max(self._lease * _HANGS_SHARE_MIN, self._lease * _SAFE_SHARE - _HANGS_BEFORE.total_seconds())
        self._was_overdue = False
        self._is_silent = False
        self._is_blocked = False
        self._has_lock = False
        self._unprovable = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="outlast-pulse", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """End the renewals after the one that may be under way. The lock stays, so that only silence counts."""
        self._stop.set()

    def stop(self, *, keep_proof: bool = False) -> None:
        """End the renewals. Blocks until the thread has ended. `keep_proof`: the lock stays, so that only silence counts."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        if not keep_proof:
            self._liveness.release(self._worker_id)

    def _run(self) -> None:
        interval = self._lease / RENEWALS_PER_LEASE
        due = self._clock.monotonic()
        while not self._stop.wait(max(0.0, min(_LOCK_CHECK.total_seconds(), due - self._clock.monotonic()))):
            is_changed = self._keep_lock()
            if not is_changed and self._clock.monotonic() < due:
                continue
            due = self._clock.monotonic() + interval
            try:
                if not self._renew():
                    return
            except Exception:
                logger.exception("the lease of worker %d could not be renewed", self._worker_id)

    def _keep_lock(self) -> bool:
        """See to the lock; return whether a renewal has to say at once that something about it changed."""
        was_held, self._has_lock = self._has_lock, self._is_held()
        if self._has_lock:
            return False
        return self.hold_lock() or was_held

    def _is_held(self) -> bool:
        try:
            return self._has_lock and self._liveness.is_held(self._worker_id)
        except OutlastError:
            return False

    def hold_lock(self) -> bool:
        """Take the lock that proves life, if it can be had; return whether it is ours."""
        if not self._has_lock:
            try:
                self._liveness.hold(self._worker_id)
                self._has_lock = True
            except OutlastError as error:
                self._say_unprovable(error)
        return self._has_lock

    def _say_unprovable(self, error: OutlastError) -> None:
        if str(error) != self._unprovable:
            self._unprovable = str(error)
            logger.info("this worker cannot show that its process lives, so that only its silence would tell: %s", error)

    def _renew(self) -> bool:
        """Renew once; return False when this incarnation is over."""
        began = self._clock.monotonic()
        if began - self._loop_tick() > self._lease:
            self._say_blocked(began)
            return True
        self._is_blocked = False
        try:
            now = self._calls.write_blocking("renew_worker", lambda tx: self._store.renew_worker(tx, self._worker_id, self._now(), is_provable=self._has_lock))
        except OutlastError as error:
            self._fail(error)
            return True
        if now is None:
            self._on_ended("the database says that this worker is not alive any more")
            return False
        self._renewed_at = began
        self._is_silent = False
        self._on_time(now)
        self._events.emit("lease_renewed", worker=self._worker_id)
        return True

    def _say_blocked(self, now: float) -> None:
        if not self._is_blocked:
            self._is_blocked = True
            logger.error("the event loop has been blocked for %.0f s, longer than the lease: it is not renewed", now - self._loop_tick())

    def _fail(self, error: OutlastError) -> None:
        logger.debug("worker %d could not renew its lease: %s", self._worker_id, error)
        self._events.emit("lease_not_renewed", worker=self._worker_id, error=str(error))
        if self._clock.monotonic() - self._renewed_at > self._lease * _SAFE_SHARE:
            self._say_silent(f"the lease could not be renewed: {error}")

    def watch_renewal(self) -> None:
        """Tell the bodies when a renewal hangs. Called on the loop at its every tick.

        Overdue at one look is no proof: after the interpreter was held for long the loop may run before this thread does.
        """
        is_overdue = self._clock.monotonic() - self._renewed_at > self._hangs_after
        if is_overdue and self._was_overdue:
            self._say_silent("the lease could not be renewed: the database does not answer")
        self._was_overdue = is_overdue

    def _say_silent(self, reason: str) -> None:
        if not self._is_silent:
            self._is_silent = True
            self._on_silent(reason)
