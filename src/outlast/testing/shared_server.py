"""SharedServer: one PostgreSQL for all processes of a test session, there while at least one of them holds it.

Theory of operation. The server belongs to a keeper, a process of its own, which listens on a local socket. Whoever
holds a connection to that socket holds the server; the keeper answers each with the server's address. The kernel ends
a connection when its process ends, however that happens, so there is no count that a crash could leave wrong. When the
last connection ends, the keeper first removes the socket's name and then stops listening: whoever was too late finds
either no name or an ended connection, and starts a new keeper. A file lock lets only one process do that at a time.
If the keeper itself is killed, the guard of its server (see `postgres_server`) stops the server.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import selectors
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from .postgres_server import FAST_SETTINGS, PostgresServer

FIRST_HOLDER_SECONDS_MAX = 60.0
"""Whoever started the keeper connects at once; if it died in between, the keeper must not wait for ever."""
ANSWER_SECONDS_MAX = 120.0
"""For the server's start and stop on a loaded machine."""


class SharedServer:
    """This process's hold on the server of a session. All that name the same folder share one."""

    def __init__(self, folder: Path, *, settings: Mapping[str, str] = FAST_SETTINGS) -> None:
        self._lock = folder / "postgres.lock"
        digest = hashlib.blake2b(str(folder.resolve()).encode(), digest_size=8).hexdigest()
        self._path = Path(tempfile.gettempdir()) / f"outlast-{digest}"  # not in the folder: a socket's path has 100 characters at most
        self._settings = settings
        self._connection: socket.socket | None = None

    def join(self) -> str:
        """Take hold of the server, start it if nobody has, and return its address."""
        with _locked(self._lock):
            address = self._connect()
            if address is None:
                self._start_keeper()
                address = self._connect()
        if address is None:
            raise RuntimeError("the keeper of the shared PostgreSQL server started and went away at once")
        return address

    def leave(self) -> None:
        """Let go; if nobody else holds the server, return when it is gone."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with connection, contextlib.suppress(OSError):  # a keeper that was killed has nothing to tell any more
                connection.shutdown(socket.SHUT_WR)
                connection.recv(1)

    def _connect(self) -> str | None:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(ANSWER_SECONDS_MAX)
        try:
            connection.connect(str(self._path))
            with connection.makefile(encoding="utf-8") as lines:
                address = lines.readline().strip()
        except OSError:
            address = ""
        if not address:
            connection.close()
            return None
        self._connection = connection
        return address

    def _start_keeper(self) -> None:
        """Start a keeper and return when it listens, which it tells by closing its output."""
        source = str(Path(__file__).parents[2])
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH"))))}
        command = [sys.executable, "-c", f"from {__name__} import main; main()", str(self._path), json.dumps(dict(self._settings))]
        started = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment, timeout=ANSWER_SECONDS_MAX, check=False)
        if started.stderr:
            raise RuntimeError(f"the shared PostgreSQL server did not start:\n{started.stderr}")


def main() -> None:
    """Become a keeper that no process waits for, with the socket's path and the server's settings as arguments."""
    if os.fork():
        os._exit(0)
    os.setsid()
    _keep(Path(sys.argv[1]), json.loads(sys.argv[2]))


def _keep(path: Path, settings: Mapping[str, str]) -> None:
    with PostgresServer(is_private=True, settings=settings) as server, socket.socket(socket.AF_UNIX) as listener:
        path.unlink(missing_ok=True)  # what a killed keeper left; the lock is held, so nobody else listens here
        listener.bind(str(path))
        listener.listen(128)
        _close_output()
        last = _serve(listener, server.url("postgres"))
        path.unlink(missing_ok=True)
        listener.close()
    last.close()


def _close_output() -> None:
    """Tell whoever started this process that it listens, and keep nothing of theirs open."""
    with open(os.devnull, "r+b") as nothing:
        for descriptor in (1, 2):
            os.dup2(nothing.fileno(), descriptor)


def _serve(listener: socket.socket, address: str) -> socket.socket:
    """Answer holders until none is left, and return the last one's connection: its end says that the server has ended."""
    holders: set[socket.socket] = set()
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        while ready := selector.select(None if holders else FIRST_HOLDER_SECONDS_MAX):
            ended = [key.fileobj for key, _ in ready if isinstance(key.fileobj, socket.socket) and key.fileobj in holders]
            for connection in ended:
                selector.unregister(connection)
                holders.remove(connection)
            if len(ended) < len(ready):
                holders.add(connection := _answered(listener, address))
                selector.register(connection, selectors.EVENT_READ)
            if not holders:
                return ended[-1]
            for connection in ended:
                connection.close()
    return listener


def _answered(listener: socket.socket, address: str) -> socket.socket:
    connection, _ = listener.accept()
    with contextlib.suppress(OSError):  # it went away at once; the end of its connection is seen like any other
        connection.sendall(f"{address}\n".encode())
    return connection


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock that ends with this process at the latest."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
