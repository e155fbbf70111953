"""StoreModel: the whole model of a store. Here what callers and operators do to runs; the other rules are in `store_model_runs` and
`store_model_mail`, and what is kept in `store_model_state`. No SQL and no clock: every instant is given.
"""

from datetime import datetime, timedelta

from outlast.native.history import Outcome
from outlast.run import CancelOutcome, RunStatus

from .store_model_runs import RunModel
from .store_model_state import ModelRun, ModelStep

FAILED, CANCELED, DEAD = RunStatus.FAILED, RunStatus.CANCELED, RunStatus.DEAD


class StoreModel(RunModel):
    """All rules; each method makes one transaction's change."""

    def cancel(self, run_id: str, reason: str, now: datetime) -> CancelOutcome | None:
        run = self.runs.get(run_id)
        if run is None:
            return None
        if run.is_over:
            return CancelOutcome.ALREADY_OVER
        if run.cancel_requested_at is not None:
            return CancelOutcome.REQUESTED
        run.cancel_requested_at, run.cancel_reason = now, reason
        if run.token == 0:
            self.end(run, CANCELED, now)
            return CancelOutcome.CANCELED
        if run.status is not RunStatus.RUNNING:
            run.status, run.due_at = RunStatus.PENDING, now
        return CancelOutcome.REQUESTED

    def retry(self, run_id: str, reason: str, now: datetime) -> RunStatus | None:
        run = self.runs.get(run_id)
        if run is None:
            return None
        found = run.status
        if found in (FAILED, DEAD, CANCELED):
            if run.failed_call is not None:
                self.retire(run, run.failed_call)
            self._revive(run, "retry", reason, now)
        return found

    def resume(self, run_id: str, result: str, reason: str, now: datetime) -> bool | None:
        run = self.runs.get(run_id)
        if run is None:
            return None
        call = run.failed_call if run.status is FAILED else None
        step = None if call is None else self.steps.get(call)
        if call is None or step is None or step.outcome is not Outcome.ERROR:
            return False
        self.retire(run, call)
        self.steps[call] = ModelStep(step.seq, step.kind, Outcome.RESUMED, step.attempts, run.token, step.started_at, now, result, None)
        self._revive(run, "resume", reason, now)
        return True

    def _revive(self, run: ModelRun, action: str, reason: str, now: datetime) -> None:
        run.status, run.due_at, run.finished_at, run.cancel_requested_at = RunStatus.PENDING, now, None, None
        run.attempts = run.recoveries = run.losses = run.strikes = 0
        run.deadline_at = run.deadline_at if run.deadline_at is not None and run.deadline_at > now else None
        run.output = run.error = run.cancel_reason = run.verdict = run.failed_path = run.failed_name = None
        run.failed_number, run.has_progress = None, False
        key = self.keys.get((run.lane.kind, run.idempotency_key)) if run.idempotency_key is not None else None
        if key is not None and key.run == run.id:
            key.ended_status = None
        self.actions.add((now, action, run.id, reason))

    def discard(self, run_id: str, reason: str, now: datetime) -> RunStatus | None:
        run = self.runs.get(run_id)
        if run is None:
            return None
        found = run.status
        if found in (FAILED, DEAD):
            self.end(run, CANCELED, now)
            run.cancel_reason = reason
            self.actions.add((now, "discard", run.id, reason))
        return found

    def prune(self, older_than: timedelta, now: datetime) -> int:
        """Forget what has been over for so long, with all that hangs on it but its key."""
        gone = {run.id for run in self.runs.values() if run.finished_at is not None and run.finished_at <= now - older_than}
        self.runs = {name: one for name, one in self.runs.items() if name not in gone}
        self.steps = {call: one for call, one in self.steps.items() if call[0] not in gone}
        self.failures = {call: one for call, one in self.failures.items() if call[0] not in gone}
        self.waits = {call: one for call, one in self.waits.items() if call[0] not in gone}
        self.cursors = {place: number for place, number in self.cursors.items() if place[0] not in gone}
        self.signals = {name: one for name, one in self.signals.items() if one.run not in gone}
        self.decisions = {name: one for name, one in self.decisions.items() if one.run not in gone}
        return len(gone)
