"""Mailbox: signals, their delivery, and what parking by name needs."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from outlast.database.transaction import Transaction
from outlast.ids import is_run_id
from outlast.native.encoding import batch_to_json
from outlast.native.mailbox import Delivered, NewSignal, Question
from outlast.native.store import RunCheckpoint
from outlast.run import RunStatus

from .parameters import SQL, array

_NOTHING = Delivered(frozenset(), 0, False)


class Mailbox:
    """The part of the store that knows signals; see `outlast.native.mailbox`."""

    def append_signal(self, tx: Transaction, signal: NewSignal, now: datetime | None = None) -> None:
        tx.run(SQL["append_signal"], {"id": signal.id, "topic": signal.topic, "run": signal.run, "payload": signal.payload, "now": now})

    def deliver_signals(self, tx: Transaction, limit: int, now: datetime | None = None) -> Delivered:
        seen = dict(tx.run(SQL["list_undelivered"], {"limit": limit}).all())
        if not seen:
            return _NOTHING
        lock_topics(tx, seen)
        asked = {"topics": batch_to_json(sorted(seen)), "limit": limit}
        tx.run(SQL["number_signals"], asked)
        woken = tx.run(SQL["wake_named"], {**asked, "now": now})
        delivered = tx.run(SQL["mark_delivered"], asked)
        lanes = [lane for (lane,) in woken.all()]
        count = delivered.count
        return Delivered(frozenset(lanes), count, bool(lanes or count) and (len(lanes) >= limit or sum(seen.values()) >= limit))

    def lock_run(self, tx: Transaction, run_id: str) -> RunStatus | None:
        row = tx.run(SQL["lock_run"], {"run": run_id}).first() if is_run_id(run_id) else None
        return None if row is None else RunStatus(row[0])

    def list_questions(self, tx: Transaction, run_ids: Sequence[str]) -> list[Question]:
        return list_questions(tx, run_ids)


def list_questions(tx: Transaction, run_ids: Sequence[str]) -> list[Question]:
    rows = tx.run(SQL["list_questions"], {"runs": array(filter(is_run_id, run_ids))}).all() if run_ids else []
    return [Question(run_id, decision_id, question, tuple(options)) for run_id, decision_id, question, options in rows]


def lock_topics(tx: Transaction, topics: Iterable[str]) -> None:
    """Lock topics until the transaction ends; a statement after this one sees what whoever had them has committed."""
    tx.run(SQL["lock_topics"], {"topics": batch_to_json(sorted(set(topics)))})


def parked_by_name(changes: Iterable[RunCheckpoint]) -> list[dict[str, Any]]:
    """Return those that park on topics, as the columns of `wake_parked`."""
    return [
        {"id": change.hold.run_id, "token": change.hold.token, "topics": topics}
        for change in changes
        if change.status is RunStatus.WAITING and (topics := [wait.topic for wait in change.waits if wait.topic is not None])
    ]


def wake_parked(tx: Transaction, parked: Sequence[dict[str, Any]], now: datetime | None) -> None:
    """Let those that were just parked go on at once whose signal is there already. Their topics are locked."""
    tx.run(SQL["wake_parked"], {"batch": batch_to_json(parked), "now": now})
