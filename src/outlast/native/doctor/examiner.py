"""Examiner: the port through which the doctor looks at one database. It reads and never writes."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from outlast.finding import Check, Finding

TaskVersions = Collection[tuple[str, int]]
"""Kind and version of each task of an application."""


class Needs(IntEnum):
    """What has to be there for an examination to make sense."""

    NOTHING = 0
    DATABASE = 1
    SCHEMA = 2


@dataclass(frozen=True, slots=True)
class Examination:
    """One check on one database."""

    check: Check
    needs: Needs
    examine: Callable[[], list[Finding]]
    """Blocks while the database answers. Raises `OutlastError` when it does not, or refuses."""


class Examiner(Protocol):
    """One database as the doctor sees it, through connections of its own that nobody else uses."""

    @property
    def url(self) -> str:
        """The address without any secret in it."""
        ...

    def reach(self) -> bool:
        """Reach the database, and tell whether it has the tables. Raises `OutlastError`, and creates nothing."""
        ...

    def examinations(self, tasks: TaskVersions) -> Sequence[Examination]:
        """Return the checks in their order. `tasks` are those of the application that is asked about; none is allowed."""
        ...

    def interrupt(self) -> None:
        """End the call that is under way, from another thread."""
        ...

    def close(self) -> None: ...
