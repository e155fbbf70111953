"""RunModel: the rules of runs, as DESIGN has them, on plain objects: accepting, claiming, committing, and what time and lost workers do.

It is given every instant and reads no clock. What a store may choose, such as which of equal runs a page holds, is not asked of it:
the machine asks only where the answer does not depend on that.
"""

from collections.abc import Sequence
from copy import deepcopy
from datetime import datetime, timedelta

from outlast.limits import RECOVERY_DELAY_MAX, STRIKES_MAX, SUSPECT_AFTER_LOSSES
from outlast.native.history import ASKING, Outcome
from outlast.native.store import Accepted, Checkpoint, FailureCheckpoint, Hold, LaneName, NewRun, RunCheckpoint, StepCheckpoint
from outlast.run import RunStatus

from .store_model_mail import MailModel
from .store_model_state import Call, ModelFailure, ModelKey, ModelRun, ModelStep, ModelWorker, call_of

P, R, W = RunStatus.PENDING, RunStatus.RUNNING, RunStatus.WAITING
FAILED, DEAD = RunStatus.FAILED, RunStatus.DEAD


class DuplicateError(Exception):
    """A record meets one of its key: the whole group is undone."""


class LostError(Exception):
    """The worker is not alive."""


class RunModel(MailModel):
    """The rules of runs that nobody acts on; each method makes one transaction's change."""

    # --- accepting -----------------------------------------------------------------------------------------------------------
    def record_run(self, lane: LaneName, new: NewRun, now: datetime) -> Accepted:
        owner = self.keys.get((new.kind, new.idempotency_key)) if new.idempotency_key is not None else None
        if owner is not None:
            return Accepted(owner.run, created=owner.run == new.id, stored_digest=owner.input_digest)
        if new.id in self.runs:
            return Accepted(new.id, created=True, stored_digest=self.runs[new.id].input_digest)
        if new.idempotency_key is not None:
            self.keys[new.kind, new.idempotency_key] = ModelKey(new.id, new.input_digest)
        status = W if new.due_at is not None and new.due_at > now else P
        self.runs[new.id] = ModelRun(new.id, lane, new.priority, status, new.due_at or now, now, new.deadline_at, new.input_digest, new.idempotency_key)
        return Accepted(new.id, created=True, stored_digest=new.input_digest)

    # --- claiming ------------------------------------------------------------------------------------------------------------
    def fence(self, worker_id: int) -> None:
        if worker_id not in self.workers or not self.workers[worker_id].is_alive:
            raise LostError

    def claimable(self, now: datetime) -> list[ModelRun]:
        return [run for run in self.runs.values() if run.status is P and run.due_at is not None and run.due_at <= now]

    def claim(self, worker_id: int, run_ids: Sequence[str], limit: int, now: datetime) -> list[Hold]:
        self.fence(worker_id)
        there = {run.id: run for run in self.claimable(now)}
        claimed = [there[run_id] for run_id in run_ids if run_id in there][:limit]
        for run in claimed:
            run.status, run.worker, run.due_at, run.token = R, worker_id, None, run.token + 1
            run.started_at, run.claimed_at = run.started_at or now, now
        return [Hold(run.id, run.token) for run in claimed]

    def is_current(self, hold: Hold, generation: int = 0) -> bool:
        run = self.runs[hold.run_id]
        return run.status is R and run.token == hold.token and generation == 0

    # --- committing ----------------------------------------------------------------------------------------------------------
    def commit(self, worker_id: int, group: Sequence[Checkpoint], now: datetime) -> list[Checkpoint]:
        """Write a group and return what is refused: what is not under the current token, and a change of a canceled run that does not pass that."""
        self.fence(worker_id)
        before = deepcopy(self.__dict__)
        try:
            kinds = (StepCheckpoint, FailureCheckpoint, RunCheckpoint)
            return [one for kind in kinds for one in group if isinstance(one, kind) and not self._is_kept(one, now)]
        except DuplicateError:
            self.__dict__.update(before)
            raise

    def _is_kept(self, one: Checkpoint, now: datetime) -> bool:
        if not self.is_current(one.hold, one.generation):
            return False
        if isinstance(one, StepCheckpoint):
            self._keep_record(one, now)
        elif isinstance(one, FailureCheckpoint):
            self._keep_failure(one)
        elif self.runs[one.hold.run_id].cancel_requested_at is not None and not one.passes_cancel:
            return False
        else:
            self._let_go(self.runs[one.hold.run_id], one, now)
        return True

    def _keep_record(self, step: StepCheckpoint, now: datetime) -> None:
        record, run_id, call = step.record, step.hold.run_id, call_of(step.hold.run_id, step.record.key)
        if call in self.steps:
            raise DuplicateError
        error = record.error and record.error.type
        self.steps[call] = ModelStep(
            record.seq, record.kind, record.outcome, record.attempts, step.hold.token, record.started_at, record.finished_at, record.result, error
        )
        self.runs[run_id].has_progress = True
        if step.was_open and record.kind in ASKING:
            self.forget_heard(run_id, record.key)
        if step.heard is not None:
            topic, number = step.heard
            self.cursors[run_id, topic] = max(self.cursors.get((run_id, topic), 0), number)
        if step.sent is not None and step.sent.id not in self.signals:
            self.keep(step.sent, now)
        self.waits.pop(call, None)

    def _keep_failure(self, failed: FailureCheckpoint) -> None:
        failure = failed.failure
        call = (*call_of(failed.hold.run_id, failure.key), failure.attempt)
        if call in self.failures:
            raise DuplicateError
        self.failures[call] = ModelFailure(failed.hold.token, failure.started_at, failure.failed_at, failure.retry_at, failure.is_retired, failure.error.type)
        self.runs[failed.hold.run_id].has_progress = True

    def _let_go(self, run: ModelRun, change: RunCheckpoint, now: datetime) -> None:
        run.worker, run.attempts, run.verdict = None, change.attempts, change.verdict or run.verdict
        error = change.error and change.error.type
        if change.status.is_terminal:
            self.end(run, change.status, now, asks=change.may_have_asked)
            run.output, run.error = change.output, error
            run.failed_path, run.failed_name, run.failed_number = None, None, None
            if change.failed_key is not None:
                _, run.failed_path, run.failed_name, run.failed_number = call_of(run.id, change.failed_key)
            return
        run.status, run.error = change.status, error or run.error
        run.due_at = change.due_at or now if change.status is P else change.due_at
        run.losses = 0 if run.has_progress else run.losses
        if change.status is W:
            self.register_waits(run, change.waits, now)
        if change.retire is not None:
            self.retire(run, call_of(run.id, change.retire))

    def end(self, run: ModelRun, status: RunStatus, now: datetime, *, asks: bool = False) -> None:
        """Make a run terminal, with all that follows from it."""
        run.status, run.worker, run.due_at, run.finished_at = status, None, None, now
        key = self.keys.get((run.lane.kind, run.idempotency_key)) if run.idempotency_key is not None else None
        if key is not None and key.run == run.id:
            key.ended_status = status
        for call in [call for call in self.waits if call[0] == run.id]:
            del self.waits[call]
        if asks or status is not RunStatus.SUCCEEDED:
            self.withdraw(run.id, now)

    def retire(self, run: ModelRun, call: Call) -> int | None:
        """Move the record of an error among the failed attempts, and forget what the body withdrew from after it; return its `seq`."""
        own = {key: failure for key, failure in self.failures.items() if key[:4] == call}
        for failure in own.values():
            failure.is_retired, failure.retry_at = True, None
        step = self.steps.get(call)
        if step is None or step.outcome is not Outcome.ERROR or step.error is None:
            return None
        del self.steps[call]
        attempt = max(step.attempts, max((key[4] for key in own), default=0) + 1)
        self.failures[(*call, attempt)] = ModelFailure(step.token, step.started_at or step.finished_at, step.finished_at, None, True, step.error)
        for later in [key for key, one in self.steps.items() if key[0] == run.id and one.outcome is Outcome.GIVEN_UP and one.seq > step.seq]:
            del self.steps[later]
        run.retired_seq = step.seq if run.retired_seq is None else min(run.retired_seq, step.seq)
        return step.seq

    # --- time ----------------------------------------------------------------------------------------------------------------
    def due(self, now: datetime) -> list[ModelRun]:
        return [run for run in self.runs.values() if run.status is W and run.due_at is not None and run.due_at <= now]

    def wake_due(self, now: datetime) -> int:
        due = self.due(now)
        for run in due:
            run.status = P
        return len(due)

    def end_overdue(self, now: datetime) -> int:
        runs = [run for run in self.runs.values() if run.deadline_at is not None and run.deadline_at <= now]
        overdue = [run for run in runs if run.status is W or (run.status is P and run.token == 0)]
        for run in overdue:
            if run.token == 0:
                self.end(run, FAILED, now)
                run.error = "outlast.DeadlineExceeded"
            else:
                run.status, run.due_at = P, now
        return len(overdue)

    # --- workers -------------------------------------------------------------------------------------------------------------
    def record_worker(self, worker_id: int, lease: timedelta, now: datetime) -> None:
        self.workers[worker_id] = ModelWorker(lease, now + lease, now)

    def renew(self, worker_id: int, now: datetime) -> bool:
        worker = self.workers.get(worker_id)
        if worker is None or not worker.is_alive:
            return False
        worker.lease_until, worker.beat = max(worker.lease_until, now + worker.lease), worker.beat + 1
        return True

    def end_worker(self, worker_id: int, end: str, beat: int | None, is_silent: bool, now: datetime) -> bool:
        worker = self.workers.get(worker_id)
        if worker is None or not worker.is_alive or (beat is not None and beat != worker.beat) or (is_silent and worker.lease_until >= now):
            return False
        worker.is_alive, worker.ended_at, worker.end = False, now, end
        return True

    def delete_ended(self, older_than: timedelta, now: datetime) -> int:
        busy = {run.worker for run in self.runs.values()}
        gone = [name for name, one in self.workers.items() if one.ended_at is not None and one.ended_at <= now - older_than and name not in busy]
        for name in gone:
            del self.workers[name]
        return len(gone)

    def orphans(self) -> list[ModelRun]:
        alive = {name for name, one in self.workers.items() if one.is_alive}
        return [run for run in self.runs.values() if run.status is R and run.worker not in alive]

    def recover(self, now: datetime) -> list[RunStatus]:
        """Let the runs of workers that are gone go; return what becomes of each, in the order of their ids."""
        return [self._recover(run, now) for run in sorted(self.orphans(), key=lambda run: run.id)]

    def _recover(self, run: ModelRun, now: datetime) -> RunStatus:
        worker, delay = self.workers.get(run.worker or 0), timedelta()
        if worker is None or worker.end != "stopped":
            was_suspect = run.losses >= SUSPECT_AFTER_LOSSES and not run.has_progress
            run.recoveries, run.losses, run.strikes = run.recoveries + 1, 1 if run.has_progress else run.losses + 1, run.strikes + was_suspect
            run.has_progress = False
            if run.strikes >= STRIKES_MAX:
                self.end(run, DEAD, now)
                run.error, run.output = "outlast.WorkerLost", None
                return DEAD
            delay = timedelta() if run.losses < 2 else min(timedelta(seconds=2 ** (run.losses - 2)), RECOVERY_DELAY_MAX)
        is_delayed = bool(delay) and run.cancel_requested_at is None
        run.status, run.worker, run.due_at = W if is_delayed else P, None, now + delay if is_delayed else now
        if is_delayed:
            self.forget_named_waits(run)
        return run.status
