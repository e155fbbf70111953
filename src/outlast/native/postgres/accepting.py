"""Accepting: lanes made, keys taken, runs written. Keys come first, so that of callers at once one wins."""

from collections.abc import Sequence
from datetime import datetime

from outlast.database.transaction import Transaction
from outlast.native.encoding import batch_to_json
from outlast.native.store import Accepted, LaneName, NewRun

from .parameters import SQL, array


class Accepting:
    """The part of the store that takes runs in."""

    def ensure_lanes(self, tx: Transaction, lanes: Sequence[LaneName]) -> dict[LaneName, int]:
        wanted = sorted(set(lanes))
        found = _find_lanes(tx, wanted)
        missing = [lane for lane in wanted if lane not in found]
        if missing:
            tx.run(SQL["insert_lanes"], {"batch": batch_to_json([lane._asdict() for lane in missing])})
            found |= _find_lanes(tx, missing)
        return found

    def record_runs(self, tx: Transaction, runs: Sequence[NewRun], now: datetime | None = None) -> list[Accepted]:
        keyed = [run for run in runs if run.idempotency_key is not None]
        won = _take_keys(tx, keyed) if keyed else set()
        fresh = [run for run in runs if run.idempotency_key is None or run.id in won]
        owners = _find_owners(tx, [run for run in keyed if run.id not in won])
        digests = _insert(tx, fresh, now) if fresh else {}
        return [_answer(run, owners, digests) for run in runs]


def _find_lanes(tx: Transaction, lanes: Sequence[LaneName]) -> dict[LaneName, int]:
    rows = tx.run(SQL["find_lanes"], {"batch": batch_to_json([lane._asdict() for lane in lanes])}).all()
    return {LaneName(queue, kind, version): number for queue, kind, version, number in rows}


def _take_keys(tx: Transaction, runs: Sequence[NewRun]) -> set[str]:
    ordered = sorted(runs, key=lambda run: (run.kind, run.idempotency_key or ""))
    batch = [{"kind": run.kind, "key": run.idempotency_key, "id": run.id, "digest": run.input_digest} for run in ordered]
    return {run_id for (run_id,) in tx.run(SQL["insert_keys"], {"batch": batch_to_json(batch)}).all()}


def _find_owners(tx: Transaction, runs: Sequence[NewRun]) -> dict[tuple[str, str | None], tuple[str, str]]:
    if not runs:
        return {}
    rows = tx.run(SQL["find_keys"], {"batch": batch_to_json([{"kind": run.kind, "key": run.idempotency_key} for run in runs])}).all()
    return {(kind, key): (run_id, digest) for kind, key, run_id, digest in rows}


def _insert(tx: Transaction, runs: Sequence[NewRun], now: datetime | None) -> dict[str, str]:
    """Insert runs, and return the digests of the inputs of those that were there already: the caller's own, tried again."""
    inserted = tx.run(SQL["insert_runs"], {"batch": batch_to_json([_columns(run) for run in runs]), "now": now})
    if inserted.count == len(runs):
        return {}
    fresh = {run_id for (run_id,) in inserted.all()}
    return dict(tx.run(SQL["list_digests"], {"runs": array(run.id for run in runs if run.id not in fresh)}).all())


def _answer(run: NewRun, owners: dict[tuple[str, str | None], tuple[str, str]], digests: dict[str, str]) -> Accepted:
    mine = (run.id, digests.get(run.id, run.input_digest))
    owner, digest = owners.get((run.kind, run.idempotency_key), mine)
    return Accepted(owner, owner == run.id, digest)


def _columns(run: NewRun) -> dict[str, object]:
    return {
        "id": run.id,
        "lane": run.lane,
        "kind": run.kind,
        "version": run.version,
        "priority": run.priority,
        "due_at": run.due_at,
        "deadline_at": run.deadline_at,
        "seed": run.seed,
        "input": run.input,
        "digest": run.input_digest,
        "key": run.idempotency_key,
        "tags": run.tags,
        "headers": run.headers,
    }
