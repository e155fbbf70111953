"""Lanes: what the counts of a store add up to, and why nobody executes what is in one. Pure: rows were read by a store before."""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

from outlast.inspector import BoundedCount
from outlast.limits import LANE_COUNT_MAX, LANE_SAMPLE_MAX

from .upkeep import LaneRow


class Counted(NamedTuple):
    """A lane, and of its runs those that are counted lane by lane, up to one more than the bound."""

    lane: int
    queue: str
    kind: str
    version: int
    paused_at: datetime | None
    pending: int
    untimed: int
    """Waiting for something other than a time."""


class Asleep(NamedTuple):
    """Of the runs that wait for a time, the soonest: how many are in a lane."""

    number: int
    overdue: int


class Served(NamedTuple):
    """A lane that a worker claims from which lives or did a minute ago."""

    queue: str
    kind: str
    version: int


def lane_rows(lanes: Iterable[Counted], served: Collection[Served], held: Mapping[int, int], asleep: Mapping[int, Asleep]) -> list[LaneRow]:
    """Return the lanes with their counts. Where a sample was cut short, any lane may have more than was seen of it."""
    is_held_cut = sum(held.values()) > LANE_SAMPLE_MAX
    is_asleep_cut = sum(one.number for one in asleep.values()) > LANE_SAMPLE_MAX
    is_overdue_cut = sum(one.overdue for one in asleep.values()) > LANE_SAMPLE_MAX  # the soonest come first: else all overdue ones were seen
    none = Asleep(0, 0)
    return [
        LaneRow(
            queue=lane.queue,
            kind=lane.kind,
            version=lane.version,
            paused_at=lane.paused_at,
            is_served=Served(lane.queue, lane.kind, lane.version) in served,
            pending=bounded(lane.pending),
            running=bounded(held.get(lane.lane, 0), may_be_more=is_held_cut),
            waiting=bounded(lane.untimed + asleep.get(lane.lane, none).number, may_be_more=is_asleep_cut),
            overdue=bounded(asleep.get(lane.lane, none).overdue, may_be_more=is_overdue_cut),
        )
        for lane in lanes
    ]


def bounded(number: int, *, may_be_more: bool = False) -> BoundedCount:
    return BoundedCount(min(number, LANE_COUNT_MAX), may_be_more or number > LANE_COUNT_MAX)


def added(*counts: BoundedCount) -> BoundedCount:
    """Return the sum of bounded counts, itself bounded."""
    return bounded(sum(count.number for count in counts), may_be_more=any(count.has_more for count in counts))


def why_unserved(queue: str, kind: str, version: int, served: Collection[Served]) -> str | None:
    """Return why no worker executes a lane's runs; None when one does."""
    if Served(queue, kind, version) in served:
        return None
    if not served:
        return "no worker lives, or has within the last minute"
    same_kind = [lane for lane in served if lane.kind == kind]
    if queues := sorted({lane.queue for lane in same_kind if lane.version == version}):
        return f"workers have {kind} v{version} only in queue {_listed(queues)}"
    if versions := sorted({lane.version for lane in same_kind}):
        return f"no worker has {kind} v{version}, only {_listed([f'v{one}' for one in versions])}"
    return f"no worker has {kind}"


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
