"""Claiming: from the queue into a worker's hands, and the history that goes with it."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from outlast.database.transaction import Answer, Transaction
from outlast.limits import SUSPECT_AFTER_LOSSES
from outlast.native.store import Candidate, ClaimedRun, Look
from outlast.run import RunStatus

from .parameters import SQL, array

_ANY_LOSSES = 1 << 62


class Claiming:
    """The part of the store that hands runs out."""

    def fence(self, tx: Transaction, worker_id: int) -> None:
        tx.run(SQL["fence"], {"worker": worker_id})

    def look(self, tx: Transaction, lanes: Sequence[int], now: datetime | None = None) -> Look:
        return Look(*tx.run(SQL["look"], {"lanes": array(lanes), "now": now}).all()[0])

    def probe_lanes(self, tx: Transaction, lanes: Sequence[int], limit: int, *, with_suspects: bool, now: datetime | None = None) -> Answer[list[Candidate]]:
        return _candidates(tx, "probe_lanes", lanes, limit, with_suspects, now)

    def probe_oldest(self, tx: Transaction, lanes: Sequence[int], limit: int, *, with_suspects: bool, now: datetime | None = None) -> Answer[list[Candidate]]:
        return _candidates(tx, "probe_oldest", lanes, limit, with_suspects, now)

    def claim_runs(self, tx: Transaction, worker_id: int, run_ids: Sequence[str], limit: int, now: datetime | None = None) -> Answer[list[ClaimedRun]]:
        if not run_ids or limit <= 0:
            return list
        rows = tx.run(SQL["claim_runs"], {"worker": worker_id, "ids": array(run_ids), "limit": limit, "now": now})
        return lambda: [_claimed(row) for row in rows.all()]

    def list_held(self, tx: Transaction, worker_id: int) -> list[ClaimedRun]:
        return [_claimed(row) for row in tx.run(SQL["list_held"], {"worker": worker_id}).all()]


def _candidates(tx: Transaction, name: str, lanes: Sequence[int], limit: int, with_suspects: bool, now: datetime | None) -> Answer[list[Candidate]]:
    if not lanes or limit <= 0:
        return list
    below = _ANY_LOSSES if with_suspects else SUSPECT_AFTER_LOSSES
    parameters = {"lanes": array(lanes), "limit": limit, "suspect": SUSPECT_AFTER_LOSSES, "losses_below": below, "now": now}
    rows = tx.run(SQL[name], parameters)
    return lambda: [Candidate(*row) for row in rows.all()]


def _claimed(row: tuple[Any, ...]) -> ClaimedRun:
    run_id, token, lane, kind, version, generation, attempts, losses, seed, ending, *rest = row
    return ClaimedRun(run_id, token, lane, kind, version, generation, attempts, losses, seed, RunStatus(ending) if ending else None, *rest)
