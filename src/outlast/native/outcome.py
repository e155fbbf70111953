"""What `result()` makes of a run that is over: its value, or the error that names how it ended. Pure."""

from __future__ import annotations

from typing import Any

from outlast.errors import RunCanceledError, RunDeadError, RunError, RunFailedError
from outlast.failure import Failure
from outlast.run import RunStatus, RunView
from outlast.task_ref import TaskRef

_UNKNOWN = Failure("outlast.Unknown", "no error was recorded")


def decoded_result(task: TaskRef[Any, Any], view: RunView) -> Any:
    match view.status:
        case RunStatus.SUCCEEDED:
            return task.output.decode(view.output or "null", f"result of run {view.id}")
        case RunStatus.FAILED:
            raise RunFailedError(view.id, view.error or _UNKNOWN)
        case RunStatus.DEAD:
            raise RunDeadError(view.id, view.error or _UNKNOWN)
        case RunStatus.CANCELED:
            raise RunCanceledError(view.id, view.cancel_reason or "")
        case _:
            raise RunError(f"run {view.id} is {view.status} and has no result yet", run_id=view.id)
