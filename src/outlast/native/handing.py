"""Handing: what a record means to the body that awaits it, a value or the error that it is raised as. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from outlast.driver import Awaited
from outlast.errors import EffectFailedError, PayloadError, StepFailedError, StepStuckError

from .call import Call
from .history import Outcome, Record, RecordKind

STUCK = f"{StepStuckError.__module__}.{StepStuckError.__qualname__}"


def error_of(record: Record) -> StepFailedError | None:
    """Return what a final error is raised as, at every replay the same; None for a record of another kind."""
    if record.outcome is not Outcome.ERROR or record.error is None:
        return None
    kind = StepStuckError if record.error.type == STUCK else EffectFailedError if record.kind is RecordKind.EFFECT else StepFailedError
    return kind(str(record.key), record.attempts, record.error)


def value_of(call: Call, record: Record) -> Any:
    """Return the decoded result; PayloadError when it does not fit its type any more."""
    if call.awaited is not None:
        return _decoded(call.awaited, record)
    if call.step is None:
        return None
    return call.step.step.signature.result.decode(record.result or "null", call.step.step.result_field)


def _decoded(awaited: Awaited, record: Record) -> Any:
    try:
        return awaited.decode(record.result or "null")
    except msgspec.MsgspecError as error:
        raise PayloadError(f"the record of {record.key} is not what a {record.kind} leaves: {error}", field=str(record.key)) from error
