"""PostgresServer: a real PostgreSQL for tests, demos and benches, started from nothing and gone without a trace.

The server listens on loopback only, trusts whoever connects, and lives in a temporary folder. A guard, a process of
its own that holds the other end of a pipe, stops it and removes the folder when the process that started it is gone,
whatever it died of. An address in OUTLAST_TEST_POSTGRES is used as it is: that server is somebody else's and is
neither started nor stopped here.
"""

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Literal
from urllib.parse import urlsplit, urlunsplit

from .postgres_binaries import COMMAND_SECONDS_MAX, PostgresBinaries, PostgresCommandError, find_binaries, is_open

ADDRESS_VARIABLE = "OUTLAST_TEST_POSTGRES"
FAST_SETTINGS: Mapping[str, str] = {"fsync": "off", "synchronous_commit": "on", "full_page_writes": "off"}
"""For tests: the order of commits and what a killed process leaves are the same, only a power cut would be noticed."""
START_ATTEMPTS_MAX = 5
"""A free port may be taken by somebody else before the server has it; five times in a row it is another fault."""

_DEFAULTS = {"listen_addresses": "127.0.0.1", "unix_socket_directories": "", "max_connections": "300", "log_timezone": "UTC", "timezone": "UTC"}
_GUARD = 'cat > /dev/null; "$0" stop -D "$1/data" -m immediate > /dev/null 2>&1; rm -rf "$1"'
"""Waits for the end of its input, which comes when the last holder of the pipe is gone."""


class PostgresServer:
    """One server. `start` and `stop` may be called again; what was in it is gone after `stop`."""

    def __init__(
        self,
        address: str | None = None,
        *,
        settings: Mapping[str, str] | None = None,
        binaries: Path | None = None,
        is_private: bool = False,
        data: Path | None = None,
    ) -> None:
        """Use the server at `address`, else the one that the environment names, else one of our own.

        A private one is always our own, for tests that stop or break it. `settings` go over our defaults, which keep
        `fsync` on; `binaries` is the folder of the programs, found by itself when it is not given; `data` is an empty
        folder for the data, which stays, such as a small file system that a test fills.
        """
        self._address = address or (None if is_private else os.environ.get(ADDRESS_VARIABLE) or None)
        self.is_given = self._address is not None
        """True when the server is somebody else's."""
        self._settings = {**_DEFAULTS, **(settings or {})}
        self._binaries_folder = binaries
        self._data = data
        self._binaries: PostgresBinaries | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._home: Path | None = None

    def __enter__(self) -> "PostgresServer":
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    @property
    def data_folder(self) -> Path:
        """The folder with the server's data and its `postmaster.pid`, of a server of our own."""
        if self._home is None:
            raise RuntimeError("this server was not started here: its data is not ours to look at")
        return self._home / "data"

    @property
    def log(self) -> str:
        """What the server has written to its log so far."""
        return self.data_folder.with_name("server.log").read_text(encoding="utf-8", errors="replace")

    def start(self) -> str:
        """Make and start the server unless it runs, and return the address of its database `postgres`."""
        if self._address is None:
            try:
                self._address = self._started()
            except BaseException:
                self._clean_up()
                raise
        return self._address

    def stop(self) -> None:
        """End every session at once, stop the server and remove its data."""
        if not self.is_given:
            self._address = None
            self._clean_up()

    def restart(self, mode: Literal["fast", "immediate"] = "fast") -> None:
        """Stop and start again on the same port with the same data: politely, or as after a crash."""
        self.halt(mode)
        self.resume()

    def halt(self, mode: Literal["fast", "immediate"] = "fast") -> None:
        """Stop the server and keep its data: an outage, until `resume`."""
        self._own_binaries().run("pg_ctl", "stop", "-D", str(self.data_folder), "-m", mode, "-w")

    def resume(self) -> None:
        """Start the server again, on the same port with the same data, unless it runs."""
        status = ["pg_ctl", "status", "-D", str(self.data_folder)]
        try:
            self._own_binaries().run(*status)
        except PostgresCommandError:
            self._run_server(urlsplit(self.url("postgres")).port or 0)

    def url(self, database: str) -> str:
        """Return the address of a database of this server."""
        if self._address is None:
            raise RuntimeError("the server does not run: call start() first")
        return urlunsplit(urlsplit(self._address)._replace(path=f"/{database}"))

    def create_database(self, name: str, template: str | None = None) -> str:
        """Make a database, as a copy of `template` if one is named, and return its address."""
        source = ["--template", template] if template else []
        self._run_client("createdb", *source, name)
        return self.url(name)

    def drop_database(self, name: str) -> None:
        """Remove a database if it is there, and end whatever is still connected to it."""
        self._run_client("dropdb", "--if-exists", "--force", name)

    def _own_binaries(self) -> PostgresBinaries:
        if self._binaries is None:
            raise RuntimeError("only a server that was started here can be restarted: make one with is_private=True")
        return self._binaries

    def _run_client(self, program: str, *arguments: str) -> None:
        folder = self._binaries.folder if self._binaries else self._binaries_folder or find_binaries()
        command = [str(folder / program), "--maintenance-db", self._address or self.url("postgres"), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_SECONDS_MAX, check=False)
        if done.returncode:
            raise PostgresCommandError(f"{program} {' '.join(arguments)} ended with {done.returncode}: {done.stderr.strip()}")

    def _started(self) -> str:
        self._home = _make_home()
        self._binaries = PostgresBinaries(self._binaries_folder or find_binaries(), self._home)
        if self._data is not None:
            self._binaries.give(self._data)
            (self._home / "data").symlink_to(self._data)
        self._guard = self._binaries.spawn(
            ["sh", "-c", _GUARD, str(self._binaries.folder / "pg_ctl"), str(self._home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        initialize = ["-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-locale", "--no-sync", "--no-instructions"]
        self._binaries.run("initdb", "-D", str(self._home / "data"), *initialize)
        with (self._home / "data" / "postgresql.conf").open("a", encoding="utf-8") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in self._settings.items())
        return f"postgresql://postgres@127.0.0.1:{self._run_on_free_port()}/postgres"

    def _run_on_free_port(self) -> int:
        for attempts_left in reversed(range(START_ATTEMPTS_MAX)):
            port = _free_port()
            try:
                self._run_server(port)
            except PostgresCommandError as error:
                if not attempts_left or "could not create any TCP/IP sockets" not in self.log:
                    error.add_note(self.log[-4000:])
                    raise
            else:
                return port
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _run_server(self, port: int) -> None:
        data = self.data_folder
        assert self._binaries is not None
        self._binaries.run("pg_ctl", "start", "-D", str(data), "-l", str(data.with_name("server.log")), "-o", f"-p {port}", "-w")

    def _clean_up(self) -> None:
        """Let the guard do its work and wait until it has; without a guard there is at most an empty folder."""
        guard, home = self._guard, self._home
        self._guard = self._home = self._binaries = None
        if guard is not None and guard.stdin is not None:
            guard.stdin.close()
            guard.wait(COMMAND_SECONDS_MAX)
        if home is not None:
            shutil.rmtree(home, ignore_errors=True)  # only if the guard was killed is there anything left


def _make_home() -> Path:
    """Return a new folder, below one that the server's user may enter."""
    preferred = Path(tempfile.gettempdir()).resolve()
    usable = preferred if os.geteuid() or is_open(preferred) else Path("/tmp")  # noqa: S108 - mkdtemp makes a folder of its own there
    return Path(tempfile.mkdtemp(prefix="outlast-postgres-", dir=usable))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
