"""PostgresWakes: NOTIFY to wake others, LISTEN on a connection and a thread of its own, and a test that it arrives.

    connecting --- listening ---> testing --- own test arrived ---> hearing
    any --- connection broke, or a test did not arrive in time ---> connecting, later and later

A listener behind a pooler, or on another database than the one that is written to, looks healthy and hears nothing.
Therefore a test is sent every few seconds the way every wake-up is sent, and has to arrive. Whoever is deaf says so, and
after each gap whoever listens is told that anything may have changed. Nothing here decides what is done: a wake-up only
says that looking is worth while.
"""

import logging
import os
import select
import threading
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta

import psycopg

from outlast.clock import SystemClock
from outlast.database.postgres import Connection, LoopTransaction, PostgresDatabase
from outlast.database.transaction import Transaction
from outlast.errors import OutlastError
from outlast.ids import jitter, process_nonce

from .parameters import SQL, array

OnWake = Callable[[frozenset[int], frozenset[int]], None]

_CHANNEL = "outlast_wake"
_TEST_EVERY = timedelta(seconds=10)
_PAYLOAD_CHARACTERS_MAX = 7_000  # the server refuses 8,000 bytes
_BACK_OFF_MAX = timedelta(seconds=10)
_NOTHING: frozenset[int] = frozenset()

_log = logging.getLogger("outlast.wakes")


class PostgresWakes:
    """See `outlast.native.wakes.Wakes`."""

    def __init__(self, database: PostgresDatabase, *, test_every: timedelta = _TEST_EVERY) -> None:
        self._database = database
        self._test_seconds = test_every.total_seconds()
        self._clock = SystemClock()
        self._on_wake: OnWake | None = None
        self._thread: threading.Thread | None = None
        self._is_closed = threading.Event()
        self._bell: tuple[int, int] | None = None
        self._is_hearing = False
        self._has_said_deaf = False

    @property
    def is_deaf(self) -> bool:
        return not self._is_hearing

    def listen(self, on_wake: OnWake) -> None:
        if self._thread is not None:
            raise RuntimeError("somebody listens already")
        self._on_wake = on_wake
        self._bell = os.pipe()
        self._thread = threading.Thread(target=self._run, name="outlast-wakes", daemon=True)
        self._thread.start()

    def set_eager(self, is_eager: bool) -> None:
        """Nothing to do: a notification comes by itself."""

    def send(self, lanes: Sequence[int] = (), workers: Sequence[int] = ()) -> None:
        try:
            self._notify(_CHANNEL, _payload(lanes, workers))
        except OutlastError as error:
            _log.debug("a wake-up was not sent: %s", error)

    def send_after(self, tx: Transaction, lanes: Collection[int]) -> bool:
        if not isinstance(tx, LoopTransaction):
            return False
        tx.after_commit(SQL["wake_idle"], {"lanes": array(lanes), "channel": _CHANNEL, "payload": _payload(lanes)})
        return True

    def close(self) -> None:
        self._is_closed.set()
        thread, self._thread = self._thread, None
        if thread is not None and self._bell is not None:
            os.write(self._bell[1], b"!")
            thread.join()
            for end in self._bell:
                os.close(end)

    def _notify(self, channel: str, payload: str) -> None:
        self._database.execute_alone(SQL["notify"], {"channel": channel, "payload": payload})

    def _run(self) -> None:
        failures = 0
        while not self._is_closed.is_set():
            try:
                connection = self._database.connect_direct("listen")
                try:
                    failures = 0 if _Listener(self, connection).listen() else failures + 1
                finally:
                    connection.close()
            except (OutlastError, psycopg.Error) as error:
                failures += 1
                self.say_deaf(str(error))
            self._is_hearing = False
            self._is_closed.wait(_back_off(failures))

    def say_deaf(self, reason: str) -> None:
        self._is_hearing = False
        if not self._has_said_deaf and not self._is_closed.is_set():
            self._has_said_deaf = True
            _log.warning("wake-ups do not arrive (%s): polling instead", reason)

    def say_hearing(self) -> None:
        """A test arrived. After a gap anything may have changed."""
        if not self._is_hearing:
            self._is_hearing = True
            if self._has_said_deaf:
                self._has_said_deaf = False
                _log.info("wake-ups arrive again")
            self.tell(_NOTHING, _NOTHING)

    def tell(self, lanes: frozenset[int], workers: frozenset[int]) -> None:
        if self._on_wake is not None and not self._is_closed.is_set():
            try:
                self._on_wake(lanes, workers)
            except Exception:  # a fault of whoever is woken must not make everybody deaf
                _log.exception("a wake-up was not taken")

    def wait(self, connection: Connection, seconds: float) -> bool:
        """Wait until there may be something to read, the time is over or the bell rings; tell whether to go on."""
        assert self._bell is not None
        poll = select.poll()
        poll.register(connection.fileno(), select.POLLIN)
        poll.register(self._bell[0], select.POLLIN)
        poll.poll(max(seconds, 0.0) * 1000)
        return not self._is_closed.is_set()

    def now(self) -> float:
        return self._clock.monotonic()

    def test(self, channel: str) -> None:
        self._notify(channel, process_nonce())

    @property
    def test_seconds(self) -> float:
        return self._test_seconds


class _Listener:
    """One connection's life as a listener."""

    def __init__(self, wakes: PostgresWakes, connection: Connection) -> None:
        self._wakes = wakes
        self._connection = connection
        self._test_channel = f"outlast_test_{process_nonce()}_{connection.pgconn.backend_pid}"
        self._is_test_open = False
        self._due = 0.0

    def listen(self) -> bool:
        """Listen until the connection breaks, the bell rings or a test fails; tell whether anything was ever heard."""
        self._connection.execute(SQL["listen"])
        self._connection.execute(SQL["listen"].replace(_CHANNEL, f'"{self._test_channel}"'))
        has_heard = False
        self._begin_test()
        while self._wakes.wait(self._connection, self._due - self._wakes.now()):
            for notice in self._connection.notifies(timeout=0):
                self._hear(notice.channel, notice.payload)
                has_heard = True
            if self._wakes.now() >= self._due:
                if self._is_test_open:
                    self._wakes.say_deaf("a test notification did not come back; is there a pooler in front of `direct_url`?")
                    break
                self._begin_test()
        return has_heard

    def _begin_test(self) -> None:
        self._is_test_open = True
        self._due = self._wakes.now() + self._wakes.test_seconds
        self._wakes.test(self._test_channel)

    def _hear(self, channel: str, payload: str) -> None:
        if channel == self._test_channel:
            self._is_test_open = False
            self._wakes.say_hearing()
        else:
            self._wakes.tell(*_parsed(payload))


def _payload(lanes: Collection[int] = (), workers: Collection[int] = ()) -> str:
    payload = f"{','.join(map(str, lanes))};{','.join(map(str, workers))}"
    return payload if len(payload) <= _PAYLOAD_CHARACTERS_MAX else ";"


def _parsed(payload: str) -> tuple[frozenset[int], frozenset[int]]:
    """Return lanes and workers; what cannot be read was written by another version and means anything."""
    lanes, _, workers = payload.partition(";")
    try:
        return frozenset(map(int, filter(None, lanes.split(",")))), frozenset(map(int, filter(None, workers.split(","))))
    except ValueError:
        return _NOTHING, _NOTHING


def _back_off(failures: int) -> float:
    """Return how long to wait before the next connection: spread, so that a fleet does not come back at once."""
    return (0.2 + 0.8 * jitter()) * min(0.1 * 2.0 ** min(failures, 10), _BACK_OFF_MAX.total_seconds())
