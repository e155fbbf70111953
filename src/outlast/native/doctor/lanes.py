"""Lanes: is there work that no worker takes, and does an application still have every version that runs need? Pure."""

from collections.abc import Collection, Sequence

from outlast.finding import Check, Finding, all_or_ok, problem, warning
from outlast.inspector import BoundedCount
from outlast.native.lanes import Served, added, why_unserved
from outlast.native.upkeep import LaneRow

from .examiner import TaskVersions

_SHOWN_MAX = 20


def judge(lanes: Sequence[LaneRow], tasks: TaskVersions) -> list[Finding]:
    """`tasks` are those of the application that is asked about; without any, versions still needed are not looked for."""
    unserved = [lane for lane in lanes if _stranded(lane).number]
    served = {Served(lane.queue, lane.kind, lane.version) for lane in lanes if lane.is_served}
    faults = [_judge_unserved(lane, served) for lane in unserved[:_SHOWN_MAX]]
    if len(unserved) > _SHOWN_MAX:
        faults.append(problem(Check.LANES, f"{len(unserved) - _SHOWN_MAX} more lanes have no worker", "`outlast stranded` lists them"))
    draining = [lane for lane in lanes if _is_missed(lane, tasks)]
    faults.extend(_judge_missed(lane) for lane in draining[:_SHOWN_MAX])
    return all_or_ok(faults, Check.LANES, "every lane whose runs would go on has a worker")


def _stranded(lane: LaneRow) -> BoundedCount:
    """Return the runs that would go on: claimable, overdue, or held by a worker that is gone."""
    if lane.is_served or lane.paused_at is not None:
        return BoundedCount(0)
    return added(lane.pending, lane.overdue, lane.running)


def _judge_unserved(lane: LaneRow, served: Collection[Served]) -> Finding:
    why = why_unserved(lane.queue, lane.kind, lane.version, served)
    text = f"{_runs(_stranded(lane))} of {lane.kind} v{lane.version} in queue {lane.queue} would go on, and {why}"
    return problem(Check.LANES, text, f"start a worker with {lane.kind} version {lane.version} on queue {lane.queue}, or cancel them")


def _is_missed(lane: LaneRow, tasks: TaskVersions) -> bool:
    is_ours = lane.kind in {kind for kind, _ in tasks}
    return is_ours and (lane.kind, lane.version) not in tasks and added(lane.pending, lane.running, lane.waiting).number > 0


def _judge_missed(lane: LaneRow) -> Finding:
    runs = _runs(added(lane.pending, lane.running, lane.waiting))
    text = f"{runs} of {lane.kind} v{lane.version} in queue {lane.queue} still to do, and this application does not have that version"
    return warning(Check.LANES, text, f"keep a worker with version {lane.version} until they are over, or give connect(tasks=...) both versions")


def _runs(count: BoundedCount) -> str:
    return "1 run" if str(count) == "1" else f"{count} runs"
