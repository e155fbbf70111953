"""Accepting: lanes made, keys taken, runs written. Keys come first, so that of callers at once one wins."""

from collections.abc import Sequence
from datetime import datetime

from outlast.database.transaction import Answer, Transaction
from outlast.native.encoding import batch_to_json, texts_rows_from_json
from outlast.native.store import Accepted, LaneName, NewRun

from .parameters import SQL


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
        ordered = sorted(runs, key=_place)  # so that two batches never wait for each other in a circle
        met = tx.run(SQL["insert_runs"], {"batch": batch_to_json(ordered), "count": len(runs), "now": now})

        def answer() -> list[Accepted]:
            ((found,),) = met.all()
            if found is None:
                return [Accepted(run.id, created=True, stored_digest=run.input_digest) for run in runs]
            owners = {run_id: (owner, digest) for run_id, owner, digest in texts_rows_from_json(found)}
            return [_answer(run, *owners[run.id]) for run in runs]

        return answer


def _find_lanes(tx: Transaction, lanes: Sequence[LaneName]) -> dict[LaneName, int]:
    rows = tx.run(SQL["find_lanes"], {"batch": batch_to_json([lane._asdict() for lane in lanes])}).all()
    return {LaneName(queue, kind, version): number for queue, kind, version, number in rows}


def _place(run: NewRun) -> tuple[str, str]:
    return (run.kind, run.idempotency_key or "")


def _answer(run: NewRun, owner: str, digest: str) -> Accepted:
    return Accepted(owner, owner == run.id, digest)
