"""TcpProxy: a wire to PostgreSQL that a test cuts, stalls or delays at an exact place. It understands just enough of the
protocol to see which transaction a COMMIT belongs to, and it never changes what it passes on."""

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from enum import Enum, auto
from urllib.parse import urlsplit, urlunsplit

_SSL, _GSS, _CANCEL = 80877103, 80877104, 80877102
_BLOCK = 1 << 16
_PROXY_SECONDS_MAX = 20.0


class Where(Enum):
    """Where a wire is cut around a COMMIT."""

    BEFORE = auto()
    """The server never sees it, and undoes the transaction."""
    AFTER = auto()
    """The server has committed, and its answer is dropped."""
    HELD = auto()
    """The client is cut off at once; the server sees the COMMIT only when the test lets it."""


class Cut:
    """A cut that waits for its transaction: the first one whose statements contain all fragments, `passes` of them let through before."""

    def __init__(self, where: Where, fragments: tuple[bytes, ...], passes: int = 0) -> None:
        self.where = where
        self._fragments = fragments
        self._passes_left = passes
        self._lock = threading.Lock()
        self._is_taken = False
        self.happened = threading.Event()
        """The client has lost its connection."""
        self.let_go = threading.Event()
        """For `HELD`: set by the test, and then the server gets the COMMIT."""
        self.committed = threading.Event()
        """The server has said that it has committed."""

    def takes(self, transaction: bytes) -> bool:
        """Tell whether this COMMIT is the one, which it is once."""
        if not all(fragment in transaction for fragment in self._fragments):
            return False
        with self._lock:
            if self._is_taken:
                return False
            if self._passes_left:
                self._passes_left -= 1
                return False
            self._is_taken = True
            return True


class TcpProxy:
    """Listens on loopback and passes everything on to the server at `url`, while nothing else was asked for."""

    def __init__(self, url: str) -> None:
        self._url = urlsplit(url)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.cuts: list[Cut] = []
        self.commits = 0
        """COMMITs that have come from clients so far."""
        self.passing = threading.Event()
        """Clear: a black hole. Connections are accepted, and nothing comes through in either direction."""
        self.passing.set()
        self.delay = 0.0
        """Seconds that every block of bytes takes, each way."""
        self.is_refusing = False
        """New connections are reset."""
        self.is_closed = threading.Event()
        self._links: set[_Link] = set()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._accept, name="proxy", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """The address of the same database through this proxy."""
        port = self._listener.getsockname()[1]
        return urlunsplit(self._url._replace(netloc=f"{self._url.username}@127.0.0.1:{port}"))

    def cut(self, where: Where, *fragments: str, passes: int = 0) -> Cut:
        """Cut the wire at the COMMIT of a transaction with these fragments in it."""
        cut = Cut(where, tuple(fragment.encode() for fragment in fragments), passes)
        self.cuts = [*self.cuts, cut]
        return cut

    def reset(self) -> None:
        """End every connection there is, hard."""
        with self._lock:
            links = list(self._links)
        for link in links:
            link.close()

    def swallow(self) -> None:
        """Let nothing through any more on the connections that there are, for ever; new ones pass."""
        with self._lock:
            for link in self._links:
                link.is_swallowed = True

    def close(self) -> None:
        self.is_closed.set()
        self.passing.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.reset()
        self._thread.join(_PROXY_SECONDS_MAX)

    def _accept(self) -> None:
        while not self.is_closed.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.is_refusing:
                _reset(client)
                continue
            try:
                server = socket.create_connection((self._url.hostname or "127.0.0.1", self._url.port or 5432))
            except OSError:  # the server is down
                _reset(client)
                continue
            link = _Link(self, client, server)
            with self._lock:
                self._links.add(link)
            link.start()

    def forget(self, link: "_Link") -> None:
        with self._lock:
            self._links.discard(link)


