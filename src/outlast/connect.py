"""connect(url): the one place that knows every engine."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from outlast.duration import Duration, as_duration
from outlast.errors import NotSupportedError, UsageError
from outlast.limits import CONNECTIONS_MAX, LEASE, LEDGER_LEASE
from outlast.task import Task

if TYPE_CHECKING:
    from outlast.ledger.ledger import Ledger
    from outlast.native.backend import Backend
    from outlast.native.engine import NativeEngine
    from outlast.native.settings import Settings

_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):(.*)", re.DOTALL)


def connect(
    url: str,
    *,
    tasks: Iterable[Task[Any, Any]] = (),
    services: Any = None,
    migrate: bool | str = "create",
    lease: Duration = LEASE,
    direct_url: str | None = None,
    connections: int = CONNECTIONS_MAX,
    journal: str = "auto",
    name: str | None = None,
) -> NativeEngine:
    """Return an engine on the database at `url`. It does no I/O: whatever is wrong there shows at the first use.

    Args:
        url: `sqlite:///relative.db`, `sqlite:////absolute.db`, or `postgresql://user@host/database`; `postgres:` and
            `postgresql+anything:` mean the same.
        tasks: The tasks that this process may enqueue by their objects, and executes once it is started.
        services: What bodies and steps reach the world through: an object, or a function that returns an asynchronous
            context manager, entered once in each worker process before the first claim and left after the last body.
        migrate: `"create"` makes a missing schema and never alters one; True also upgrades; False does neither.
        lease: How long a worker may be silent before its runs go on elsewhere, from one second. A process that is
            proven to be dead is not waited for.
        direct_url: PostgreSQL only: reaches the server itself where `url` goes through a pooler.
        connections: PostgreSQL only: the size of the pool; the lease and the listener have connections of their own.
        journal: SQLite only: `"auto"`, `"wal"` or `"delete"`. Automatic is the rollback journal on versions of SQLite
            whose write-ahead log can lose commits when several processes restart it (before 3.51.3).
        name: A label of this process for people; host and process id by default.

    Raises:
        UsageError: A wrong address or option.
        NotSupportedError: An engine that is not there.
    """
    from outlast.native.engine import NativeEngine
    from outlast.native.settings import Settings, tasks_by_name

    settings = Settings(tasks_by_name(tasks), services, migrate, _silence(lease), name or f"{socket.gethostname()}:{os.getpid()}")
    backend, pulse = backends(url, settings, direct_url=direct_url, connections=connections, journal=journal)
    return NativeEngine(backend, pulse, settings)


def connect_ledger(url: str, *, services: Any = None, migrate: bool | str = "create", lease: Duration = LEDGER_LEASE) -> Ledger:
    """Return a ledger of effects in the database at `url`, for a program that has no engine: `async with connect_ledger(...) as ledger`.

    Args:
        url: As for `connect`. Runs of an engine on the same database share keys with it.
        services: What effects reach the world through: an object, or a function that returns an asynchronous context manager, which
            is entered and left with the ledger.
        migrate: `"create"` makes a missing schema and never alters one; True also upgrades; False does neither.
        lease: How long others wait for a caller who is silent before they ask what became of his attempt, from one second.

    It does no I/O before it is entered, and closes its connections when it is left. Raises as `connect`.
    """
    from outlast.ledger.ledger import Ledger
    from outlast.native.service_scope import ServiceScope
    from outlast.native.settings import Settings
    from outlast.native.store import Hold

    settings = Settings({}, services, migrate, _silence(lease), f"{socket.gethostname()}:{os.getpid()}")
    backend, _ = backends(url, settings)
    return Ledger(
        backend.database,
        backend.ledger,
        backend.decisions,
        services=ServiceScope(services),
        is_claimed=lambda tx, owner: backend.store.is_claimed(tx, Hold(owner.run, owner.token)),
        prepare=lambda: backend.schema.ensure(migrate),
        clock=settings.clock,
        lease=settings.lease,
    )


def backends(
    url: str, settings: Settings, *, direct_url: str | None = None, connections: int = CONNECTIONS_MAX, journal: str = "auto"
) -> tuple[Backend, Backend]:
    """Return the backend at `url`, and the one that the lease is renewed through: the same file, or a connection of its own."""
    match = _SCHEME.fullmatch(url) if isinstance(url, str) else None
    if match is None:
        raise UsageError(f"{url!r} is no database address: write sqlite:///outlast.db or postgresql://host/database")
    scheme = match[1].lower()
    if scheme == "sqlite":
        return _sqlite(match[2], settings, journal)
    if scheme in ("postgres", "postgresql") or scheme.startswith("postgresql+"):
        return _postgres(f"postgresql:{match[2]}", direct_url, connections)
    if scheme == "temporal" or scheme.startswith("openworkflow"):
        raise NotSupportedError(f"{scheme}: the engine for it is not part of this version; use sqlite: or postgresql:")
    raise UsageError(f"{scheme}: is no engine: write sqlite:///outlast.db or postgresql://host/database")


def _silence(lease: Duration) -> timedelta:
    try:
        return as_duration(lease, "lease")
    except ValueError as error:
        raise UsageError(str(error)) from None


def _sqlite(rest: str, settings: Settings, journal: str) -> tuple[Backend, Backend]:
    if rest in ("", "//", "///", "///:memory:"):
        raise UsageError("sqlite without a file keeps everything in memory, which ends with the process: name a file, such as sqlite:///outlast.db")
    if not rest.startswith("///"):
        raise UsageError(f"sqlite:{rest} has two slashes or fewer: write sqlite:///relative.db or sqlite:////absolute.db")
    if "?" in rest or "#" in rest:
        raise UsageError(f"sqlite:{rest} has options, of which there are none; a '?' or '#' in a file's name is written %3F or %23")
    from outlast.native.sqlite.backend import sqlite_backend

    if journal not in ("auto", "wal", "delete"):
        raise UsageError(f"journal is {journal!r}: write 'auto', 'wal' or 'delete'")
    backend = sqlite_backend(unquote(rest[3:]), journal=journal, clock=settings.clock)  # type: ignore[arg-type]  # checked in the line above
    return backend, backend


def _postgres(url: str, direct_url: str | None, connections: int) -> tuple[Backend, Backend]:
    try:
        from outlast.native.postgres.backend import postgres_backend
    except ImportError as error:
        raise UsageError(f"PostgreSQL needs its driver: pip install 'outlast[postgres]' ({error})") from error
    if isinstance(connections, bool) or not isinstance(connections, int) or not 2 <= connections <= 100:
        raise UsageError(f"connections is {connections!r}: write a number from 2 to 100")
    if direct_url is not None and not direct_url.startswith(("postgres:", "postgresql:", "postgresql+")):
        raise UsageError("direct_url is no PostgreSQL address: write postgresql://host/database")
    return postgres_backend(url, direct_url=direct_url, connections=connections), postgres_backend(url, direct_url=direct_url, connections=1, role="lease")
