"""The process in which one attempt of a `process=True` step runs: reads an order, performs it, answers, and ends.

It never opens a database. Standard output belongs to the answer, so what the step prints goes to standard error.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import sys
import threading
from typing import IO, Any

import msgspec

from outlast.errors import FinalError, PayloadError, UsageError
from outlast.failure import capture
from outlast.run import Progress
from outlast.scope import STEP
from outlast.step import Step, StepOptions
from outlast.this_step import StepAttempt

from .encoding import failure_text


def main() -> None:
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    order = msgspec.json.decode(sys.stdin.buffer.readline())
    attempt = _attempt(order, answers)
    threading.Thread(target=_listen, args=(attempt,), daemon=True).start()
    _answer(answers, *_perform(order, attempt))
    os._exit(0)  # threads that the step left behind must not keep the process


def _attempt(order: dict[str, Any], answers: IO[bytes]) -> StepAttempt[Any]:
    def report(_: StepAttempt[Any], progress: Progress) -> None:
        _answer(answers, "progress", [progress.done, progress.total, progress.note])

    last = order["last_progress"]
    return StepAttempt(
        run_id=order["run_id"],
        key=order["key"],
        attempt=order["attempt"],
        fencing_token=order["fencing_token"],
        services=_no_services,
        log=lambda: logging.getLogger("outlast.task"),
        last_progress=Progress(*last) if last else None,
        on_progress=report,
    )


def _no_services() -> Any:
    raise UsageError("a step with process=True has no services: give it plain values, and let it open what it needs")


def _listen(attempt: StepAttempt[Any]) -> None:
    """Hear that the attempt is to stop; end when the worker is gone."""
    while line := sys.stdin.buffer.readline():
        attempt.tell(msgspec.json.decode(line, type=str))
    os._exit(1)


def _perform(order: dict[str, Any], attempt: StepAttempt[Any]) -> tuple[str, str]:
    STEP.set(lambda: attempt)
    try:
        step = _find(order["module"], order["qualname"])
        args, kwargs = step.signature.decode_arguments(order["arguments"], step.arguments_field)
        value = step.function(*args, **kwargs)
        if step.is_async:
            value = asyncio.run(value)
        return "result", step.signature.result.encode(value, step.result_field)
    except BaseException as error:  # whatever the step raises is the answer
        return "failure", failure_text(capture(error, is_final=isinstance(error, FinalError | PayloadError)))


def _find(module: str, qualname: str) -> Step[..., Any]:
    """Return the step; the names come from the code of the worker that started this process, never from the database."""
    found: Any = importlib.import_module(module)
    for part in qualname.split("."):
        found = getattr(found, part)
    return found if isinstance(found, Step) else Step(found, StepOptions(qualname))


def _answer(answers: IO[bytes], kind: str, value: Any) -> None:
    line = msgspec.json.encode([kind, value]) + b"\n"
    while line:
        line = line[answers.write(line) :]


if __name__ == "__main__":
    main()