class _Link:
    """One client's connection and the server's end of it."""

    def __init__(self, proxy: TcpProxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self.is_swallowed = False
        self._cut: Cut | None = None
        self._held_back = b""
        self._transaction = b""
        self._threads = [threading.Thread(target=self._run, args=(work,), name="proxy link", daemon=True) for work in (self._pass_requests, self._pass_answers)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        _reset(self._client)
        _reset(self._server)

    def _run(self, work: object) -> None:
        try:
            work()  # type: ignore[operator]  # one of the two below
        except OSError:
            pass  # the other side went away, or the test cut it
        finally:
            if self._cut is None or self._cut.where is not Where.HELD:
                self.close()
            self._proxy.forget(self)

    def _pace(self) -> None:
        self._proxy.passing.wait()
        if self.is_swallowed:
            self._proxy.is_closed.wait()
        if self._proxy.delay:
            self._proxy.is_closed.wait(self._proxy.delay)

    # --- the client's messages -------------------------------------------------------------------------------------------
    def _pass_requests(self) -> None:
        reader = _Reader(self._client)
        if not self._pass_greeting(reader):
            return
        for message in reader.messages():
            self._pace()
            if not self._is_commit(message):
                self._server.sendall(message)
            elif not self._commit(message, reader):
                return

    def _pass_greeting(self, reader: "_Reader") -> bool:
        while True:
            length = struct.unpack("!I", reader.exactly(4))[0]
            body = reader.exactly(length - 4)
            self._pace()
            code = struct.unpack("!I", body[:4])[0]
            if code in (_SSL, _GSS):
                self._client.sendall(b"N")
                continue
            self._server.sendall(struct.pack("!I", length) + body)
            return bool(code != _CANCEL)

    def _is_commit(self, message: bytes) -> bool:
        """Note what belongs to the transaction that is open, and tell whether this message ends it."""
        text = _statement(message)
        if text is not None and text.lstrip().upper().startswith(b"BEGIN"):
            self._transaction = b""
        self._transaction += message
        return text is not None and text.strip().upper() == b"COMMIT"

    def _commit(self, message: bytes, reader: "_Reader") -> bool:
        """Pass a COMMIT on, or cut the wire; return whether the connection goes on."""
        self._proxy.commits += 1
        cut = next((cut for cut in self._proxy.cuts if cut.takes(self._transaction)), None)
        if cut is None:
            self._server.sendall(message)
            return True
        if cut.where is Where.BEFORE:
            self.close()
            cut.happened.set()
            return False
        self._cut = cut
        if cut.where is Where.AFTER:
            self._server.sendall(message)
            return True
        rest = b"".join(reader.until_sync())  # what makes the server execute it
        _reset(self._client)
        cut.happened.set()
        cut.let_go.wait(_PROXY_SECONDS_MAX)
        self._server.sendall(message + rest)
        return False

    # --- the server's messages -------------------------------------------------------------------------------------------
    def _pass_answers(self) -> None:
        for message in _Reader(self._server).messages():
            self._pace()
            cut = self._cut
            if cut is None:
                self._client.sendall(message)
            elif message[:1] == b"C" and message[5:-1] == b"COMMIT":
                self._end(cut)
                return
            elif message[:1] == b"E":  # it was not committed, so there is no answer to be lost
                self._cut = None
                self._client.sendall(self._held_back + message)
            else:
                self._held_back += message

    def _end(self, cut: Cut) -> None:
        cut.committed.set()
        self.close()
        cut.happened.set()


class _Reader:
    """Messages of the protocol out of a stream of bytes."""

    def __init__(self, source: socket.socket) -> None:
        self._source = source
        self._bytes = b""

    def exactly(self, count: int) -> bytes:
        while len(self._bytes) < count:
            block = self._source.recv(_BLOCK)
            if not block:
                raise ConnectionResetError("the other side has ended the connection")
            self._bytes += block
        taken, self._bytes = self._bytes[:count], self._bytes[count:]
        return taken

    def messages(self) -> Iterator[bytes]:
        while True:
            head = self.exactly(5)
            yield head + self.exactly(struct.unpack("!I", head[1:])[0] - 4)

    def until_sync(self) -> Iterator[bytes]:
        for message in self.messages():
            yield message
            if message[:1] == b"S":
                return


def _statement(message: bytes) -> bytes | None:
    """Return the text of a Query or of a Parse."""
    if message[:1] == b"Q":
        return message[5:-1]
    if message[:1] == b"P":
        return message[5:].split(b"\0", 2)[1]
    return None


def _reset(connection: socket.socket) -> None:
    """End a connection without a goodbye, as a broken network does."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
