"""Operator: the port that acts on behalf of a person. Every call says who and why, and both are kept."""

from __future__ import annotations

from typing import Protocol

from outlast.run import RunView


class Operator(Protocol):
    """Acts on runs: the command line and the web page stand on it."""

    async def retry(self, run_id: str, /, *, actor: str, reason: str) -> RunView:
        """Make a `failed`, `dead` or `canceled` run pending again, with its finished steps.

        The record of the step that failed it is retired into the history, and that step has fresh attempts. Raises
        `RunNotFoundError`, and `UsageError` for a run that is not over or has succeeded.
        """
        ...
