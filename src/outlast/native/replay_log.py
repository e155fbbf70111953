"""ReplayLog: a body's logger. It names the run, and is silent while the body replays, so that each line comes once."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from .store import ClaimedRun


class ReplayLog(logging.LoggerAdapter[logging.Logger]):
    """The logger `outlast.task.<kind>`, with the run's id in front of each line and in the record's `run_id`."""

    def __init__(self, claim: ClaimedRun, is_replaying: Callable[[], bool]) -> None:
        super().__init__(logging.getLogger(f"outlast.task.{claim.kind}"), {"run_id": claim.id})
        self._claim = claim
        self._is_replaying = is_replaying

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - logging's own name
        return not self._is_replaying() and super().isEnabledFor(level)

    def process(self, msg: Any, kwargs: Any) -> Any:
        extra = {**(self.extra or {}), **kwargs.get("extra", {})}
        return f"[{self._claim.kind} {self._claim.id}] {msg}", {**kwargs, "extra": extra}
