"""Journal: lines that a process says of itself, each added by one write to a file opened for appending, so that a kill tears none.

The engine neither reads nor writes these; they are what its words are held against.
"""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
from pathlib import Path
from typing import Any

Line = dict[str, Any]


def end_with_parent() -> None:
    """End this process at once when the one that started it is gone: its end of our standard input is closed then."""

    def wait() -> None:
        os.read(0, 1)
        os._exit(1)

    threading.Thread(target=wait, name="lifeline", daemon=True).start()


class Journal:
    """One file of one process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._numbers = itertools.count()

    def add(self, event: str, /, **facts: Any) -> None:
        line = {"event": event, "at": time.time(), "pid": os.getpid(), "n": next(self._numbers), **facts}
        os.write(self._descriptor, json.dumps(line, default=str).encode() + b"\n")

    def close(self) -> None:
        os.close(self._descriptor)


def read_journal(path: Path) -> list[Line]:
    """Return the lines in the order in which they were written, each with the name of its file."""
    if not path.exists():
        return []
    return [{"file": path.stem, **json.loads(line)} for line in path.read_text(encoding="utf-8").splitlines()]
