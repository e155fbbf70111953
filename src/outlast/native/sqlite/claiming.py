"""Claiming: who may, what there is, and whose it becomes. What happened before in a claimed run is read in `contexts`."""

from collections.abc import Sequence
from datetime import datetime
from heapq import nsmallest
from typing import Any

from outlast.database.sqlite.instant import from_number, from_number_or_none
from outlast.database.transaction import Answer, Transaction
from outlast.errors import LeaseLostError
from outlast.limits import SUSPECT_AFTER_LOSSES
from outlast.native.encoding import batch_to_json
from outlast.native.store import Candidate, ClaimedRun, Look
from outlast.run import RunStatus

from .tables import Tables


class Claiming(Tables):
    """The part of the store that gives runs to workers."""

    def fence(self, tx: Transaction, worker_id: int) -> None:
        row = tx.run(self._sql["fence"], {"worker": worker_id}).first()
        if row is None or not row[0]:
            raise LeaseLostError(f"worker {worker_id} was declared dead or has stopped; what it was about to write is refused")

    def look(self, tx: Transaction, lanes: Sequence[int], now: datetime | None = None) -> Look:
        at = self._now(now)
        row = tx.run(self._sql["look"], {"lanes": batch_to_json(lanes), "now": at}).first()
        has_pending, next_due_at, has_overdue, has_undelivered = row or (0, None, 0, 0)
        has_due = next_due_at is not None and next_due_at <= at
        return Look(bool(has_pending), has_due, from_number_or_none(next_due_at), from_number(at), bool(has_overdue), bool(has_undelivered))

    def probe_lanes(self, tx: Transaction, lanes: Sequence[int], limit: int, *, with_suspects: bool, now: datetime | None = None) -> Answer[list[Candidate]]:
        asked = self._asked(limit, with_suspects, now)
        found = [candidate for lane in self._open(tx, lanes) for candidate in self._probe(tx, "probe_lanes", {**asked, "lane": lane})]
        return lambda: found

    def probe_oldest(self, tx: Transaction, lanes: Sequence[int], limit: int, *, with_suspects: bool, now: datetime | None = None) -> Answer[list[Candidate]]:
        asked = self._asked(limit, with_suspects, now)
        found = [candidate for lane in self._open(tx, lanes) for candidate in self._probe_lane_by_age(tx, lane, limit, asked)]
        return lambda: found

    def _probe_lane_by_age(self, tx: Transaction, lane: int, limit: int, asked: dict[str, Any]) -> list[Candidate]:
        priorities = [priority for (priority,) in tx.run(self._sql["list_priorities"], {"lane": lane}).all()]
        found = (candidate for priority in priorities for candidate in self._probe(tx, "probe_priority", {**asked, "lane": lane, "priority": priority}))
        return nsmallest(limit, found, key=lambda candidate: (candidate.due_at, candidate.run_id))

    def _asked(self, limit: int, with_suspects: bool, now: datetime | None) -> dict[str, Any]:
        return {"limit": limit, "with_suspects": with_suspects, "now": self._now(now), "suspect_losses": SUSPECT_AFTER_LOSSES}

    def _open(self, tx: Transaction, lanes: Sequence[int]) -> list[int]:
        return [lane for (lane,) in tx.run(self._sql["find_open_lanes"], {"lanes": batch_to_json(lanes)}).all()]

    def _probe(self, tx: Transaction, statement: str, asked: dict[str, Any]) -> list[Candidate]:
        rows = tx.run(self._sql[statement], asked).all()
        return [Candidate(run_id, lane, priority, from_number(due_at), bool(is_suspect)) for run_id, lane, priority, due_at, is_suspect in rows]

    def claim_runs(self, tx: Transaction, worker_id: int, run_ids: Sequence[str], limit: int, now: datetime | None = None) -> Answer[list[ClaimedRun]]:
        if not run_ids or limit < 1:
            return list
        asked = {"worker": worker_id, "run_ids": batch_to_json(run_ids), "limit": limit, "now": self._now(now)}
        claimed = {run_id for (run_id,) in tx.run(self._sql["claim_runs"], asked).all()}
        rows = self._claimed(tx, worker_id, [run_id for run_id in run_ids if run_id in claimed])
        return lambda: rows

    def list_held(self, tx: Transaction, worker_id: int) -> list[ClaimedRun]:
        return self._claimed(tx, worker_id, [run_id for (run_id,) in tx.run(self._sql["list_held"], {"worker": worker_id}).all()])

    def _claimed(self, tx: Transaction, worker_id: int, run_ids: Sequence[str]) -> list[ClaimedRun]:
        if not run_ids:
            return []
        rows = tx.run(self._sql["list_claimed"], {"run_ids": batch_to_json(run_ids), "worker": worker_id}).all()
        return [_claimed_run(row) for row in rows]


def _claimed_run(row: tuple[Any, ...]) -> ClaimedRun:
    run_id, token, lane, kind, version, generation, attempts, losses, seed, ending, input_text, headers, key, deadline_at, started_at, claimed_at = row
    return ClaimedRun(
        id=run_id,
        token=token,
        lane=lane,
        kind=kind,
        version=version,
        generation=generation,
        attempts=attempts,
        losses=losses,
        seed=seed,
        ending=None if ending is None else RunStatus(ending),
        input=input_text,
        headers=headers,
        idempotency_key=key,
        deadline_at=from_number_or_none(deadline_at),
        started_at=from_number(started_at),
        claimed_at=from_number(claimed_at),
    )
