"""What tests of copies and moves ask for: a file, where it is to go, a disk of their own, and file systems with and without marks."""

import errno
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
def marks(tmp_path):
    """A file system that keeps extended attributes."""
    probe = tmp_path / "probe"
    probe.touch()
    try:
        os.setxattr(probe, "user.outlast.probe", b"")
    except (AttributeError, OSError):
        pytest.skip("capability: the file system keeps no extended attributes")
    probe.unlink()


@pytest.fixture
def no_marks(monkeypatch):
    """A file system that keeps no extended attributes."""

    def refuse(*_):
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(os, "setxattr", refuse, raising=False)
    monkeypatch.setattr(os, "getxattr", refuse, raising=False)


@pytest.fixture
def disk(tmp_path):
    """A file system of 4 MiB."""
    if os.geteuid():
        pytest.skip("only root can mount a small file system")
    folder = tmp_path / "disk"
    folder.mkdir()
    with SmallDisk(folder, megabytes=4) as disk:
        yield disk
