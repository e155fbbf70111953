"""Mark: an extended attribute by which a file is known again as the one that an operation has copied or moved.

A stage is the better sign, but it goes when the attempt ends, and what came of that may not be recorded yet. The mark names
the operation and the file, so that a copy of the file that takes its attributes along has none. It is a help, and nothing
fails for want of it: without one (no such attributes, no right to set them) a reconciler says that nothing shows it.
"""

from __future__ import annotations

import contextlib
import os

_NAME = "user.outlast.operation"


def put(descriptor: int, operation: str) -> None:
    """Mark an open file, where its file system can; the caller syncs it. Replaces the mark of an earlier operation."""
    if hasattr(os, "setxattr"):
        with contextlib.suppress(OSError):
            os.setxattr(descriptor, _NAME, _value(descriptor, operation))


def is_put(descriptor: int, operation: str) -> bool:
    """Tell whether an open file has the mark of this operation. False shows nothing."""
    if not hasattr(os, "getxattr"):
        return False
    try:
        return os.getxattr(descriptor, _NAME) == _value(descriptor, operation)
    except OSError:
        return False


def _value(descriptor: int, operation: str) -> bytes:
    return f"{operation} {os.fstat(descriptor).st_ino}".encode()
