"""Events: one JSON object a line, from a process under measurement to the harness.

Instants are the machine's monotonic clock in nanoseconds, which Node reads too, so that events of two processes can be
compared. An event is written whole and at once: the process may be killed right after it.
"""

import json
import os
import time
from typing import Any


def report(event: str, **facts: Any) -> None:
    """Print an event with its instant, in one write."""
    at_ns = time.monotonic_ns()
    os.write(1, (json.dumps({"event": event, "at_ns": at_ns, **facts}) + "\n").encode())
