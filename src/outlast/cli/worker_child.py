"""WorkerChild: the life of one worker process under a supervisor.

It tells the supervisor what happens in its engine, and stops when the supervisor is gone. Telling never waits: a
frozen supervisor must not hold up a lease.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import threading
from collections.abc import Sequence
from typing import Any

from outlast.events import Event
from outlast.limits import RENEWALS_PER_LEASE, STOP_GRACE

from .application import DONE, FAILED, Application
from .output import escaped

TOLD = {
    "worker_started",
    "worker_stopped",
    "worker_ended",
    "lease_renewed",
    "lease_not_renewed",
    "lease_lost",
    "run_recovered",
    "write_refused",
    "store_unavailable",
    "store_available",
}
AWAITED = {"store_unavailable", "store_available", "lease_renewed"}
MESSAGE_BYTES_MAX = 512
"""What POSIX lets a pipe take whole or not at all."""

logger = logging.getLogger("outlast.worker")


class Messages:
    """The child's end of the pipe to its supervisor."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        os.set_blocking(descriptor, False)

    def tell(self, event: str, **facts: Any) -> None:
        """Send one line, or drop it: the pipe is full when the supervisor is frozen, and broken when it is gone."""
        line = json.dumps({"event": event, **facts}, default=str).encode()
        if len(line) >= MESSAGE_BYTES_MAX:
            line = json.dumps({"event": event}).encode()
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            os.write(self._descriptor, line + b"\n")


class WorkerChild:
    """One engine, run until a signal comes or the supervisor goes."""

    def __init__(self, engine: Application, lifeline: int, messages: int, *, stop_timeout: float) -> None:
        for descriptor in (lifeline, messages):
            os.set_inheritable(descriptor, False)  # a program that a step starts must not keep the pipes open
        self._engine = engine
        self._lifeline = lifeline
        self._messages = Messages(messages)
        self._lease = engine.lease.total_seconds()
        self._stop_timeout = stop_timeout
        self._is_waiting = False
        """For a database that does not answer, so that no renewal can be expected."""

    async def run(self, queues: Sequence[str], concurrency: int) -> int:
        """Work until told to stop; return the exit code."""
        self._messages.tell("hello", lease=self._lease)
        self._engine.events.subscribe(self._pass_on, *TOLD, *AWAITED)
        threading.Thread(target=self._await_orphanhood, daemon=True, name="lifeline").start()
        threading.Thread(target=self._beat_while_unavailable, daemon=True, name="beat").start()
        async with self._engine:
            left = await self._engine.run(queues=queues, concurrency=concurrency, stop_timeout=self._stop_timeout)
            if left:
                self._leave_at_once(left)
        return DONE

    def _leave_at_once(self, left: Sequence[str]) -> None:
        """End the process while bodies still run in it: Python would wait for their threads, which is what they were given time for."""
        for run_id in left:
            logger.error("run %s was left to its lease: its body did not end in time", run_id)
        logging.shutdown()
        os._exit(FAILED)

    def _pass_on(self, event: Event) -> None:
        if event.name in AWAITED:  # once it answers, a renewal is owed again
            self._is_waiting = event.name == "store_unavailable"
        if event.name in TOLD:
            self._messages.tell(event.name, **event.facts)

    def _beat_while_unavailable(self) -> None:
        """Give signs of life while the database gives no renewals: an outage is no reason to end a worker that waits for it."""
        pause = threading.Event()
        while not pause.wait(self._lease / RENEWALS_PER_LEASE):
            if self._is_waiting:
                self._messages.tell("waits")

    def _await_orphanhood(self) -> None:
        """Stop when the supervisor is gone; nothing is ever sent on the lifeline, so a read returns at its end only."""
        os.read(self._lifeline, 1)
        logger.error("the supervisor is gone: stopping")
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait(self._stop_timeout + STOP_GRACE.total_seconds())
        os._exit(FAILED)


class EscapingFormatter(logging.Formatter):
    """Writes one record as one line, whatever is in its texts; only a traceback has lines of its own."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the standard library's name
        return escaped(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802 - as above
        return "\n".join(escaped(line) for line in super().formatException(ei).splitlines())


def set_up_logging() -> None:
    """Log to the error stream, unless the application has said otherwise."""
    if logging.getLogger().handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(EscapingFormatter("%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
