"""PoolerStandIn: what a client sees of a pooler. It passes everything on to the server, and greets with a process number of its
own, as PgBouncer does, because it answers requests to cancel itself."""

import contextlib
import socket
import struct
import threading
from urllib.parse import urlsplit, urlunsplit

_SSL, _GSS = 80877103, 80877104
_BLOCK = 1 << 16
_OWN_PROCESS = 0x7FFFFFF0
_CLOSE_SECONDS_MAX = 20.0


class PoolerStandIn:
    """Listens on loopback before the server at `url`."""

    def __init__(self, url: str) -> None:
        self._server = urlsplit(url)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = urlunsplit(self._server._replace(netloc=f"{self._server.username}@127.0.0.1:{self._listener.getsockname()[1]}"))
        self._ends: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, name="pooler", daemon=True)
        self._thread.start()

    def __enter__(self) -> "PoolerStandIn":
        return self

    def __exit__(self, *exception: object) -> None:
        for end in (self._listener, *self._ends):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self._thread.join(_CLOSE_SECONDS_MAX)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection((self._server.hostname or "127.0.0.1", self._server.port or 5432))
                self._ends += [client, server]
                for work in (_pass_greeting_and_requests, _pass_answers):
                    threading.Thread(target=_quietly, args=(work, client, server), name="pooler link", daemon=True).start()


def _quietly(work: object, client: socket.socket, server: socket.socket) -> None:
    try:
        work(client, server)  # type: ignore[operator]  # one of the two below
    except OSError:
        pass  # one side went away, or the test is over
    finally:
        for end in (client, server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def _pass_greeting_and_requests(client: socket.socket, server: socket.socket) -> None:
    while True:
        head = _exactly(client, 8)
        length, code = struct.unpack("!II", head)
        if code not in (_SSL, _GSS):
            break
        client.sendall(b"N")
    server.sendall(head + _exactly(client, length - 8))
    while block := client.recv(_BLOCK):
        server.sendall(block)


def _pass_answers(client: socket.socket, server: socket.socket) -> None:
    """Message by message until the greeting names the process, which is replaced; then as it comes."""
    while True:
        head = _exactly(server, 5)
        body = _exactly(server, struct.unpack("!I", head[1:])[0] - 4)
        if head[:1] == b"K":
            client.sendall(head + struct.pack("!I", _OWN_PROCESS) + body[4:])
            break
        client.sendall(head + body)
    while block := server.recv(_BLOCK):
        client.sendall(block)


def _exactly(end: socket.socket, count: int) -> bytes:
    taken = b""
    while len(taken) < count:
        block = end.recv(count - len(taken))
        if not block:
            raise ConnectionResetError("the other side has ended the connection")
        taken += block
    return taken
