"""Selection: which of the runs that a probe saw a worker claims. Pure.

Within a queue the order is priority, then due time; queues take turns, so that a flood in one does not starve another;
and one run in ten goes by due time alone, whatever its priority, so that low priority means late and not never.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from itertools import chain, zip_longest

from outlast.limits import OLDEST_FIRST_EVERY

from .store import Candidate


def oldest_share(claimed_before: int, slots: int) -> int:
    """Return how many of the next `slots` runs go by due time alone, when `claimed_before` were claimed already."""
    return (claimed_before + slots) // OLDEST_FIRST_EVERY - claimed_before // OLDEST_FIRST_EVERY


def choose(
    candidates: Iterable[Candidate], oldest: Iterable[Candidate], queues: Mapping[int, str], *, slots: int, by_age: int, excluded: Set[str], suspects: int
) -> list[str]:
    """Return run ids in the order in which to claim them: more than `slots`, since another worker may be quicker.

    Args:
        queues: The queue of each lane.
        by_age: How many go by due time alone.
        excluded: Runs of which an older body still lives in this process.
        suspects: How many suspects may be among them.
    """
    aged = sorted((seen for seen in oldest if seen.run_id not in excluded), key=lambda seen: (seen.due_at, seen.run_id))[:by_age]
    by_queue: dict[str, list[Candidate]] = {}
    for seen in sorted(candidates, key=lambda seen: (seen.priority, seen.due_at, seen.run_id)):
        if seen.run_id not in excluded:
            by_queue.setdefault(queues[seen.lane], []).append(seen)
    turns = (seen for turn in zip_longest(*by_queue.values()) for seen in turn if seen is not None)
    chosen: dict[str, None] = {}
    for seen in chain(aged, turns):
        if seen.run_id in chosen:
            continue
        if seen.is_suspect:
            if suspects <= 0:
                continue
            suspects -= 1
        chosen[seen.run_id] = None
    return list(chosen)
