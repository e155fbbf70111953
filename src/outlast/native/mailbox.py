"""Mailbox: the part of the `Store` port for what is waited for by name: signals, and the runs that they wake.

Theory of operation. A send only appends a row, without a lock, in its own transaction. A delivery pass takes rows that nobody
has delivered, locks their topics, numbers them, and moves the runs that wait on these topics to `pending`. Parking locks its
topics too, and a run on one of whose topics a signal is there already does not stay parked. So of a send and a park at once
one always sees the other: the park sees the row, or the delivery, which had to wait for the park's commit, sees the wait.

Who has seen what: a run's cursor on a topic is the number of the last signal that it was given, and moves in the commit of the
record that has the signal. A wait's `after` is the newest number that its run had seen when it parked, so that a signal which
a run has looked at, and which stays for others, does not wake it again and again.

As everywhere in the port a method takes an open transaction and neither begins nor commits, and `now` is None for the
database's own clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
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
    ttl: timedelta | None = None
    """How long it is kept for whoever has not heard it; None on a reserved topic."""
    idempotency_key: str | None = None
    """Per topic: the same key is the same signal, as long as that is kept."""
    payload_digest: str = ""
    headers: str | None = None
    """JSON text of an object."""


class Sent(NamedTuple):
    """What is there of a send."""

    id: str
    """The signal's own id, or of the one that its key belongs to."""
    created: bool
    """True also when this very id is there already: the sender's own call, tried again."""
    payload_digest: str
    """Of the payload that the signal has."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """What one delivery pass did."""

    lanes: frozenset[int]
    """Of the runs that it woke."""
    count: int
    """Signals that are delivered now: everybody who waited for them is woken."""
    has_more: bool
    """There may be more, and this pass got on: make another one. What somebody else has locked is left for a later one."""


class MailedSignal(NamedTuple):
    """A signal that a run may be given."""

    id: str
    number: int
    payload: str
    """JSON text."""
    sent_at: datetime


class Mail(NamedTuple):
    """What is there for a run on a topic."""

    signal: MailedSignal | None
    """The next that it has not seen, by number, and that has not expired."""
    newest: int
    """The number of the newest one on the topic, 0 where there is none."""
    has_undelivered: bool
    """A signal on it was sent and has no number yet: make a delivery pass, and look again."""


class Question(NamedTuple):
    """A decision that a run waits for, as far as it explains why the run waits."""

    run_id: str
    decision_id: str
    question: str
    options: tuple[str, ...]


class Mailbox(Protocol):
    """Signals and their delivery."""

    def append_signal(self, tx: Transaction, signal: NewSignal, now: datetime | None = None) -> Sent:
        """Append a signal, and return what is there: one with its id, or with its key on its topic, stays as it is.

        A key is free again when its signal has expired. It takes no lock that anybody waits for but another sender of the same
        key, who waits for this one's commit on PostgreSQL, no longer than the database's time-outs for locks and statements.
        """
        ...

    def count_waiting(self, tx: Transaction, topic: str, limit: int) -> int:
        """Return how many runs are parked on a topic, at most about `limit`."""
        ...

    def find_mail(self, tx: Transaction, run_id: str, topic: str, after: int, now: datetime | None = None) -> Mail:
        """Return what is there for a run on a topic, in one view of the database: the next signal past its cursor and past `after`."""
        ...

    def delete_expired(self, tx: Transaction, limit: int, now: datetime | None = None) -> int:
        """Forget at most `limit` signals whose time to live is over, skipping what is locked; return how many."""
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
