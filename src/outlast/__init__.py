"""outlast: durable tasks for Python. The public names, and nothing else."""

from outlast.blocking import BlockingEngine, BlockingRun
from outlast.blocking_context import BlockingContext
from outlast.connect import connect, connect_ledger
from outlast.context import Context
from outlast.database.borrowed.remembering import transaction_tables
from outlast.effect import Attempt, Done, Effect, NotDone, Unsure, effect
from outlast.engine import Capabilities, TaskEngine
from outlast.errors import (
    CancelRequested,
    EffectError,
    EffectFailedError,
    FinalError,
    HistoryMismatchError,
    IdempotencyConflictError,
    LeaseLostError,
    LimitExceededError,
    NotSupportedError,
    OperationConflictError,
    OperationInProgressError,
    OperationUnsureError,
    OutlastError,
    PayloadError,
    ResultPrunedError,
    RetryLater,
    RunCanceledError,
    RunDeadError,
    RunError,
    RunFailedError,
    RunNotFoundError,
    SchemaError,
    SignalConflictError,
    StepFailedError,
    StepStuckError,
    UnavailableError,
    UnknownTaskError,
    UsageError,
    WaitTimeoutError,
)
from outlast.failure import Failure
from outlast.inspector import Inspector, OperationView, RunPage, WorkerView
from outlast.ledger.ledger import Ledger
from outlast.operator import Operator
from outlast.retry import FILES, NETWORK, RetryPolicy
from outlast.run import CancelOutcome, Progress, Run, RunStatus, RunView, StepView
from outlast.signal import Answer, Signal, SignalReceipt
from outlast.step import Step, step
from outlast.task import Task, task
from outlast.task_ref import TaskRef, task_ref
from outlast.this_step import StepAttempt, this_step

__all__ = [
    "FILES",
    "NETWORK",
    "Answer",
    "Attempt",
    "BlockingContext",
    "BlockingEngine",
    "BlockingRun",
    "CancelOutcome",
    "CancelRequested",
    "Capabilities",
    "Context",
    "Done",
    "Effect",
    "EffectError",
    "EffectFailedError",
    "Failure",
    "FinalError",
    "HistoryMismatchError",
    "IdempotencyConflictError",
    "Inspector",
    "LeaseLostError",
    "Ledger",
    "LimitExceededError",
    "NotDone",
    "NotSupportedError",
    "OperationConflictError",
    "OperationInProgressError",
    "OperationUnsureError",
    "OperationView",
    "Operator",
    "OutlastError",
    "PayloadError",
    "Progress",
    "ResultPrunedError",
    "RetryLater",
    "RetryPolicy",
    "Run",
    "RunCanceledError",
    "RunDeadError",
    "RunError",
    "RunFailedError",
    "RunNotFoundError",
    "RunPage",
    "RunStatus",
    "RunView",
    "SchemaError",
    "Signal",
    "SignalConflictError",
    "SignalReceipt",
    "Step",
    "StepAttempt",
    "StepFailedError",
    "StepStuckError",
    "StepView",
    "Task",
    "TaskEngine",
    "TaskRef",
    "UnavailableError",
    "UnknownTaskError",
    "Unsure",
    "UsageError",
    "WaitTimeoutError",
    "WorkerView",
    "connect",
    "connect_ledger",
    "effect",
    "step",
    "task",
    "task_ref",
    "this_step",
    "transaction_tables",
]
