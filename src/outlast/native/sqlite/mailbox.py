"""Mailbox: signals, their delivery, and what parking by name needs. The immediate transaction stands for every lock."""

from collections.abc import Sequence
from datetime import datetime

from outlast.database.transaction import Transaction
from outlast.native.encoding import batch_to_json, texts_from_json
from outlast.native.mailbox import Delivered, NewSignal, Question
from outlast.run import RunStatus

from .tables import Tables


class Mailbox(Tables):
    """The part of the store that knows signals; see `outlast.native.mailbox`."""

    def append_signal(self, tx: Transaction, signal: NewSignal, now: datetime | None = None) -> None:
        row = {"id": signal.id, "topic": signal.topic, "run": signal.run, "payload": signal.payload}
        tx.run(self._sql["append_signal"], {**row, "now": self._now(now)})

    def deliver_signals(self, tx: Transaction, limit: int, now: datetime | None = None) -> Delivered:
        seen = dict(tx.run(self._sql["list_undelivered"], {"limit": limit}).all())
        if not seen:
            return Delivered(frozenset(), 0, False)
        asked = {"topics": batch_to_json(sorted(seen)), "limit": limit}
        tx.run(self._sql["number_signals"], {"limit": limit})
        lanes = [lane for (lane,) in tx.run(self._sql["wake_named"], {**asked, "now": self._now(now)}).all()]
        count = tx.run(self._sql["mark_delivered"], asked).count
        return Delivered(frozenset(lanes), count, bool(lanes or count) and (len(lanes) >= limit or sum(seen.values()) >= limit))

    def lock_run(self, tx: Transaction, run_id: str) -> RunStatus | None:
        row = tx.run(self._sql["lock_run"], {"run": run_id}).first()
        return None if row is None else RunStatus(row[0])

    def list_questions(self, tx: Transaction, run_ids: Sequence[str]) -> list[Question]:
        rows = tx.run(self._sql["list_questions"], {"run_ids": batch_to_json(list(run_ids))}).all() if run_ids else []
        return [Question(run_id, decision_id, question, texts_from_json(options)) for run_id, decision_id, question, options in rows]
