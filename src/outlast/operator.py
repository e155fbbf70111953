"""Operator: the port that acts on behalf of a person. Every call says who and why, and both are kept."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from outlast.decision import NO_RESULT, DecisionView
from outlast.duration import Duration
from outlast.run import RunView


@dataclass(frozen=True, slots=True)
class QueueView:
    """A queue after somebody paused or unpaused it."""

    name: str
    paused_at: datetime | None
    """Since when nobody claims from it; None when it is not paused."""
    has_changed: bool
    """False when it was so already."""
    lanes: int
    """Kinds and versions that were ever enqueued to it, or that a worker took from it: 0 may be a slip of the pen."""


@dataclass(frozen=True, slots=True)
class PruneReport:
    """What a prune removed."""

    runs: int
    kept: int
    """Runs that are old enough and stay: failed and dead ones until somebody retries or discards them, and those with an effect
    of which nobody knows whether it was done."""
    keys: int
    """Idempotency keys, and operations of effects whose key the user gave."""


class Operator(Protocol):
    """Acts on runs: the command line and the web page stand on it."""

    async def retry(self, run_id: str, /, *, actor: str, reason: str) -> RunView:
        """Make a `failed`, `dead` or `canceled` run pending again, with its finished steps.

        The record of the step that failed it is retired into the history, and that step has fresh attempts. Raises
        `RunNotFoundError`, and `UsageError` for a run that is not over or has succeeded.
        """
        ...

    async def discard(self, run_id: str, /, *, actor: str, reason: str) -> RunView:
        """End a `failed` or `dead` run as `canceled`: somebody has looked at it, and nothing more is to come.

        It leaves the dead letters, keeps what it failed with, and may still be retried. Raises `RunNotFoundError`, and
        `UsageError` for a run in another state.
        """
        ...

    async def decide(self, decision_id: str, option: str, /, *, result: Any = NO_RESULT, note: str = "", actor: str) -> DecisionView:
        """Answer an open decision, and let the run that waits for it go on.

        `result` goes with the options that need one, and with no other: any plain JSON value, None too. Where the effect that
        asks was imported in this process it is checked against the effect's type, else the worker checks it, and asks anew when
        it does not fit. Of two who answer at once one is heard. Raises `UsageError` for an unknown decision or option, a
        result that is missing or out of place or does not fit, and for a decision that was answered or closed, with by whom and when.
        """
        ...

    async def resume(self, run_id: str, result: Any, /, *, actor: str, reason: str) -> RunView:
        """Let a `failed` run go on with `result`, any plain JSON value, in place of what the step or effect that failed it would have returned.

        What it failed with stays in the history. An effect counts as done, and is not performed again. The worker checks the result
        against the step's type, and the run fails again where it does not fit. Raises `RunNotFoundError`, and `UsageError` for a
        run in another state, or one that no step has failed.
        """
        ...

    async def pause_queue(self, name: str, /, *, actor: str, reason: str) -> QueueView:
        """Let no worker claim from a queue, from its next claim on. What runs goes on, and `enqueue` is accepted as before."""
        ...

    async def unpause_queue(self, name: str, /, *, actor: str, reason: str) -> QueueView:
        """Let workers claim from a queue again, and wake them."""
        ...

    async def prune(
        self, older_than: Duration, /, *, keys_older_than: Duration | None = None, dead_letters: bool = False, actor: str, reason: str
    ) -> PruneReport:
        """Delete runs that were over for so long, with their whole history, and only whole runs.

        Failed and dead ones stay until somebody has retried or discarded them, unless `dead_letters`. An idempotency key
        outlives its run: it answers as before, and `result()` of it raises `ResultPrunedError`. `keys_older_than` deletes
        those whose run is pruned and was accepted longer ago; afterwards the same key makes a new run. With them go
        the operations of effects whose key the user gave, where they ended longer ago: afterwards the same key is done anew. A
        run with an effect of which nobody knows whether it was done is never deleted.

        It goes in many short transactions. A crash in between leaves nothing half deleted, and the next prune goes on.
        """
        ...
