"""Upkeep: the part of the `Store` port for what operators do to queues, to dead letters and to what is over, and what they ask of it.

As everywhere in the port a method takes an open transaction and neither begins nor commits, and `now` is None for the
database's own clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol

from outlast.database.transaction import Transaction
from outlast.inspector import ActionView, BoundedCount
from outlast.native.history import RecordKind
from outlast.run import RunStatus, RunView
from outlast.step_key import StepKey


class OldRun(NamedTuple):
    """One run on the walk of a prune, which meets all of them by id, whatever their state."""

    run_id: str
    is_old: bool
    """It was accepted before the cutoff. Ids are ordered by when they were made: where no run of a page was, the walk is over."""
    is_prunable: bool
    """It was over before the cutoff, and is nothing that is to be kept."""
    is_kept: bool
    """It was over before the cutoff, and is kept: a dead letter, or an effect of it may have been done and nobody knows."""
    records: int
    """What hangs on a prunable one: records, failed attempts and operations."""


@dataclass(frozen=True, slots=True)
class LaneRow:
    """What there is in a lane, counted up to a bound."""

    queue: str
    kind: str
    version: int
    paused_at: datetime | None
    is_served: bool
    """A worker that claims from it has lived within `STRANDED_AFTER`."""
    pending: BoundedCount
    running: BoundedCount
    waiting: BoundedCount
    overdue: BoundedCount
    """Of the waiting ones, those whose time has come and that nobody has moved."""


@dataclass(frozen=True, slots=True)
class NewAction:
    """What an operator does, to be kept with who and why."""

    action: str
    actor: str
    reason: str
    run_id: str | None = None
    queue: str | None = None
    affected: int | None = None
    """How many runs and keys, where it is done to many."""


class QueueChange(NamedTuple):
    """What became of a queue."""

    paused_at: datetime | None
    """Since when it is paused; None when it is not."""
    has_changed: bool
    """False when it was so already."""
    lanes: frozenset[int]
    """All that it has, for whoever is to be woken."""


class Resumed(NamedTuple):
    """What a resume found, and what it has given a result to."""

    found: RunStatus
    lane: int
    generation: int
    key: StepKey | None = None
    """The step or effect whose failure ended the run; None where nothing was changed."""
    kind: RecordKind | None = None


class Upkeep(Protocol):
    """What operators need of the tables, apart from reading runs, cancel and retry."""

    def list_lanes(self, tx: Transaction, now: datetime | None = None) -> list[LaneRow]:
        """Return every lane with what there is in it. Counts end at a bound: nothing here walks through a large table."""
        ...

    def list_actions(self, tx: Transaction, run_id: str | None, limit: int) -> list[ActionView]:
        """Return what operators did, the latest first: to one run, or at all."""
        ...

    def record_action(self, tx: Transaction, action: NewAction, now: datetime | None = None) -> int:
        """Keep who did what and why, in the transaction of the deed; return its number."""
        ...

    def add_to_action(self, tx: Transaction, action_id: int, affected: int) -> None:
        """Count more of what an action was done to, in the transaction that does it."""
        ...

    def discard_run(self, tx: Transaction, run_id: str, actor: str, reason: str, now: datetime | None = None) -> RunStatus | None:
        """Make a `failed` or `dead` run `canceled`; it keeps what it failed with. In another state nothing changes.

        Returns the state that it was found in, or None when there is no such run.
        """
        ...

    def resume_run(self, tx: Transaction, run_id: str, result: str, actor: str, reason: str, now: datetime | None = None) -> Resumed | None:
        """Make a `failed` run pending again, with `result`, JSON text, in place of the error of the step that failed it.

        The error's record is retired, as by a retry, and one with the outcome `resumed` has its key and its `seq`. In another
        state, or where no such record is there, nothing changes. None when there is no such run.
        """
        ...

    def list_dead_letters(self, tx: Transaction, limit: int, before: tuple[datetime, str] | None, now: datetime | None = None) -> list[RunView]:
        """Return a page of `failed` and `dead` runs, those that ended last first; `before` is when the last one of the page before
        ended, and its id. They have an index of their own."""
        ...

    def pause_queue(self, tx: Transaction, name: str, actor: str, reason: str, now: datetime | None = None) -> QueueChange:
        """Let nobody claim from a queue until it is unpaused. One that is paused already stays so since then.

        A claim that began before may still take runs.
        """
        ...

    def unpause_queue(self, tx: Transaction, name: str, actor: str, reason: str, now: datetime | None = None) -> QueueChange:
        """Let a queue be claimed from again."""
        ...

    def list_old_runs(
        self, tx: Transaction, older_than: timedelta, limit: int, after: str | None, *, dead_letters: bool, now: datetime | None = None
    ) -> list[OldRun]:
        """Return a page of all runs by id, the oldest first, each with whether it may be pruned; nothing is locked.

        `after` is the last id of the page before. Costs a walk over `limit` entries of the primary key.
        """
        ...

    def delete_runs(self, tx: Transaction, run_ids: Sequence[str], older_than: timedelta, *, dead_letters: bool, now: datetime | None = None) -> int:
        """Delete those of these runs that still may be pruned, with all that hangs on them but their keys; return how many.

        Operations of effects go with their run, but for those whose key the user gave.

        On PostgreSQL a run that somebody else has locked stays. Nothing that hangs on a run is ever deleted without it.
        """
        ...

    def delete_old_keys(
        self, tx: Transaction, older_than: timedelta, limit: int, after: tuple[str, str] | None, now: datetime | None = None
    ) -> tuple[int, tuple[str, str] | None]:
        """Look at a page of keys and delete those whose run is over and pruned, and was accepted before the cutoff by its id.

        Returns how many, and where the next page begins; None at the end.
        """
        ...
