"""The states of a run and the one table of allowed changes. Pure.

    waiting ------ time, topic, cancel ------> pending
    pending ------------ claimed ------------> running
    running -- parked, delayed, backing off -> waiting
    running - released, taken from its worker -> pending
    running ------------- ended -------------> succeeded, failed, canceled; third strike: dead
    pending, waiting - canceled or overdue before it ever ran -> canceled, failed
    failed, dead, canceled - an operator's retry -> pending
    failed, dead --- an operator's discard --> canceled

Each store makes these changes in its own SQL; a test holds every change that was ever committed against this table.
"""

from datetime import timedelta

from outlast.failure import Failure
from outlast.limits import RECOVERY_DELAY_MAX, STRIKES_MAX, SUSPECT_AFTER_LOSSES
from outlast.run import RunStatus

from .store import Orphan, Recovery

P, R, W = RunStatus.PENDING, RunStatus.RUNNING, RunStatus.WAITING
SUCCEEDED, FAILED, CANCELED, DEAD = RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.CANCELED, RunStatus.DEAD

ALLOWED: frozenset[tuple[RunStatus | None, RunStatus]] = frozenset(
    {
        (None, P),
        (None, W),
        (W, P),
        (P, R),
        (R, W),
        (R, P),
        (R, SUCCEEDED),
        (R, FAILED),
        (R, CANCELED),
        (R, DEAD),
        (P, CANCELED),
        (W, CANCELED),
        (P, FAILED),
        (W, FAILED),
        (FAILED, P),
        (DEAD, P),
        (CANCELED, P),
        (FAILED, CANCELED),
        (DEAD, CANCELED),
    }
)

RETRYABLE = frozenset({FAILED, DEAD, CANCELED})
DISCARDABLE = frozenset({FAILED, DEAD})


def recovery_of(orphan: Orphan) -> Recovery:
    """Decide what becomes of a run whose worker is not alive.

    A loss with something recorded or reported since the last one is the machine's, and the counting begins anew. The
    second in a row without progress makes the run a suspect; a worker executes one suspect at a time, so that a
    further loss can be laid at its door: a strike. Three strikes, and it is dead. A worker that ended by itself is no
    loss.
    """
    if not orphan.has_ended_worker:
        return Recovery(orphan.hold, P, timedelta(0), orphan.recoveries, orphan.losses, orphan.strikes, orphan.loss_mark, None)
    has_progress = orphan.progress_mark > orphan.loss_mark
    was_suspect = orphan.losses >= SUSPECT_AFTER_LOSSES and not has_progress
    losses = 1 if has_progress else orphan.losses + 1
    strikes = orphan.strikes + 1 if was_suspect else orphan.strikes
    recoveries = orphan.recoveries + 1
    if strikes >= STRIKES_MAX:
        return Recovery(orphan.hold, DEAD, timedelta(0), recoveries, losses, strikes, orphan.progress_mark, _lost(strikes))
    delay = recovery_delay(losses)
    return Recovery(orphan.hold, W if delay else P, delay, recoveries, losses, strikes, orphan.progress_mark, None)


def recovery_delay(losses: int) -> timedelta:
    """Return how long a run waits after its worker was lost for the `losses`th time in a row: not at first, then longer."""
    if losses <= 1:
        return timedelta(0)
    return min(timedelta(seconds=2.0 ** min(losses - 2, 10)), RECOVERY_DELAY_MAX)


def _lost(strikes: int) -> Failure:
    return Failure(
        type="outlast.WorkerLost",
        message=f"its worker was lost {strikes} times while it executed this run as its only suspect; "
        "look at what the step in progress does to the process, then retry",
    )
