"""What every test may ask for: a database of its own, on SQLite or on a real PostgreSQL; and what no test may leave behind.

One PostgreSQL serves the whole session, whatever the number of pytest's processes, and is gone when the last one ends.
"""

import itertools
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from outlast.testing.postgres_binaries import PostgresNotFoundError, find_binaries
from outlast.testing.postgres_server import ADDRESS_VARIABLE, PostgresServer
from outlast.testing.shared_server import SharedServer

if TYPE_CHECKING:
    from tests.outage.pgbouncer import PgBouncer

THREAD_END_SECONDS_MAX = 5.0
"""How long a thread that was told to end may take on a loaded machine."""
LACKING_CAPABILITY = "capability:"
"""How the reason of a skip begins that is right everywhere: the adapter says itself that it cannot do this."""

_numbers = itertools.count()

# How long an example takes says something about the machine, and nothing about what is tested.
settings.register_profile("outlast", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("outlast")


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """The session's server. Whoever wants to stop or break one starts a `PostgresServer(is_private=True)`."""
    if os.environ.get(ADDRESS_VARIABLE):
        yield PostgresServer()
        return
    try:
        find_binaries()
    except PostgresNotFoundError as error:
        pytest.skip(str(error))
    session = tmp_path_factory.getbasetemp()
    shared = SharedServer(session.parent if "PYTEST_XDIST_WORKER" in os.environ else session)
    try:
        yield PostgresServer(shared.join())
    finally:
        shared.leave()


@pytest.fixture(scope="session")
def pooler(postgres_server: PostgresServer) -> "Iterator[PgBouncer]":
    """PgBouncer in transaction mode before the session's server."""
    from tests.outage.pgbouncer import PgBouncer

    with PgBouncer(postgres_server.url("postgres")) as pooler:
        yield pooler


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """The address of a new, empty PostgreSQL database."""
    name = f"test_{os.environ.get('PYTEST_XDIST_TESTRUNUID', '')[:8]}_{os.getpid()}_{next(_numbers)}"
    yield postgres_server.create_database(name)
    postgres_server.drop_database(name)


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """The address of a SQLite file that is not there yet."""
    return f"sqlite:///{tmp_path / 'outlast.db'}"


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest) -> str:
    """The address of a new database, on each of the two in turn."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture(autouse=True)
def no_leaked_threads() -> Iterator[None]:
    """Fail a test that leaves a thread which would keep its process from ending."""
    before = set(threading.enumerate())
    yield
    leaked = [thread for thread in threading.enumerate() if thread not in before and not thread.daemon]
    for thread in leaked:
        thread.join(THREAD_END_SECONDS_MAX)
    alive = [thread.name for thread in leaked if thread.is_alive()]
    assert not alive, f"the test left threads running: {', '.join(alive)}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """In CI a skipped test is a failed one: what is never run there is not tested at all."""
    report = yield
    return _failed_if_skipped(report)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """The same for a file that is skipped as a whole."""
    report = yield
    return _failed_if_skipped(report)


def _failed_if_skipped(report):
    if os.environ.get("CI") and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if not reason.removeprefix("Skipped: ").startswith(LACKING_CAPABILITY):
            report.outcome, report.longrepr = "failed", f"in CI a skip is a failure: {reason}"
    return report
