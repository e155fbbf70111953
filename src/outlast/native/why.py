"""Why a run is where it is, and what would have to happen for it to go on, in one sentence for a person. Pure."""

from dataclasses import dataclass
from datetime import datetime

from outlast.decision import decision_topic
from outlast.inspector import BoundedCount
from outlast.limits import SUSPECT_AFTER_LOSSES
from outlast.run import RunStatus, RunView, StepView

from .history import RecordKind
from .mailbox import Question


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What explains a run beside its own row."""

    is_queue_paused: bool = False
    is_due: bool = False
    """Its time has come."""
    losses: int = 0
    """Workers lost in a row with nothing recorded between."""
    is_holder_alive: bool = True
    """False when the worker that holds it has ended, or is not known any more."""
    is_holder_late: bool = False
    """The lease of the worker that holds it is over."""
    unserved: str | None = None
    """Why no worker executes runs of its lane."""
    ahead: BoundedCount | None = None
    """Claimable runs of its lane that come before it."""
    questions: tuple[Question, ...] = ()
    """What it has asked, and nobody has answered."""

    @property
    def is_holder_lost(self) -> bool:
        return self.is_holder_late or not self.is_holder_alive

    def question_on(self, topic: str | None) -> Question | None:
        """Return the question whose answer comes on a topic."""
        return next((one for one in self.questions if decision_topic(one.decision_id) == topic), None)


def why(view: RunView, current: StepView | None, around: Circumstances) -> str:
    """Return the sentence; `current` is the step in progress, of the retry, or of the wait."""
    match view.status:
        case RunStatus.PENDING:
            return _pending(view, around)
        case RunStatus.RUNNING:
            return _running(view, current, around)
        case RunStatus.WAITING:
            return _waiting(view, current, around)
        case RunStatus.SUCCEEDED:
            return "finished"
        case RunStatus.CANCELED:
            return f"canceled: {view.cancel_reason}" if view.cancel_reason else "canceled"
        case RunStatus.FAILED | RunStatus.DEAD:
            return f"{view.status}: {view.error}" if view.error else str(view.status)


def _pending(view: RunView, around: Circumstances) -> str:
    to_be_canceled = "" if view.cancel_reason is None else f"; then it is canceled: {view.cancel_reason}"
    if around.is_queue_paused:
        return f"queue {view.queue} is paused{to_be_canceled}"
    if around.unserved is not None:
        return f"stranded: {around.unserved}{to_be_canceled}"
    if around.losses >= SUSPECT_AFTER_LOSSES:
        return f"waiting for a worker that executes no other suspect: its worker was lost {around.losses} times in a row{to_be_canceled}"
    if view.cancel_reason is not None:
        return f"waiting for a worker to cancel it: {view.cancel_reason}"
    if around.ahead is not None and around.ahead.number > 0:
        return f"waiting for a worker, behind {around.ahead} {'other' if str(around.ahead) == '1' else 'others'} of its lane"
    return "waiting for a worker"


def _running(view: RunView, current: StepView | None, around: Circumstances) -> str:
    place = f"step {current.key} in progress on {view.worker}" if current else f"running on {view.worker or 'a worker'}"
    if around.is_holder_lost:
        what = "is gone" if not around.is_holder_alive else "is silent"
        place += f", which {what}; " + ("another worker takes it over" if around.unserved is None else f"stranded: {around.unserved}")
    elif around.losses >= SUSPECT_AFTER_LOSSES:
        place += f"; a suspect, for its worker was lost {around.losses} times in a row"
    return place if view.cancel_reason is None else f"{place}; told to cancel: {view.cancel_reason}"


def _waiting(view: RunView, current: StepView | None, around: Circumstances) -> str:
    if around.is_due and around.unserved is not None:
        return f"stranded: {around.unserved}"
    if current is not None and current.kind == RecordKind.UNTIL and current.status == "waiting" and view.due_at is not None:
        return _condition(current, view.due_at)
    if current is not None and current.topic is not None:
        return _by_name(current.topic, current.due_at, around)
    if current is not None and current.due_at == view.due_at and current.due_at is not None:
        return f"retrying {current.key} at {_text(current.due_at)}" if current.status == "retrying" else f"sleeping until {_text(current.due_at)}"
    if view.due_at is None:
        return "waiting"
    if view.started_at is None:
        return f"to be started at {_text(view.due_at)}"
    if around.losses >= SUSPECT_AFTER_LOSSES:
        return f"backing off until {_text(view.due_at)}: its worker was lost {around.losses} times in a row"
    if view.error is not None:
        return f"to be run again at {_text(view.due_at)} after {view.error}"
    return f"waiting until {_text(view.due_at)}"


def _condition(current: StepView, look_at: datetime) -> str:
    hurried = "" if current.topic is None else f"when topic {current.topic} is signaled, or "
    until = "" if current.due_at is None else f", until {_text(current.due_at)}"
    return f"waits for {current.key} to be so: looks again {hurried}at {_text(look_at)}{until}"


def _by_name(topic: str, due_at: datetime | None, around: Circumstances) -> str:
    until = "" if due_at is None else f", until {_text(due_at)}"
    asked = around.question_on(topic)
    if asked is None:
        return f"waits for topic {topic}{until}"
    return f"waits for an answer to: {asked.question} (decision {asked.decision_id}{until}): outlast decide {asked.decision_id} {'|'.join(asked.options)}"


def _text(instant: datetime) -> str:
    return instant.isoformat(timespec="seconds")
