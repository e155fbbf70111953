"""What tests of copies and moves share: attempts made by hand, files, and what is looked at afterwards."""

import errno
import hashlib
import logging
import os
from pathlib import Path

from outlast.effect import Attempt
from outlast.effects import copy_file, fault_points
from outlast.effects.stage import Stage
from outlast.this_step import StepAttempt

KEY = "0190a6e0-0000-7000-8000-000000000000/0/copy_file"
CHUNK = 1 << 20


class Reports(list):
    """What an attempt reported, and the means to cancel it."""

    step: StepAttempt


def attempt_of(number: int = 1, *, key: str = KEY, token: int | None = None, reports: Reports | None = None) -> Attempt:
    """Return an attempt like the engine's; its token is ten times its number unless given."""
    reports = Reports() if reports is None else reports
    step = StepAttempt(
        run_id="id",
        key="copy_file",
        attempt=number,
        fencing_token=1,
        services=lambda: None,
        log=lambda: logging.getLogger("test"),
        last_progress=None,
        on_progress=lambda _, progress: reports.append(progress),
    )
    reports.step = step
    return Attempt(step, key=key, number=number, token=10 * number if token is None else token)


def copy(source: Path, target: Path, number: int = 1, reports: Reports | None = None):
    """Make one attempt to copy."""
    return copy_file(attempt_of(number, reports=reports), source, target)


def stage_of(number: int, target: Path) -> Path:
    """Return the temporary name of an attempt."""
    return Stage(attempt_of(number), target).path


def rewritten(source: Path) -> None:
    """Change a file's content and not its size."""
    with source.open("r+b") as file:
        file.write(b"changed")


def no_links(*_: object, **__: object) -> None:
    """Answer like a file system without hard links."""
    raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


def content(size: int = 3 * CHUNK + 17) -> bytes:
    """Return bytes in which no chunk is like another."""
    return hashlib.shake_256(b"outlast").digest(size)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def names(folder: Path) -> list[str]:
    """Return what is in a folder, temporary names too."""
    return sorted(path.name for path in folder.iterdir())


class At:
    """Does something when a fault point is reached for the `count`th time, once."""

    def __init__(self, monkeypatch, point: str, action, count: int = 1) -> None:
        assert point in fault_points.NAMES
        self._point, self._action, self._left = point, action, count
        self.seen: list[str] = []
        monkeypatch.setattr(fault_points, "reached", self._reached)

    def _reached(self, point: str) -> None:
        self.seen.append(point)
        if point == self._point:
            self._left -= 1
            if self._left == 0:
                self._action()
