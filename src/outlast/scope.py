"""Where the running code stands: in a task body, in a step, or in neither.

Two context variables and nothing else. A body's asyncio tasks carry the first one, a step's attempt the second.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outlast.branch import Branches
    from outlast.this_step import StepAttempt

BODY: ContextVar[Branches | None] = ContextVar("outlast_body", default=None)
STEP: ContextVar[Callable[[], StepAttempt[Any]] | None] = ContextVar("outlast_step", default=None)
"""Gives what the step sees of its attempt, which is not made before it is asked for."""


def inside_body() -> bool:
    """Tell whether this code runs in a task body, between its steps."""
    return BODY.get() is not None
