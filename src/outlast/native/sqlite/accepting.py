"""Accepting runs: lanes, idempotency keys, and the rows of new runs."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from outlast.database.sqlite.instant import to_number_or_none
from outlast.database.transaction import Answer, Transaction
from outlast.native.encoding import batch_to_json
from outlast.native.store import Accepted, LaneName, NewRun

from .tables import Tables


class Accepting(Tables):
    """The part of the store that lets runs in."""

    def ensure_lanes(self, tx: Transaction, lanes: Sequence[LaneName]) -> dict[LaneName, int]:
        batch = {"lanes": batch_to_json([lane._asdict() for lane in lanes])}
        found = self._list_lanes(tx, batch)
        if len(found) < len(set(lanes)):
            tx.run(self._sql["insert_lanes"], batch)
            found = self._list_lanes(tx, batch)
        return found

    def _list_lanes(self, tx: Transaction, batch: dict[str, str]) -> dict[LaneName, int]:
        return {LaneName(queue, kind, version): lane for queue, kind, version, lane in tx.run(self._sql["find_lanes"], batch).all()}

    def record_runs(self, tx: Transaction, runs: Sequence[NewRun], now: datetime | None = None) -> Answer[list[Accepted]]:
        keyed = [run for run in runs if run.idempotency_key is not None]
        won = self._take_keys(tx, keyed)
        owners = self._find_owners(tx, [run for run in keyed if run.id not in won])
        met = {run.id: owners[run.kind, run.idempotency_key] for run in keyed if run.id not in won and run.idempotency_key is not None}
        taken = {run_id: owner for run_id, owner in met.items() if owner[0] != run_id}
        known = self._insert(tx, [run for run in runs if run.id not in met], self._now(now))
        answers = [
            Accepted(*taken[run.id][:1], created=False, stored_digest=taken[run.id][1])
            if run.id in taken
            else Accepted(run.id, created=True, stored_digest=met[run.id][1] if run.id in met else known.get(run.id, run.input_digest))
            for run in runs
        ]
        return lambda: answers

    def _take_keys(self, tx: Transaction, runs: Sequence[NewRun]) -> set[str]:
        """Insert keys first, and return the runs whose keys were free."""
        if not runs:
            return set()
        return {run_id for (run_id,) in tx.run(self._sql["insert_keys"], {"runs": batch_to_json([_key_row(run) for run in runs])}).all()}

    def _find_owners(self, tx: Transaction, runs: Sequence[NewRun]) -> dict[tuple[str, str], tuple[str, str]]:
        """Return whose each key is, and of which input. A run that owns its key already was accepted before, and may be pruned by now."""
        if not runs:
            return {}
        rows = tx.run(self._sql["find_keys"], {"runs": batch_to_json([_key_row(run) for run in runs])}).all()
        return {(kind, key): (run, digest) for kind, key, run, digest in rows}

    def _insert(self, tx: Transaction, runs: Sequence[NewRun], now: int) -> dict[str, str]:
        """Insert runs, and return the digests of those that were there before."""
        if not runs:
            return {}
        batch = batch_to_json([_run_row(run) for run in runs])
        if tx.run(self._sql["insert_runs"], {"runs": batch, "now": now}).count == len(runs):
            tx.run(self._sql["insert_bodies"], {"runs": batch})
            return {}
        tx.run(self._sql["insert_bodies"], {"runs": batch})
        return dict(tx.run(self._sql["list_digests"], {"run_ids": batch_to_json([run.id for run in runs])}).all())


def _key_row(run: NewRun) -> dict[str, Any]:
    return {"id": run.id, "kind": run.kind, "idempotency_key": run.idempotency_key, "input_digest": run.input_digest}


def _run_row(run: NewRun) -> dict[str, Any]:
    return {
        "id": run.id,
        "kind": run.kind,
        "version": run.version,
        "lane": run.lane,
        "priority": run.priority,
        "due_at": to_number_or_none(run.due_at),
        "deadline_at": to_number_or_none(run.deadline_at),
        "seed": run.seed,
        "input": run.input,
        "input_digest": run.input_digest,
        "idempotency_key": run.idempotency_key,
        "tags": run.tags,
        "headers": run.headers,
    }
