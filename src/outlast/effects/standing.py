"""Standing: what already has a final name, and whether it is what would be put there.

It never changes anything but what is durable: whoever says "it is there" has synced it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outlast.effect import Attempt, NotDone
from outlast.errors import FinalError

from .folder import find, is_plain, is_same, sync_folder
from .original import Original, ticking
from .stage import changed


class TargetExistsError(FinalError):
    """The target's name is taken by something else, which is never overwritten: remove it, or choose another name."""

    def __init__(self, target: Path) -> None:
        super().__init__(f"{str(target)!r} is there with other content, and is never overwritten: remove it, or choose another name")


@contextmanager
def nothing_done() -> Iterator[None]:
    """Make an error of the file system say that nothing was done: used where nothing has been yet."""
    try:
        yield
    except OSError as error:
        raise NotDone(error) from error


def ensure_folder(target: Path) -> None:
    """See that the target's folder is there; it is not created, because a missing one may be a disk that is not mounted."""
    if not os.path.isdir(target.parent):
        raise NotDone(FileNotFoundError(errno.ENOENT, "the target's folder is not there: create it, or mount its disk", str(target.parent)))


def same_content(attempt: Attempt[Any], original: Original, other: Original) -> str | None:
    """Return the SHA-256 that both files have; None when they differ or change while they are read."""
    if original.size != other.size:
        return None
    digest = other.hash(ticking(attempt, other.size, "comparing"))
    return digest if digest is not None and digest == original.hash(ticking(attempt, original.size, "comparing")) else None


@dataclass(frozen=True, slots=True)
class Standing:
    """What stands under a final name with the content that was to be put there."""

    stat: os.stat_result
    sha256: str | None
    """None when it is the same file and was not read."""


def find_same(attempt: Attempt[Any], original: Original, target: Path) -> Standing | None:
    """Return what stands under the target's name with the same content, made durable; None when nothing stands there.

    Raises `TargetExistsError` for anything else, and `NotDone` when the file system does not answer.
    """
    with nothing_done():
        found = find(target)
        if found is None:
            return None
        if not is_plain(found):
            raise TargetExistsError(target)
        with Original(target) as other:
            digest = same_content(attempt, original, other)
            if digest is None:
                raise TargetExistsError(target) if original.is_unchanged() else changed(original)
            make_durable(other)
            return Standing(other.stat, digest)


def make_durable(file: Original) -> None:
    """Sync a file and its name."""
    os.fsync(file.descriptor)
    sync_folder(file.path.parent)


def why_not_ours(attempt: Attempt[Any], file: Original, size: int, sha256: str | None) -> str | None:
    """Return why a file is not what an effect has made, None when it is."""
    if file.size != size:
        return f"its size is {file.size}, and not {size}"
    if sha256 is not None and file.hash(ticking(attempt, file.size, "comparing")) != sha256:
        return "its content is not what was put there"
    return None


def ensure_two_files(original: Original, target: Path) -> None:
    """Refuse a source and a target that are one file."""
    if is_same(find(target), original.stat):
        raise FinalError(f"{str(original.path)!r} and {str(target)!r} are one file: choose another target")
