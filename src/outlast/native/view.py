"""How a run and its steps are shown to people, the same on both databases. Pure: rows were read by a store before."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from outlast.native.history import FailedAttempt, Outcome, Record, RecordKind, Wait
from outlast.run import Progress, RunStatus, RunView, StepView
from outlast.step_key import StepKey

from .why import Circumstances, why

_STATUS_OF = {Outcome.RESULT: "done", Outcome.ERROR: "failed", Outcome.RESUMED: "resumed", Outcome.GIVEN_UP: "given_up"}


@dataclass(frozen=True, slots=True)
class Activity:
    """What a long step last said of itself."""

    key: StepKey
    attempt: int
    started_at: datetime
    done: float | None
    total: float | None
    note: str


def record_view(record: Record) -> StepView:
    return StepView(
        key=str(record.key),
        kind=record.kind,
        status=_STATUS_OF[record.outcome],
        attempts=record.attempts,
        started_at=record.started_at,
        finished_at=record.finished_at,
        result=record.result,
        error=record.error,
    )


def open_views(recorded: Collection[StepKey], failures: Iterable[FailedAttempt], waits: Iterable[Wait], activity: Iterable[Activity]) -> list[StepView]:
    """Return what has no record yet, one view for each key: in progress, then to be retried, then waited for."""
    last = {failure.key: failure for failure in failures if failure.key not in recorded and not failure.is_retired}
    going = {one.key: one for one in activity if one.key not in recorded and (one.key not in last or last[one.key].attempt < one.attempt)}
    return [
        *map(_activity_view, going.values()),
        *(_failure_view(failure) for key, failure in last.items() if key not in going),
        *(_wait_view(wait) for wait in waits if wait.key not in recorded),
    ]


def _activity_view(one: Activity) -> StepView:
    progress = None if one.done is None else Progress(one.done, one.total, one.note)
    return StepView(str(one.key), RecordKind.STEP, "in_progress", one.attempt, one.started_at, None, progress=progress)


def _failure_view(failure: FailedAttempt) -> StepView:
    return StepView(str(failure.key), RecordKind.STEP, "retrying", failure.attempt, failure.started_at, None, error=failure.error, due_at=failure.retry_at)


def _wait_view(wait: Wait) -> StepView:
    return StepView(str(wait.key), wait.kind, "waiting", 0, None, None, due_at=wait.due_at, topic=wait.topic)


def waiting_by_name(opened: Mapping[str, Sequence[StepView]]) -> list[str]:
    """Return which of these runs wait for something by name, and may have asked somebody."""
    return [run_id for run_id, steps in opened.items() if any(step.topic is not None for step in steps)]


def explained(view: RunView, opened: Sequence[StepView], around: Circumstances) -> RunView:
    """Return `view` with its current step, its progress, and why it is where it is."""
    current = _current(view.status, opened, around)
    return replace(
        view,
        why=why(view, current, around),
        current_step=None if current is None else current.key,
        progress=None if current is None else current.progress,
    )


def _current(status: RunStatus, opened: Sequence[StepView], around: Circumstances) -> StepView | None:
    if status.is_terminal:
        return None
    if status is not RunStatus.WAITING:
        return next((one for one in opened if one.status == "in_progress" and status is RunStatus.RUNNING), None)
    named = [one for one in opened if one.topic is not None]
    if (asking := next((one for one in named if around.question_on(one.topic) is not None), None)) is not None:
        return asking  # a person can do something about that, and about nothing else
    waiting = [(one.due_at, one.key, one) for one in opened if one.status in ("retrying", "waiting") and one.due_at is not None]
    if waiting:
        return min(waiting, key=lambda found: found[:2])[2]
    return next(iter(named), None) or next((one for one in opened if one.status == "waiting"), None)
