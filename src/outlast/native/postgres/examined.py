"""ExaminedDatabase: a database whose every connection, also those of its own, can be interrupted from another thread."""

import contextlib
import os
import socket
import threading
from weakref import WeakSet

import psycopg

from outlast.database.postgres import Connection, PostgresDatabase


class ExaminedDatabase(PostgresDatabase):
    """For the doctor, who must not wait for a server that has gone silent."""

    def __init__(self, url: str, *, direct_url: str | None = None) -> None:
        super().__init__(url, direct_url=direct_url, connections=2, role="doctor")
        self._lock = threading.Lock()
        self._direct: WeakSet[Connection] = WeakSet()

    def connect_direct(self, role: str) -> Connection:
        connection = super().connect_direct(role)
        with self._lock:
            self._direct.add(connection)
        return connection

    def interrupt(self) -> None:
        super().interrupt()
        with self._lock:
            connections = list(self._direct)
        for connection in connections:
            with contextlib.suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as end:
                end.shutdown(socket.SHUT_RDWR)
