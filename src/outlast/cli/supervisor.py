"""Supervisor: keeps worker processes alive, ends those that are frozen, and stops them all.

Theory of operation. One place per process. A place whose child has ended is filled again after a delay that grows from
1 s to 60 s and is forgotten once a child has lived for 60 s. A child that is silent past its lease has lost its runs
anyway; on SQLite it may be frozen inside a write, and then nobody else can write before it is gone, so it is killed. A
child that was used wrongly (exit code 2) would be so again: then all stop. The supervisor never imports the
application, so that nothing in it can take the supervisor down. What children do when it is gone is theirs: each has
a pipe that ends with it.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from outlast.clock import Clock, SystemClock
from outlast.limits import RESTART_DELAY, RESTART_DELAY_MAX, RESTART_FORGIVEN_AFTER, STOP_GRACE

from .application import DONE, FAILED, WRONG_USE
from .worker_process import WorkerProcess

TICK_SECONDS = 0.2
"""How often ended and silent children are looked for; their messages and signals come at once."""


class Report(Protocol):
    """Who hears what the supervisor does."""

    def __call__(self, event: str, /, **facts: Any) -> None: ...


class Place:
    """One of the processes that there should be, and when it may be started again."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.child: WorkerProcess | None = None
        self.start_at = 0.0
        self._delay = RESTART_DELAY.total_seconds()

    def vacate(self, now: float) -> float:
        """Note that the child is gone, or could not be started, and return after how long the next one starts."""
        if self.child is not None and now - self.child.started >= RESTART_FORGIVEN_AFTER.total_seconds():
            self._delay = RESTART_DELAY.total_seconds()
        delay = self._delay
        self._delay = min(delay * 2, RESTART_DELAY_MAX.total_seconds())
        self.start_at = now + delay
        self.child = None
        return delay


class Supervisor:
    """Runs `count` children made by `start`, until a signal comes."""

    def __init__(self, start: Callable[[], WorkerProcess], count: int, *, stop_timeout: float, report: Report, clock: Clock | None = None) -> None:
        self._start = start
        self._places = [Place(number + 1) for number in range(count)]
        self._stop_timeout = stop_timeout
        self._report = report
        self._clock = clock or SystemClock()
        self._selector = selectors.DefaultSelector()
        self._signals = 0
        self._is_stopping = False
        self._stop_at = float("inf")
        self._exit_code = DONE

    def run(self) -> int:
        """Supervise until SIGTERM or SIGINT, or until the children cannot work; return the exit code. For the main thread."""
        with self._listening_to_signals():
            try:
                while not self._is_over():
                    self._turn()
            finally:
                for place in self._places:
                    if place.child is not None:
                        self._selector.unregister(place.child.messages_fd)
                        place.child.close()
        return self._exit_code

    def _is_over(self) -> bool:
        return self._is_stopping and not any(place.child for place in self._places)

    def _turn(self) -> None:
        for key, _ in self._selector.select(TICK_SECONDS):
            if key.data is None:
                self._note_signals()
        for place in self._places:
            if place.child is None:
                self._fill(place)
            else:
                self._look_after(place, place.child)
        if self._is_stopping and (self._signals > 1 or self._clock.monotonic() > self._stop_at):
            self._kill_all()

    def _fill(self, place: Place) -> None:
        if self._is_stopping or self._clock.monotonic() < place.start_at:
            return
        try:
            place.child = self._start()
        except OSError as error:  # no memory, no process, no descriptor: for now
            delay = place.vacate(self._clock.monotonic())
            self._report("worker_process_not_started", place=place.number, error=str(error), again_after_seconds=delay)
            return
        self._selector.register(place.child.messages_fd, selectors.EVENT_READ, place)
        self._report("worker_process_started", place=place.number, pid=place.child.pid)

    def _look_after(self, place: Place, child: WorkerProcess) -> None:
        exit_code = child.exit_code
        for message in child.read_messages():
            event = message.pop("event")
            if event in ("lease_lost", "write_refused"):
                self._report(event, place=place.number, pid=child.pid, **message)
        if exit_code is not None:
            self._take_leave(place, child, exit_code)
        elif child.is_silent:
            self._report("worker_process_silent", place=place.number, pid=child.pid, seconds=round(child.silence, 1))
            child.kill()

    def _take_leave(self, place: Place, child: WorkerProcess, exit_code: int) -> None:
        self._selector.unregister(child.messages_fd)
        child.close()
        delay = place.vacate(self._clock.monotonic())
        if self._is_stopping:
            is_good = exit_code in (DONE, -signal.SIGTERM)  # told to stop before it had begun to listen for signals, it had claimed nothing
            self._exit_code = max(self._exit_code, DONE if is_good else FAILED)
            self._report("worker_process_stopped", place=place.number, pid=child.pid, exit_code=exit_code)
        elif exit_code == WRONG_USE:
            self._exit_code = WRONG_USE
            self._begin_stop()
        else:
            self._report("worker_process_ended", place=place.number, pid=child.pid, exit_code=exit_code, again_after_seconds=delay)

    def _begin_stop(self) -> None:
        self._is_stopping = True
        self._stop_at = self._clock.monotonic() + self._stop_timeout + STOP_GRACE.total_seconds()
        for place in self._places:
            if place.child is not None:
                place.child.stop()

    def _kill_all(self) -> None:
        self._exit_code = max(self._exit_code, FAILED)
        for place in self._places:
            if place.child is not None:
                place.child.kill()

    def _note_signals(self) -> None:
        numbers = os.read(self._wake_reads, 64)
        self._signals += sum(number in (signal.SIGTERM, signal.SIGINT) for number in numbers)
        if self._signals and not self._is_stopping:
            self._report("stopping", seconds=self._stop_timeout)
            self._begin_stop()

    @contextlib.contextmanager
    def _listening_to_signals(self) -> Iterator[None]:
        """Turn signals into bytes on a pipe, so that none is handled in the middle of something else."""
        self._wake_reads, wake_writes = os.pipe()
        os.set_blocking(self._wake_reads, False)
        os.set_blocking(wake_writes, False)
        self._selector.register(self._wake_reads, selectors.EVENT_READ)
        before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)}
        wake_before = signal.set_wakeup_fd(wake_writes, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(wake_before)
            for number, handler in before.items():
                signal.signal(number, handler)
            self._selector.close()
            os.close(self._wake_reads)
            os.close(wake_writes)
