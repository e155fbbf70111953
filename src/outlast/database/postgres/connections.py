"""Connections: a few of them, made on the caller's own thread when first needed, and never handed out broken.

psycopg_pool is not used: it makes connections on threads of its own, so that whoever waits for one learns only that
it took too long, and not that the password is wrong or the server is down.
"""

import contextlib
import os
import select
import socket
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from outlast.clock import SystemClock
from outlast.errors import UnavailableError, UsageError

Connection = psycopg.Connection[tuple[Any, ...]]


class Connections:
    """At most `size` open connections, shared by all threads of one process."""

    def __init__(self, make: Callable[[], Connection], size: int, timeout: timedelta) -> None:
        self._make = make
        self._size = size
        self._timeout = timeout
        self._free = threading.BoundedSemaphore(size)
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._taken: dict[Connection, float] = {}
        self._clock = SystemClock()
        self._process: int | None = None
        self._is_closed = False

    def take(self) -> Connection:
        """Return a connection that nobody else uses; give it back when done.

        Raises `UnavailableError` when all are taken for too long or none can be made.
        """
        self._check_use()
        if not self._free.acquire(timeout=self._timeout.total_seconds()):
            raise UnavailableError(f"all {self._size} connections were in use for {self._timeout.total_seconds():g} s")
        try:
            connection = self._pop_idle() or self._make()
        except BaseException:
            self._free.release()
            raise
        with self._lock:
            self._taken[connection] = self._clock.monotonic()
        return connection

    def take_idle(self) -> Connection | None:
        """Return a connection that is there and free at once; None means `take`, which may wait, or make one."""
        self._check_use()
        if not self._free.acquire(blocking=False):
            return None
        connection = self._pop_idle()
        if connection is None:
            self._free.release()
            return None
        with self._lock:
            self._taken[connection] = self._clock.monotonic()
        return connection

    def give_back(self, connection: Connection) -> None:
        """Keep the connection for the next caller, unless it is broken or in the middle of something."""
        is_usable = not connection.closed and connection.info.transaction_status == TransactionStatus.IDLE
        with self._lock:
            self._taken.pop(connection, None)
            is_kept = is_usable and not self._is_closed
            if is_kept:
                self._idle.append(connection)
        if not is_kept:
            connection.close()
        self._free.release()

    def interrupt(self) -> None:
        """Shut the sockets of connections in use, so that whoever waits on one is told at once.

        A server or a proxy that has gone silent answers neither a query nor a request to cancel it; libpq would wait.
        """
        with self._lock:
            for connection in self._taken:
                _shut(connection)

    def interrupt_hung(self, limit: timedelta) -> None:
        """Shut the sockets of connections that one caller has had for longer than `limit`, and drop the idle ones, which may hang too."""
        with self._lock:
            began_before = self._clock.monotonic() - limit.total_seconds()
            hung = [connection for connection, since in self._taken.items() if since < began_before]
            idle: list[Connection] = []
            if hung:
                idle, self._idle = self._idle, []
            for connection in hung:
                _shut(connection)
        for connection in idle:
            connection.close()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        if self._process in (None, os.getpid()):  # a forked child must not say goodbye on its parent's sockets
            for connection in idle:
                connection.close()

    def _check_use(self) -> None:
        if self._is_closed:
            raise UsageError("the database was closed: connect again")
        if self._process is None:
            self._process = os.getpid()
        elif self._process != os.getpid():
            raise UsageError("the process was forked after the database was opened: connect again in the child")

    def _pop_idle(self) -> Connection | None:
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection = self._idle.pop()  # the one used last, so that the server's caches for it are warm
            if not is_stale(connection):
                return connection
            connection.close()


def _shut(connection: Connection) -> None:
    with contextlib.suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as end:
        end.shutdown(socket.SHUT_RDWR)


def is_stale(connection: Connection) -> bool:
    """Tell whether an idle connection was ended by the server, without a round trip.

    A server says nothing to an idle client but goodbye, and settings that were reloaded.
    """
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    while poll.poll(0):
        try:
            connection.pgconn.consume_input()
        except psycopg.Error:
            return True
        if connection.pgconn.status != psycopg.pq.ConnStatus.OK:
            return True
        if connection.pgconn.ssl_in_use:  # what is left may be no whole record yet, so that polling on would spin
            return False
    return False
