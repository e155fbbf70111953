"""The pace of claims and of wakes, straight at the store: what the size of a database does to it, and nothing else."""

import time
from collections.abc import Sequence

from outlast.limits import LANE_PROBE_FACTOR, TIMER_BATCH
from outlast.native.backend import Backend
from outlast.native.store import Hold, RunCheckpoint
from outlast.run import RunStatus

from .filling import ALIVE
from .waves import SLOTS


def claim_and_finish(backend: Backend, lanes: Sequence[int], count: int) -> float:
    """Claim so many runs, a hundred at a time, each probed for and finished as a worker does; return how many a second."""
    began, claimed = time.perf_counter(), 0
    while claimed < count:
        with backend.database.reading() as tx:
            seen = backend.store.probe_lanes(tx, lanes, SLOTS * LANE_PROBE_FACTOR, with_suspects=True)()
        with backend.database.transaction() as tx:
            backend.store.fence(tx, ALIVE)
            claims = backend.store.claim_runs(tx, ALIVE, [candidate.run_id for candidate in seen], SLOTS)()
        if not claims:
            raise RuntimeError(f"after {claimed} of {count} there was nothing to claim")
        finish(backend, [claim.hold for claim in claims])
        claimed += len(claims)
    return claimed / (time.perf_counter() - began)


def finish(backend: Backend, holds: Sequence[Hold]) -> None:
    """End runs as their worker would."""
    with backend.database.transaction() as tx:
        backend.store.fence(tx, ALIVE)
        backend.store.commit_checkpoints(tx, [RunCheckpoint(hold, 0, RunStatus.SUCCEEDED) for hold in holds])


def wake(backend: Backend, count: int) -> float:
    """Wake so many runs page by page; return how many a second. They must be there."""
    began = time.perf_counter()
    for _ in range(count // TIMER_BATCH):
        with backend.database.transaction() as tx:
            if not backend.store.wake_due(tx, TIMER_BATCH):
                raise RuntimeError(f"fewer than {count} runs were due")
    return count / (time.perf_counter() - began)
