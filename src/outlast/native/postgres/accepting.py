"""Accepting: lanes made, keys taken, runs written. Keys come first, so that of callers at once one wins."""

from collections.abc import Sequence
from datetime import datetime

from outlast.database.transaction import Answer, Transaction
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

    def record_runs(self, tx: Transaction, runs: Sequence[NewRun], now: datetime | None = None) -> Answer[list[Accepted]]:
        ordered = sorted(runs, key=lambda run: (run.kind, run.idempotency_key or ""))  # so that two batches never wait for each other in a circle
        batch = batch_to_json([_columns(run) for run in ordered])
        tx.run(SQL["insert_runs"], {"batch": batch, "now": now})
        known = tx.run(SQL["list_digests"], {"runs": array(run.id for run in runs)})
        keyed = [run for run in runs if run.idempotency_key is not None]
        keys = batch_to_json([{"kind": run.kind, "key": run.idempotency_key} for run in keyed])
        owned = tx.run(SQL["find_keys"], {"batch": keys}) if keyed else None

        def answer() -> list[Accepted]:
            digests = dict(known.all())
            owners = {(kind, key): (run_id, digest) for kind, key, run_id, digest in owned.all()} if owned is not None else {}
            return [_answer(run, owners, digests) for run in runs]

        return answer


def _find_lanes(tx: Transaction, lanes: Sequence[LaneName]) -> dict[LaneName, int]:
    rows = tx.run(SQL["find_lanes"], {"batch": batch_to_json([lane._asdict() for lane in lanes])}).all()
    return {LaneName(queue, kind, version): number for queue, kind, version, number in rows}


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
