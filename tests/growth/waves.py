"""One wave of all that a worker asks of its database again and again, and what each statement may cost however large that is.

The bounds are pages of shared memory a row, for what a statement must touch grows with what it returns or changes, and with
the lanes that a worker has, and with nothing else. Where they come from, at indexes of three to four levels:

- A candidate of a probe is one entry of `run_claim` and one look at its row, mostly on another page than its neighbour's.
- To read a row by its key is four pages of the index and one of the table; a body beside it as many again.
- To change a row costs reading it, and an entry in the primary key and in each index that has its new status: five to
  seven pages each.

What other sessions keep from being cleaned up comes on top: an entry of an index that was left behind is passed over
with a look at its row. That grows with the claims made since, and is why a snapshot that is held for hours is a finding
of `outlast doctor`.
"""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import NamedTuple

from outlast.limits import LANE_PROBE_FACTOR, RECOVERY_PAGE, TIMER_BATCH
from outlast.native.store import Store
from outlast.native.transitions import recovery_of

from .filling import ALIVE, ENDED_WORKERS
from .plans import Explaining, Plan

SLOTS = 100
PRIORITIES = 3
"""How many the filling has."""
PAGES_ASIDE = 60
"""What a statement may touch besides its rows: catalogues, the small tables, the upper levels of indexes."""
PAGES_A_LEFTOVER = 2
"""An entry of an index that was left behind, and the row that it leads to."""


class Bound(NamedTuple):
    """What a statement may touch, and by which indexes of the large tables it has to be served."""

    indexes: frozenset[str]
    pages_a_row: float = 0.0
    pages_a_lane: float = 0.0
    is_walking: bool = False
    """It goes along an index in its order, so that it passes over what was left behind there."""


def _by(*indexes: str) -> frozenset[str]:
    return frozenset(indexes)


_CHANGED = _by("run_pkey", "run_body_pkey")
BOUNDS = {
    "look": Bound(_by("run_claim", "run_timer", "run_deadline", "signal_undelivered"), pages_a_lane=6, is_walking=True),
    "probe_lanes": Bound(_by("run_claim"), pages_a_row=2, pages_a_lane=6, is_walking=True),
    "probe_oldest": Bound(_by("run_claim"), pages_a_row=2 * PRIORITIES, pages_a_lane=6 * 2 * (PRIORITIES + 1), is_walking=True),
    "claim_runs": Bound(_CHANGED, pages_a_row=50),
    "list_held": Bound(_by("run_worker", "run_body_pkey"), pages_a_row=12, is_walking=True),
    "list_flagged": Bound(_by("run_worker", "run_body_pkey"), pages_a_row=12, is_walking=True),
    "wake_due": Bound(_by("run_timer", "run_pkey"), pages_a_row=40, is_walking=True),
    "lock_overdue": Bound(_by("run_deadline", "run_body_pkey"), pages_a_row=15, is_walking=True),
    "change_runs": Bound(_CHANGED, pages_a_row=60),
    "withdraw_questions": Bound(_by("run_pkey"), pages_a_row=8),
    "list_workers": Bound(_by(), pages_a_row=1),
    "list_orphans": Bound(_by("run_worker"), pages_a_row=25, is_walking=True),
    "count_losses": Bound(_by("run_pkey"), pages_a_row=50),
    "delete_ended_workers": Bound(_by("run_worker"), pages_a_row=12),
}
MINIMUM_ROWS = {"claim_runs": SLOTS, "wake_due": TIMER_BATCH, "lock_overdue": TIMER_BATCH, "list_orphans": RECOVERY_PAGE, "change_runs": RECOVERY_PAGE}
"""What the filling has for them: a statement that finds nothing proves nothing."""
MAY_WALK = {"lane", "queue", "worker"}
"""Small tables."""


def ask(store: Store, tx: Explaining, lanes: Sequence[int]) -> list[Plan]:
    """Do once what an idle, a claiming and a watching worker do, and return the plans."""
    store.look(tx, lanes)
    seen = store.probe_lanes(tx, lanes, SLOTS * LANE_PROBE_FACTOR, with_suspects=True)()
    store.probe_oldest(tx, lanes, SLOTS // 10, with_suspects=True)()
    store.claim_runs(tx, ALIVE, [candidate.run_id for candidate in seen], SLOTS)()
    store.list_held(tx, ALIVE)
    store.list_flagged(tx, ALIVE)
    store.wake_due(tx, TIMER_BATCH)
    store.end_overdue(tx, TIMER_BATCH)
    store.list_workers(tx, only_alive=True, counts_runs=False)
    store.recover_runs(tx, [recovery_of(orphan) for orphan in store.list_orphans(tx, RECOVERY_PAGE)])
    store.delete_ended_workers(tx, timedelta(days=1))
    return tx.plans


def faults(plans: Iterable[Plan], lanes: int, *, held: int, leftovers: int = 0) -> list[str]:
    """Say what is wrong with the plans of a wave; `held` runs are looked at where only a few of them are returned."""
    return [fault for plan in plans for fault in _faults(plan, lanes, held, leftovers)]


def _faults(plan: Plan, lanes: int, held: int, leftovers: int) -> Iterable[str]:
    bound = BOUNDS[plan.statement]
    rows = max(plan.rows, held) if plan.statement == "list_flagged" else plan.rows
    rows += TIMER_BATCH if plan.statement == "withdraw_questions" else 0  # of runs that have ended and had asked nothing
    rows += ENDED_WORKERS if plan.statement in ("list_orphans", "list_workers") else 0
    allowed = PAGES_ASIDE + bound.pages_a_row * rows + bound.pages_a_lane * lanes + (leftovers * PAGES_A_LEFTOVER if bound.is_walking else 0)
    if walked := plan.walked - MAY_WALK:
        yield f"{plan.statement} reads {', '.join(sorted(walked))} as a whole"
    if lacking := bound.indexes - plan.indexes:
        yield f"{plan.statement} is not served by {', '.join(sorted(lacking))}"
    if plan.buffers > allowed:
        yield f"{plan.statement} touches {plan.buffers} pages for {plan.rows} rows, {allowed:.0f} are allowed"
    if plan.rows < MINIMUM_ROWS.get(plan.statement, 0):
        yield f"{plan.statement} found only {plan.rows} rows: this proves nothing"
