"""Partial: the temporary file of one attempt to copy, beside the file that it will become.

Each attempt writes a file of its own and begins it with what the attempt before it had reached, once that is proven by
its hash. So a worker that was frozen, and wakes up after its run has gone on elsewhere, still writes, but into a file
that has no name any more. And so that none is left over, who publishes removes every partial file of the run, and who
closes one after that finds the final name taken and removes its own. Nothing partial ever stands under a final name.
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

    def __init__(self, target: Path, run_id: str, claim: str) -> None:
        self._target = target
        self.path = target.parent / f".{run_id}.{claim}.part"
        self._run_id = run_id
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
        for earlier in self.others():
            if _digest_of_first(earlier, int(progress.done)) == progress.note:
                self._append_first(earlier, int(progress.done))
                break
        self._reached = self.size
        return self.size

    def _append_first(self, path: Path, count: int) -> None:
        with path.open("rb") as file:
            while self.size < count and (chunk := file.read(min(CHUNK_BYTES, count - self.size))):
                self.write(chunk)

    def others(self) -> list[Path]:
        """Return the temporary files that other attempts of this run have left."""
        return [path for path in partial_files(self._target, self._run_id) if path != self.path]

    def remove_others(self) -> None:
        for path in self.others():
            path.unlink(missing_ok=True)


def partial_files(target: Path, run_id: str) -> list[Path]:
    """Return the temporary files of all attempts of a run."""
    return [path for path in target.parent.iterdir() if path.name.startswith(f".{run_id}.")]


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


def publish(partial: Path, target: Path, digest: str, run_id: str) -> None:
    """Give a complete file its final name, in one step that also survives a loss of power. It may be repeated."""
    if partial.exists() or not target.exists() or digest_of(target) != digest:  # else an attempt before this one came as far as that
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(partial, target)
    for left in partial_files(target, run_id):
        left.unlink(missing_ok=True)
    sync_folder(target.parent)


def sync_folder(folder: Path) -> None:
    """Make a folder's names durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
