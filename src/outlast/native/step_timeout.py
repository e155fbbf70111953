"""StepTimeoutError: what an attempt ends with that took longer than it may, as the engine says it and no step does."""

from datetime import timedelta

from outlast.errors import OutlastError

from .call import Call


class StepTimeoutError(OutlastError):
    """An attempt of a step took longer than its time-out."""


def timed_out(call: Call, timeout: timedelta) -> StepTimeoutError:
    return StepTimeoutError(f"an attempt of step {call.key} took longer than {timeout}")
