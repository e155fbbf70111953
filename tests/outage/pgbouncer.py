"""PgBouncer in transaction mode before a server, with the configuration that the documentation shows."""

import configparser
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest

from outlast.testing.postgres_binaries import PostgresBinaries, find_binaries, is_open

PAGE = Path(__file__).parents[2] / "docs" / "outages.md"
_START_SECONDS_MAX = 60.0


class PgBouncer:
    """A pooler within a `with` block, before the server at an address. Any database of that server may be named."""

    def __init__(self, server_url: str) -> None:
        self._server = urlsplit(server_url)
        self._port = _free_port()
        self._program = _find_program()
        temporary = Path(tempfile.gettempdir())
        parent = temporary if os.geteuid() or is_open(temporary) else Path("/tmp")
        self._home = Path(tempfile.mkdtemp(prefix="outlast-pgbouncer-", dir=parent))
        self._binaries = PostgresBinaries(find_binaries(), self._home)  # which also knows whom to be instead of root
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "PgBouncer":
        self._write_configuration()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self._home)

    def url(self, database_url: str) -> str:
        """Return the address, through the pooler, of the database that has this address at the server."""
        user = self._server.username or "postgres"
        return urlunsplit(self._server._replace(netloc=f"{user}@127.0.0.1:{self._port}", path=urlsplit(database_url).path))

    def start(self) -> None:
        with (self._home / "log").open("ab") as log:
            self._process = self._binaries.spawn([self._program, str(self._home / "pgbouncer.ini")], stdout=log, stderr=log)
        ended = threading.Event()
        for _ in range(int(_START_SECONDS_MAX / 0.05)):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self._port)) == 0:
                    return
            ended.wait(0.05)
        raise AssertionError(f"the pooler never listened\n{(self._home / 'log').read_text(errors='replace')}")

    def kill(self) -> None:
        """End it without a goodbye."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGKILL)
            process.wait()

    def _write_configuration(self) -> None:
        configuration, user = shown_configuration(), self._server.username or "postgres"
        configuration["databases"] = {"*": f"host={self._server.hostname} port={self._server.port or 5432}"}
        users, file = self._home / "users", self._home / "pgbouncer.ini"
        # What belongs to this machine: it trusts whoever comes over loopback, as the server does.
        ours = {"listen_addr": "127.0.0.1", "listen_port": str(self._port), "auth_type": "trust", "auth_file": str(users), "unix_socket_dir": ""}
        configuration["pgbouncer"].update(ours)
        with file.open("w", encoding="utf-8") as lines:
            configuration.write(lines)
        users.write_text(f'"{user}" ""\n', encoding="utf-8")
        for path in (users, file):
            self._binaries.give(path)


def shown_configuration() -> configparser.ConfigParser:
    """Return the block of the page."""
    (block,) = re.findall(r"```ini\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    configuration = configparser.ConfigParser(interpolation=None)
    configuration.read_string(block)
    return configuration


def _find_program() -> str:
    program = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}{os.pathsep}/usr/sbin")
    if program is None:
        pytest.skip("there is no pgbouncer on this machine: install the package of that name")
    return program


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
