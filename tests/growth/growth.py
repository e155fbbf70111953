"""A grown database, what is asked of it, and how it is judged: the same for the small form in the tests and for the full one."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg

from outlast.native.backend import Backend

from .filling import HELD
from .pace import claim_and_finish, wake
from .plans import explaining
from .waves import SLOTS, ask, faults

CLAIMED_UNDER_SNAPSHOT = 2_000
WOKEN_UNDER_SNAPSHOT = 1_000


@dataclass
class Grown:
    """A filled database, the lanes of a worker that serves the first queue, and those of one that serves all."""

    url: str
    backend: Backend
    lanes: Sequence[int]
    every_lane: Sequence[int]

    def claim(self, count: int, *, queue: int = 0) -> float:
        """Claim and finish so many runs of one queue; return how many a second."""
        first = queue * len(self.lanes)
        return claim_and_finish(self.backend, self.every_lane[first : first + len(self.lanes)], count)

    def wake(self, count: int) -> float:
        """Wake so many runs; return how many a second."""
        return wake(self.backend, count)


def examine(grown: Grown, *, leftovers: int = 0, every_lane: bool = False) -> list[str]:
    """Return what is wrong with the plans of one wave, of which nothing stays."""
    lanes = grown.every_lane if every_lane else grown.lanes
    with explaining(grown.backend.database) as tx:
        plans = ask(grown.backend.store, tx, lanes)
    return faults(plans, len(lanes), held=HELD + SLOTS, leftovers=leftovers)


@contextmanager
def snapshot(url: str) -> Iterator[None]:
    """Hold a snapshot in another session, so that nothing that is replaced from now on can be cleaned up."""
    with psycopg.connect(url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("SELECT count(*) FROM outlast.meta")
        yield
