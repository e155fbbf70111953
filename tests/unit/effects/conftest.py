"""What tests of copies and moves ask for: a file, where it is to go, and a disk of their own."""

import os

import pytest
from tests.outage.small_disk import SmallDisk

from .files import content


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "from" / "film.mkv"
    path.parent.mkdir()
    path.write_bytes(content())
    os.utime(path, ns=(1_000_000_000, 2_000_000_000))
    path.chmod(0o640)
    return path


@pytest.fixture
def target(tmp_path):
    path = tmp_path / "to" / "film.mkv"
    path.parent.mkdir()
    return path


@pytest.fixture
def disk(tmp_path):
    """A file system of 4 MiB."""
    if os.geteuid():
        pytest.skip("only root can mount a small file system")
    folder = tmp_path / "disk"
    folder.mkdir()
    with SmallDisk(folder, megabytes=4) as disk:
        yield disk
