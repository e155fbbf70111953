"""One attempt to copy or move in a process of its own, which kills or stops itself at a named point: `python FILE JSON`.

From the second attempt on the one before is reconciled first, as the engine does. What came of it is printed as one line.
"""

import errno
import json
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any

from outlast.effect import Attempt, Done, NotDone, Unsure
from outlast.effects import copy_file, fault_points, move_file, original
from outlast.this_step import StepAttempt

CHUNK_BYTES = 1 << 16
"""Smaller than a real one, so that there are several in a file that is quickly read."""
EFFECTS = {"copy": copy_file, "move": move_file}
DEEDS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


def attempt_of(number: int) -> Attempt[Any]:
    step: StepAttempt[Any] = StepAttempt(
        run_id="id",
        key="copy",
        attempt=number,
        fencing_token=number,
        services=lambda: None,
        log=lambda: logging.getLogger("child"),
        last_progress=None,
        on_progress=lambda _attempt, _progress: None,
    )
    return Attempt(step, key="0190a6e0-0000-7000-8000-000000000000/0/copy", number=number, token=number)


def act_at(point: str, count: int, deed: str) -> None:
    """Do the deed when the point is reached for the `count`th time."""
    left = count

    def reached(name: str) -> None:
        nonlocal left
        if name == point:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), DEEDS[deed])

    fault_points.reached = reached


def refuse_links(*_: Any, **__: Any) -> None:
    """Answer like a file system without hard links."""
    raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


def perform(what: str, source: str, target: str, number: int, *, goes_on: bool = True) -> str:
    """Make an attempt, from the second on after a look at the one before, and say what came of it."""
    effect, paths = EFFECTS[what], (Path(source), Path(target))
    if number > 1:
        assert effect.reconciler is not None
        verdict = effect.reconciler.function(attempt_of(number - 1), *paths)
        match verdict:
            case Done(result):
                return f"found done: {result}"
            case Unsure(reason):
                return f"unsure: {reason}"
        if not verdict.revoked:
            return f"not revoked: {verdict}"
        if not goes_on:
            return "revoked"
    try:
        return f"done: {effect(attempt_of(number), *paths)}"
    except NotDone as error:
        return f"not done: {error}"
    except Exception as error:
        return f"unknown: {error!r}"


def main() -> None:
    told = json.loads(sys.argv[1])
    original.COPY_CHUNK_BYTES = CHUNK_BYTES
    if told.pop("has_no_links", False):
        os.link = refuse_links  # type: ignore[assignment]
    act_at(told.pop("point", ""), told.pop("count", 1), told.pop("deed", "kill"))
    sys.stdout.write(ascii(perform(**told)) + "\n")


if __name__ == "__main__":
    main()
