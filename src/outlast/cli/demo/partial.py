"""Partial: the temporary file of one attempt to copy, beside the file that it will become.

Each attempt writes a file of its own and begins it with what the attempt before it had reached, once that is proven by
its hash. So a worker that was frozen, and wakes up after its run has gone on elsewhere, still writes, but into a file
that has no name any more. What an attempt removes are files of older claims only, told by their fencing tokens: an old
one that ends late must not take away what its successor has made. So that none is left over, who publishes removes what
is older, and who closes a file after that finds the final name taken and removes its own. Nothing partial ever stands
under a final name.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from outlast.run import Progress

CHUNK_BYTES = 1 << 18


class Partial:
    """A temporary file in the making; used as a context manager."""

    def __init__(self, target: Path, run_id: str, token: int, attempt: int) -> None:
        self._target = target
        self.path = temporary(target.parent, run_id, token, attempt)
        self.size = 0
        self._hash = hashlib.sha256()
        self._file: BinaryIO | None = None
        self._reached = 0

    def __enter__(self) -> Partial:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.path.open("wb")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._file is not None
        self._file.close()
        if self._target.exists() or (kind is not None and self.size == self._reached):
            self.path.unlink(missing_ok=True)  # its run has gone on without it, or may have, and nothing new is in it

    @property
    def digest(self) -> str:
        """SHA-256 of what is written."""
        return self._hash.hexdigest()

    def write(self, chunk: bytes) -> None:
        assert self._file is not None
        self._file.write(chunk)
        self._file.flush()
        self._hash.update(chunk)
        self.size += len(chunk)

    def take_over(self, progress: Progress | None) -> int:
        """Begin with what an earlier attempt reported and has on disk, and return how many bytes that are."""
        if progress is None or not progress.done:
            return 0
        for earlier in older(self.path):
            if _digest_of_first(earlier, int(progress.done)) == progress.note:
                self._append_first(earlier, int(progress.done))
                break
        self._reached = self.size
        return self.size

    def _append_first(self, path: Path, count: int) -> None:
        with path.open("rb") as file:
            while self.size < count and (chunk := file.read(min(CHUNK_BYTES, count - self.size))):
                self.write(chunk)

    def remove_older(self) -> None:
        """Remove what attempts before this one have left."""
        for path in older(self.path):
            path.unlink(missing_ok=True)


def temporary(folder: Path, run_id: str, token: int, attempt: int) -> Path:
    """Return the name of an attempt's temporary file, which no other attempt has."""
    return folder / f".{run_id}.{token}.{attempt}.part"


def older(path: Path) -> list[Path]:
    """Return the temporary files that older claims, and older attempts of the same claim, of a file's run have left, newest first."""
    run_id, own = _owner(path)
    claims = [(claim, other) for other in path.parent.glob(f".{run_id}.*.part") if (claim := _owner(other)[1]) < own]
    return [other for _, other in sorted(claims, reverse=True)]


def _owner(path: Path) -> tuple[str, tuple[int, int]]:
    """Return the run that a temporary file belongs to, and the token and number of the attempt that made it."""
    _, run_id, token, attempt, _ = path.name.split(".")
    return run_id, (int(token), int(attempt))


def _digest_of_first(path: Path, count: int) -> str | None:
    """Return the SHA-256 of a file's first bytes, None if it has fewer."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while count and (chunk := file.read(min(CHUNK_BYTES, count))):
                digest.update(chunk)
                count -= len(chunk)
    except FileNotFoundError:
        return None
    return None if count else digest.hexdigest()


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def publish(partial: Path, target: Path, digest: str) -> None:
    """Give a complete file its final name, in one step that also survives a loss of power. It may be repeated."""
    if partial.exists() or not target.exists() or digest_of(target) != digest:  # else an attempt before this one came as far as that
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(partial, target)
    for left in older(partial):
        left.unlink(missing_ok=True)
    sync_folder(target.parent)


def sync_folder(folder: Path) -> None:
    """Make a folder's names durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
