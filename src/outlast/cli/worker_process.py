"""WorkerProcess: one worker as the process that started it sees it, and the two pipes between them.

The child tells its events through one pipe, one line of JSON each; it learns from the other, on which nothing is ever
sent, that its starter is gone. A process is ended by its own object only, never by a name.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import IO, Any

from outlast.clock import Clock, SystemClock

READ_BYTES = 1 << 16


class WorkerProcess:
    """A started child. Its messages are read by `read_messages`, which never waits."""

    def __init__(
        self, command: Sequence[str], *, clock: Clock | None = None, output: IO[bytes] | None = None, environment: dict[str, str] | None = None
    ) -> None:
        self._clock = clock or SystemClock()
        self.messages_fd, child_writes = os.pipe()
        child_reads, self._lifeline = os.pipe()
        os.set_blocking(self.messages_fd, False)
        try:
            self._process = subprocess.Popen(
                [*command, "--child", f"{child_reads}:{child_writes}"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(child_reads, child_writes),
                process_group=0,  # a terminal's Ctrl-C is for the starter, who passes it on once
                env=environment,
            )
        except BaseException:
            os.close(self.messages_fd)
            os.close(self._lifeline)
            raise
        finally:
            os.close(child_reads)
            os.close(child_writes)
        self.pid = self._process.pid
        self.started = self._clock.monotonic()
        self.beat: float | None = None
        """When it last gave a sign of life; None until the first one, and again once it stops in good order."""
        self.lease: float = float("inf")
        self._rest = b""

    @property
    def exit_code(self) -> int | None:
        """None while it lives; negative for the signal that ended it."""
        return self._process.poll()

    @property
    def silence(self) -> float:
        """Seconds since its last sign of life; 0 while none is owed."""
        return 0.0 if self.beat is None else self._clock.monotonic() - self.beat

    @property
    def is_silent(self) -> bool:
        """True past its lease: it is frozen, maybe inside a write that keeps everybody else from writing."""
        return self.silence > self.lease

    def read_messages(self) -> list[dict[str, Any]]:
        """Return what it told since the last call, and take each as a sign of life."""
        data = b""
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self.messages_fd, READ_BYTES):
                data += chunk
        *lines, self._rest = (self._rest + data).split(b"\n")
        messages: list[dict[str, Any]] = [json.loads(line) for line in lines]
        for message in messages:
            self._note(message)
        return messages

    def _note(self, message: dict[str, Any]) -> None:
        if message["event"] == "hello":
            self.lease = message["lease"]
        elif message["event"] == "worker_stopped":
            self.beat = None
            self.lease = float("inf")
        elif self.beat is not None or message["event"] in ("worker_started", "lease_renewed"):
            self.beat = self._clock.monotonic()

    def stop(self) -> None:
        """Ask it to stop in good order."""
        self._signal(signal.SIGTERM)

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self.exit_code is None:  # not reaped yet, so the id is still its own
            self._process.send_signal(number)

    def close(self) -> None:
        """End it if it lives, reap it and close the pipes."""
        self.kill()
        self._process.wait()
        os.close(self._lifeline)
        os.close(self.messages_fd)


def worker_command(app: str, *, queues: Sequence[str], concurrency: int, stop_timeout: float) -> list[str]:
    """Return the command that becomes a worker child of this program."""
    settings = ["--queues", ",".join(queues), "--concurrency", str(concurrency), "--stop-timeout", str(stop_timeout)]
    return [sys.executable, "-m", "outlast", "worker", "--app", app, *settings]
