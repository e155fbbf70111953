"""What outage tests ask for: a server of their own that they may break, and a small disk that they may fill."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast.testing.postgres_binaries import is_open
from outlast.testing.postgres_server import FAST_SETTINGS, PostgresServer

from .small_disk import SmallDisk


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """A server for one test, with a database `app`."""
    with PostgresServer(is_private=True, settings=FAST_SETTINGS) as server:
        server.create_database("app")
        yield server


@pytest.fixture
def small_disk() -> Iterator[SmallDisk]:
    """A disk that a test fills. Only root may mount one."""
    if os.geteuid():
        pytest.skip("only root can mount a small file system")
    temporary = Path(tempfile.gettempdir())
    folder = Path(tempfile.mkdtemp(prefix="outlast-disk-", dir=temporary if is_open(temporary) else "/tmp"))  # where a server's user may go
    try:
        with SmallDisk(folder) as disk:
            yield disk
    finally:
        folder.rmdir()
