"""Register: the list of the files that have arrived, one entry a file.

A file is registered by giving a complete entry its name in one step, which the file system allows once only: whoever
comes second, after a crash or out of a freeze, finds the name taken. So a step that may run twice registers once.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import msgspec

from .partial import older, sync_folder, temporary


class RegisterEntry(msgspec.Struct, frozen=True):
    """A file that has arrived."""

    name: bytes
    """Its path in the library, as the file system has it."""
    size: int
    digest: str
    run: str


class Register:
    """The entries in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, entry: RegisterEntry, token: int, attempt: int) -> bool:
        """Register a file; return False when it was there. Token and attempt tell who does it from others of the same run."""
        self._folder.mkdir(exist_ok=True)
        draft = temporary(self._folder, entry.run, token, attempt)
        with draft.open("wb") as file:
            file.write(msgspec.json.encode(entry))
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, self._folder / f"{hashlib.sha256(entry.name).hexdigest()}.json")
            is_new = True
        except FileExistsError:
            is_new = False
        sync_folder(self._folder)
        for left in (draft, *older(draft)):
            left.unlink(missing_ok=True)
        return is_new

    def read(self) -> list[RegisterEntry]:
        """Return all entries."""
        return [msgspec.json.decode(path.read_bytes(), type=RegisterEntry) for path in sorted(self._folder.glob("*.json"))]

    def drafts(self) -> list[Path]:
        """Return what was left of attempts to register."""
        return list(self._folder.glob(".*"))
