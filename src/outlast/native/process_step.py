"""Steps in processes of their own: the parent's side. The child's is `step_process`.

The two talk in lines of JSON over the child's standard input and output. The child ends when its input does, so it
never outlives the worker; it is told to stop by a line, and killed when it has not within the grace.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from datetime import timedelta
from typing import Any

import msgspec

from outlast.errors import OutlastError, UsageError
from outlast.failure import Failure
from outlast.limits import PAYLOAD_BYTES_MAX
from outlast.step import Step
from outlast.this_step import StepAttempt

from .encoding import parse_failure

_LINE_BYTES_MAX = 8 * PAYLOAD_BYTES_MAX  # a result of a mebibyte, escaped twice


class ProcessFailedError(OutlastError):
    """An attempt in a process of its own failed; `failure` is what it raised, or how it died."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(str(failure))
        self.failure = failure


async def run_in_process(step: Step[..., Any], arguments: str, attempt: StepAttempt[Any], timeout: timedelta | None) -> Any:
    """Run one attempt in a new process and return its decoded result."""
    if step.function.__module__ == "__main__":
        raise UsageError(f"step {step.options.name}: process=True takes a function of a module that can be imported, not of the program that was started")
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "outlast.native.step_process",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        limit=_LINE_BYTES_MAX,
    )
    try:
        await _order(process, step, arguments, attempt)
        async with asyncio.timeout(timeout.total_seconds() if timeout is not None else None) as limit:
            text = await _answer(process, attempt)
    except TimeoutError:
        if limit.expired():
            await _end(process, "the attempt timed out", attempt)
            message = f"an attempt of step {attempt.key} took longer than {timeout}; its process was killed"
            raise ProcessFailedError(Failure("outlast.StepTimeout", message)) from None
        raise
    except asyncio.CancelledError:
        await _end(process, "canceled", attempt)
        raise
    finally:
        await _end(process, "", attempt, grace=timedelta(0))
    return step.signature.result.decode(text, step.result_field)


async def _order(process: asyncio.subprocess.Process, step: Step[..., Any], arguments: str, attempt: StepAttempt[Any]) -> None:
    last = attempt.last_progress
    order = {
        "module": step.function.__module__,
        "qualname": step.function.__qualname__,
        "arguments": arguments,
        "run_id": attempt.run_id,
        "key": attempt.key,
        "attempt": attempt.attempt,
        "fencing_token": attempt.fencing_token,
        "last_progress": [last.done, last.total, last.note] if last is not None else None,
    }
    assert process.stdin is not None  # it was asked for
    process.stdin.write(msgspec.json.encode(order) + b"\n")
    await process.stdin.drain()


async def _answer(process: asyncio.subprocess.Process, attempt: StepAttempt[Any]) -> str:
    """Read what the child says until it has a result; return that as JSON text."""
    assert process.stdout is not None  # it was asked for
    while line := await process.stdout.readline():
        kind, value = msgspec.json.decode(line, type=tuple[str, Any])
        if kind == "progress":
            attempt.progress(*value)
        elif kind == "failure":
            raise ProcessFailedError(parse_failure(value))
        else:
            return str(value)
    code = await process.wait()
    how = f"signal {-code}" if code < 0 else f"exit status {code}"
    raise ProcessFailedError(Failure("outlast.ProcessDied", f"the process of step {attempt.key} ended with {how} and no result"))


async def _end(process: asyncio.subprocess.Process, reason: str, attempt: StepAttempt[Any], grace: timedelta | None = None) -> None:
    """See to it that the process ends: told first, killed after the grace."""
    if process.returncode is not None:
        return
    assert process.stdin is not None  # it was asked for
    with contextlib.suppress(ConnectionError):  # it does not listen any more
        if reason:
            process.stdin.write(msgspec.json.encode(reason) + b"\n")
        # Not asyncio.timeout: before Python 3.11.3 it raises CancelledError at its end in a task that is being canceled (gh-102780).
        await asyncio.wait({asyncio.ensure_future(process.wait())}, timeout=(attempt.grace if grace is None else grace).total_seconds())
    if process.returncode is None:
        attempt.was_killed = True
        process.kill()
        await process.wait()
