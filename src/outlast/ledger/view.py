"""View: an operation as people see it."""

from __future__ import annotations

from collections.abc import Sequence

from outlast.inspector import OperationAttemptView, OperationView

from .operation import Operation, OperationAttempt


def operation_view(operation: Operation, attempts: Sequence[OperationAttempt]) -> OperationView:
    """Return an operation with every attempt of it."""
    return OperationView(
        effect=operation.name.effect,
        key=operation.name.key,
        status=operation.status,
        arguments=operation.arguments,
        result=operation.result,
        error=operation.error,
        decision=operation.decision,
        planned_at=operation.planned_at,
        changed_at=operation.changed_at,
        attempts=tuple(map(_attempt_view, attempts)),
    )


def _attempt_view(attempt: OperationAttempt) -> OperationAttemptView:
    return OperationAttemptView(attempt.number, attempt.token, attempt.started_at, attempt.ended_at, attempt.outcome, attempt.error, attempt.late)
