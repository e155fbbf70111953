"""Original: an open file whose content is read and hashed, and how it is known that it is still the file it was.

The open file pins what was opened: no other can get its identity while this one is looked at. It is never written to.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from outlast.effect import Attempt
from outlast.errors import FinalError
from outlast.limits import COPY_CHUNK_BYTES

Tick = Callable[[int], None]
"""Called with how many bytes are done, after each chunk."""


class Original:
    """A file that was opened for reading; used as a context manager."""

    def __init__(self, path: Path, *, follows_links: bool = False) -> None:
        """Open it. `FinalError` for what is no ordinary file, `OSError` for what cannot be opened."""
        self.path = path
        self._follows_links = follows_links
        _ensure_ordinary(path, self._look())
        # O_NONBLOCK: were it exchanged for a pipe in this moment, the opening would wait for ever.
        self.descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if follows_links else os.O_NOFOLLOW))
        try:
            self.stat = os.fstat(self.descriptor)
            _ensure_ordinary(path, self.stat)
        except BaseException:
            os.close(self.descriptor)
            raise

    def __enter__(self) -> Original:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        os.close(self.descriptor)

    @property
    def size(self) -> int:
        """In bytes, when it was opened."""
        return self.stat.st_size

    def chunks(self) -> Iterator[bytes]:
        """Yield its content from the beginning."""
        return chunks_of(self.descriptor, self.size)

    def hash(self, tick: Tick) -> str | None:
        """Return the SHA-256 of its content, None when it changed meanwhile."""
        digest, done = hashlib.sha256(), 0
        for chunk in self.chunks():
            digest.update(chunk)
            done += len(chunk)
            tick(done)
        return digest.hexdigest() if done == self.size and self.is_unchanged() else None

    def is_unchanged(self) -> bool:
        """Tell whether the path still leads to the file that was opened, and nobody has written to it since."""
        return self.is_in_place() and _state(os.fstat(self.descriptor)) == _state(self.stat)

    def is_in_place(self) -> bool:
        """Tell whether the path still leads to the file that was opened."""
        try:
            return os.path.samestat(self._look(), self.stat)
        except (FileNotFoundError, NotADirectoryError):
            return False

    def _look(self) -> os.stat_result:
        return os.stat(self.path, follow_symlinks=self._follows_links)


def chunks_of(descriptor: int, size: int) -> Iterator[bytes]:
    """Yield what an open file holds, and at most one chunk more than `size` bytes: one that grows would never end."""
    done = 0
    while done <= size and (chunk := os.pread(descriptor, COPY_CHUNK_BYTES, done)):
        yield chunk
        done += len(chunk)


def _state(found: os.stat_result) -> tuple[int, ...]:
    """The time of the last change is in it because programs set the time of the last writing back. A new mode or name changes it too."""
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _ensure_ordinary(path: Path, found: os.stat_result) -> None:
    if stat.S_ISREG(found.st_mode):
        return
    kind = "a symbolic link" if stat.S_ISLNK(found.st_mode) else "a folder" if stat.S_ISDIR(found.st_mode) else "a device, pipe or socket"
    raise FinalError(f"{str(path)!r} is {kind}: name an ordinary file")


def ticking(attempt: Attempt[Any], total: int, note: str = "") -> Tick:
    """Return what reports progress after each chunk, and ends what was canceled."""

    def tick(done: int) -> None:
        attempt.raise_if_canceled()
        attempt.progress(done, total, note)

    return tick


def ensure_paths(**paths: Path) -> None:
    """Refuse what means another file in another process: `FinalError`."""
    for name, path in paths.items():
        if not isinstance(path, Path):
            raise FinalError(f"{name} is {path!r:.200}: pass a Path")
        if not path.is_absolute():
            raise FinalError(f"{name} {str(path)!r} is relative, and another worker has another current folder: pass an absolute path, such as path.resolve()")
        if "\0" in str(path):
            raise FinalError(f"{name} {str(path)!r} has a NUL in it, which no file's name can have: leave it out")
