"""Mailbox: signals, their delivery, and what parking by name needs. The immediate transaction stands for every lock."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from outlast.database.sqlite.instant import from_number, span_to_number
from outlast.database.transaction import Transaction
from outlast.native.encoding import batch_to_json, texts_from_json
from outlast.native.mailbox import Delivered, Mail, MailedSignal, NewSignal, Question, Sent
from outlast.run import RunStatus

from .tables import Tables


def signal_row(signal: NewSignal) -> dict[str, Any]:
    """Return what is kept of a signal."""
    return {
        "id": signal.id,
        "topic": signal.topic,
        "run": signal.run,
        "payload": signal.payload,
        "payload_digest": signal.payload_digest,
        "headers": signal.headers,
        "idempotency_key": signal.idempotency_key,
        "ttl": None if signal.ttl is None else span_to_number(signal.ttl),
    }


class Mailbox(Tables):
    """The part of the store that knows signals; see `outlast.native.mailbox`."""

    def append_signal(self, tx: Transaction, signal: NewSignal, now: datetime | None = None) -> Sent:
        at = self._now(now)
        while True:  # once more where what it met has expired
            if tx.run(self._sql["append_signal"], {**signal_row(signal), "now": at}).count:
                return Sent(signal.id, True, signal.payload_digest)
            asked = {"id": signal.id, "topic": signal.topic, "key": signal.idempotency_key, "now": at}
            signal_id, digest, is_expired = tx.run(self._sql["find_sent"], asked).all()[0]
            if signal_id == signal.id or not is_expired:
                return Sent(signal_id, signal_id == signal.id, digest)
            tx.run(self._sql["delete_signal"], {"id": signal_id, "now": at})

    def count_waiting(self, tx: Transaction, topic: str, limit: int) -> int:
        return int(tx.run(self._sql["count_waiting"], {"topic": topic, "limit": limit}).all()[0][0])

    def find_mail(self, tx: Transaction, run_id: str, topic: str, after: int, now: datetime | None = None) -> Mail:
        row = tx.run(self._sql["find_mail"], {"run": run_id, "topic": topic, "after": after, "now": self._now(now)}).all()[0]
        signal_id, number, payload, sent_at, newest, has_undelivered = row
        found = None if signal_id is None else MailedSignal(signal_id, number, payload, from_number(sent_at))
        return Mail(found, newest, bool(has_undelivered))

    def delete_expired(self, tx: Transaction, limit: int, now: datetime | None = None) -> int:
        return tx.run(self._sql["delete_expired"], {"limit": limit, "now": self._now(now)}).count

    def deliver_signals(self, tx: Transaction, limit: int, now: datetime | None = None) -> Delivered:
        seen = dict(tx.run(self._sql["list_undelivered"], {"limit": limit}).all())
        if not seen:
            return Delivered(frozenset(), 0, False)
        asked = {"limit": limit, "now": self._now(now)}
        tx.run(self._sql["number_signals"], {"limit": limit})
        woken = tx.run(self._sql["wake_named"], asked).all()
        if woken:
            tx.run(self._sql["note_woken"], {"run_ids": batch_to_json([run_id for run_id, _ in woken])})
        count = tx.run(self._sql["mark_delivered"], asked).count
        return Delivered(frozenset(lane for _, lane in woken), count, bool(woken or count) and (len(woken) >= limit or sum(seen.values()) >= limit))

    def lock_run(self, tx: Transaction, run_id: str) -> RunStatus | None:
        row = tx.run(self._sql["lock_run"], {"run": run_id}).first()
        return None if row is None else RunStatus(row[0])

    def list_questions(self, tx: Transaction, run_ids: Sequence[str]) -> list[Question]:
        rows = tx.run(self._sql["list_questions"], {"run_ids": batch_to_json(list(run_ids))}).all() if run_ids else []
        return [Question(run_id, decision_id, question, texts_from_json(options)) for run_id, decision_id, question, options in rows]
