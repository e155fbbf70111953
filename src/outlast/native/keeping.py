"""Keeping: what the native engine's tables are told in a transaction of the application's. Statements, which somebody else runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from outlast.database.transaction import Ask, Dialect

from .store import Hold, StepCheckpoint


class Keeping(Protocol):
    """The statements of one dialect."""

    @property
    def dialect(self) -> Dialect: ...

    def has_schema(self) -> Ask:
        """Tell, in one column, whether the tables are there."""
        ...

    def find_identity(self) -> Ask:
        """Return the random id that the schema was made with: the same one means the same database."""
        ...

    def hold(self, hold: Hold, generation: int) -> Ask:
        """Lock the run's row if the claim is current and the run is running; returns a row only then."""
        ...

    def keep(self, checkpoint: StepCheckpoint) -> Sequence[Ask]:
        """Write the record of a run that was locked; one of its key that is there already is an error."""
        ...
