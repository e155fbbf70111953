"""Mailbox: signals, their delivery, and what parking by name needs."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from outlast.database.transaction import Transaction
from outlast.ids import is_run_id
from outlast.native.encoding import batch_to_json
from outlast.native.mailbox import Delivered, Mail, MailedSignal, NewSignal, Question, Sent
from outlast.native.store import RunCheckpoint
from outlast.run import RunStatus

from .parameters import SQL, array

_NOTHING = Delivered(frozenset(), 0, False)


class Mailbox:
    """The part of the store that knows signals; see `outlast.native.mailbox`."""

    def append_signal(self, tx: Transaction, signal: NewSignal, now: datetime | None = None) -> Sent:
        row = signal_columns(signal) | {"now": now}
        while True:  # once more where what it met has expired, or was forgotten in this very moment
            if tx.run(SQL["append_signal"], row).count:
                return Sent(signal.id, True, signal.payload_digest)
            found = tx.run(SQL["find_sent"], {"id": signal.id, "topic": signal.topic, "key": signal.idempotency_key, "now": now}).first()
            if found is None:
                continue
            signal_id, digest, is_expired = found
            if signal_id == signal.id or not is_expired:
                return Sent(signal_id, signal_id == signal.id, digest)
            tx.run(SQL["delete_signal"], {"id": signal_id, "now": now})

    def count_waiting(self, tx: Transaction, topic: str, limit: int) -> int:
        return int(tx.run(SQL["count_waiting"], {"topic": topic, "limit": limit}).all()[0][0])

    def find_mail(self, tx: Transaction, run_id: str, topic: str, after: int, now: datetime | None = None) -> Mail:
        row = tx.run(SQL["find_mail"], {"run": run_id, "topic": topic, "after": after, "now": now}).all()[0]
        signal_id, number, payload, sent_at, newest, has_undelivered = row
        return Mail(None if signal_id is None else MailedSignal(signal_id, number, payload, sent_at), newest, has_undelivered)

    def delete_expired(self, tx: Transaction, limit: int, now: datetime | None = None) -> int:
        return tx.run(SQL["delete_expired"], {"limit": limit, "now": now}).count

    def deliver_signals(self, tx: Transaction, limit: int, now: datetime | None = None) -> Delivered:
        seen = dict(tx.run(SQL["list_undelivered"], {"limit": limit}).all())
        if not seen:
            return _NOTHING
        lock_topics(tx, seen)
        asked = {"topics": batch_to_json(sorted(seen)), "limit": limit}
        tx.run(SQL["number_signals"], asked)
        woken = tx.run(SQL["wake_named"], {**asked, "now": now})
        delivered = tx.run(SQL["mark_delivered"], {**asked, "now": now})
        rows = woken.all()
        waits, count = max((waits for _, waits in rows), default=0), delivered.count
        return Delivered(frozenset(lane for lane, _ in rows), count, bool(rows or count) and (waits >= limit or sum(seen.values()) >= limit))

    def lock_run(self, tx: Transaction, run_id: str) -> RunStatus | None:
        row = tx.run(SQL["lock_run"], {"run": run_id}).first() if is_run_id(run_id) else None
        return None if row is None else RunStatus(row[0])

    def list_questions(self, tx: Transaction, run_ids: Sequence[str]) -> list[Question]:
        return list_questions(tx, run_ids)


def list_questions(tx: Transaction, run_ids: Sequence[str]) -> list[Question]:
    rows = tx.run(SQL["list_questions"], {"runs": array(run_id for run_id in run_ids if is_run_id(run_id))}).all() if run_ids else []
    return [Question(run_id, decision_id, question, tuple(options)) for run_id, decision_id, question, options in rows]


def lock_topics(tx: Transaction, topics: Iterable[str]) -> None:
    """Lock topics until the transaction ends; a statement after this one sees what whoever had them has committed."""
    tx.run(SQL["lock_topics"], {"topics": batch_to_json(sorted(set(topics)))})


def parked_by_name(changes: Iterable[RunCheckpoint]) -> list[dict[str, Any]]:
    """Return those that park on topics, as the columns of `wake_parked`."""
    return [
        {"id": change.hold.run_id, "token": change.hold.token, "waits": named}
        for change in changes
        if change.status is RunStatus.WAITING and (named := [{"topic": wait.topic, "after": wait.after} for wait in change.waits if wait.topic is not None])
    ]


def signal_columns(signal: NewSignal) -> dict[str, Any]:
    """Return what is kept of a signal."""
    return {
        "id": signal.id,
        "topic": signal.topic,
        "run": signal.run,
        "payload": signal.payload,
        "payload_digest": signal.payload_digest,
        "headers": signal.headers,
        "key": signal.idempotency_key,
        "ttl": None if signal.ttl is None else signal.ttl.total_seconds(),
    }


def wake_parked(tx: Transaction, parked: Sequence[dict[str, Any]], now: datetime | None) -> None:
    """Let those that were just parked go on at once whose signal is there already. Their topics are locked."""
    tx.run(SQL["wake_parked"], {"batch": batch_to_json(parked), "now": now})
