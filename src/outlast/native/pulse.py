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
- The lock that proves life is lost (its connection was cut): a thread of its own takes it again at once, and the beat is
  raised by a renewal, so that a watcher which saw the lock free does not conclude that the process died.
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
from .proof import Proof
from .store import Store

logger = logging.getLogger("outlast")

_TURN = timedelta(milliseconds=500)  # after a change of the lock a renewal comes before a watcher's second look
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
        self.proof = Proof(liveness, worker_id)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="outlast-pulse", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self.proof.start()

    def end(self) -> None:
        """End the renewals after the one that may be under way. The lock stays, so that only silence counts."""
        self._stop.set()

    def stop(self, *, keep_proof: bool = False) -> None:
        """End the renewals. Blocks until the thread has ended. `keep_proof`: the lock stays, so that only silence counts."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self.proof.stop(keep=keep_proof)

    def _run(self) -> None:
        interval = self._lease / RENEWALS_PER_LEASE
        due = self._clock.monotonic()
        while not self._stop.wait(max(0.0, min(_TURN.total_seconds(), due - self._clock.monotonic()))):
            if not self.proof.has_changed.is_set() and self._clock.monotonic() < due:
                continue
            self.proof.has_changed.clear()
            due = self._clock.monotonic() + interval
            try:
                if not self._renew():
                    return
            except Exception:
                logger.exception("the lease of worker %d could not be renewed", self._worker_id)

    def _renew(self) -> bool:
        """Renew once; return False when this incarnation is over."""
        began = self._clock.monotonic()
        if began - self._loop_tick() > self._lease:
            self._say_blocked(began)
            return True
        self._is_blocked = False
        try:
            now = self._calls.write_blocking(
                "renew_worker", lambda tx: self._store.renew_worker(tx, self._worker_id, self._now(), is_provable=self.proof.is_held)
            )
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
