"""Mailbox: the part of the `Store` port for what is waited for by name: signals, and the runs that they wake.

Theory of operation. A send only appends a row, without a lock, in its own transaction. A delivery pass takes rows that nobody
has delivered, locks their topics, numbers them, and moves the runs that wait on these topics to `pending`. Parking locks its
topics too, and a run on one of whose topics a signal is there already does not stay parked. So of a send and a park at once
one always sees the other: the park sees the row, or the delivery, which had to wait for the park's commit, sees the wait.

As everywhere in the port a method takes an open transaction and neither begins nor commits, and `now` is None for the
database's own clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol

from outlast.database.transaction import Transaction
from outlast.run import RunStatus


@dataclass(frozen=True, slots=True)
class NewSignal:
    """A signal to be sent."""

    id: str
    """A UUID, made by the sender, so that a send that is tried again is the same signal."""
    topic: str
    run: str | None = None
    """On a reserved topic: the run that it is for, with which it goes."""
    payload: str | None = None
    """JSON text."""


class Delivered(NamedTuple):
    """What one delivery pass did."""

    lanes: frozenset[int]
    """Of the runs that it woke."""
    count: int
    """Signals that are delivered now: everybody who waited for them is woken."""
    has_more: bool
    """There may be more, and this pass got on: make another one. What somebody else has locked is left for a later one."""


class Question(NamedTuple):
    """A decision that a run waits for, as far as it explains why the run waits."""

    run_id: str
    decision_id: str
    question: str
    options: tuple[str, ...]


class Mailbox(Protocol):
    """Signals and their delivery."""

    def append_signal(self, tx: Transaction, signal: NewSignal, now: datetime | None = None) -> None:
        """Append a signal; one with its id that is there already stays as it is. It takes no lock that anybody waits for."""
        ...

    def deliver_signals(self, tx: Transaction, limit: int, now: datetime | None = None) -> Delivered:
        """Number at most `limit` signals that nobody has delivered, and move at most `limit` of the runs that wait for them to `pending`.

        Of one topic a send that returned before another began has the smaller number. A signal is delivered once nobody is left
        who waits on its topic; what a crash cuts off in between the next pass goes on with. It waits for whoever parks on one
        of its topics, and skips runs and signals that somebody else has locked.
        """
        ...

    def lock_run(self, tx: Transaction, run_id: str) -> RunStatus | None:
        """Return the state of a run, which stays so until the transaction ends; None when there is no such run."""
        ...

    def list_questions(self, tx: Transaction, run_ids: Sequence[str]) -> list[Question]:
        """Return the open decisions of runs, in the order in which they were asked."""
        ...
