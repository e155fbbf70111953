"""ModelState: what a store keeps, as plain objects. No SQL, no clock: what the rules are is in `store_model` and `store_model_mail`."""

from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from outlast.decision import DecisionState
from outlast.native.history import Outcome, RecordKind
from outlast.native.store import LaneName
from outlast.run import RunStatus
from outlast.step_key import StepKey

Call = tuple[str, str, str, int]
"""A durable call of a run: run, path, name, number."""
State = dict[str, dict[Any, dict[str, Any]]]
"""Rows by table and by what identifies them, as both databases and the model give them."""


def call_of(run_id: str, key: StepKey) -> Call:
    return run_id, key.path_text, key.name, key.number


@dataclass
class ModelRun:
    """A run and its body."""

    id: str
    lane: LaneName
    priority: int
    status: RunStatus
    due_at: datetime | None
    created_at: datetime
    deadline_at: datetime | None
    input_digest: str
    idempotency_key: str | None
    worker: int | None = None
    token: int = 0
    cancel_requested_at: datetime | None = None
    attempts: int = 0
    recoveries: int = 0
    losses: int = 0
    strikes: int = 0
    started_at: datetime | None = None
    claimed_at: datetime | None = None
    finished_at: datetime | None = None
    output: str | None = None
    error: str | None = None
    """The type that it names."""
    failed_path: str | None = None
    failed_name: str | None = None
    failed_number: int | None = None
    retired_seq: int | None = None
    cancel_reason: str | None = None
    verdict: str | None = None
    has_progress: bool = False
    """Something was recorded since a worker was last lost. No column: each database counts it in its own way."""

    @property
    def is_over(self) -> bool:
        return self.status.is_terminal

    @property
    def failed_call(self) -> Call | None:
        if self.failed_name is None or self.failed_path is None or self.failed_number is None:
            return None
        return self.id, self.failed_path, self.failed_name, self.failed_number


@dataclass
class ModelStep:
    """A record."""

    seq: int
    kind: RecordKind
    outcome: Outcome
    attempts: int
    token: int
    started_at: datetime | None
    finished_at: datetime
    result: str | None
    error: str | None


@dataclass
class ModelFailure:
    """A failed attempt, or a record that was retired."""

    token: int
    started_at: datetime
    failed_at: datetime
    retry_at: datetime | None
    is_retired: bool
    error: str


@dataclass
class ModelWait:
    """What a run has parked for."""

    kind: RecordKind
    due_at: datetime | None
    topic: str | None
    after: int


@dataclass
class ModelSignal:
    """A signal, in the dictionary's order of the sends."""

    topic: str
    run: str | None
    payload: str | None
    payload_digest: str
    idempotency_key: str | None
    sent_at: datetime
    expires_at: datetime | None
    number: int | None = None
    """Counts what was ever numbered, from 1; each database has numbers of its own, and `Numbers` knows which is which."""
    is_delivered: bool = False

    def is_expired(self, now: datetime) -> bool:
        return self.expires_at is not None and self.expires_at <= now


@dataclass
class ModelWorker:
    """An incarnation of a worker."""

    lease: timedelta
    lease_until: datetime
    started_at: datetime
    beat: int = 1
    is_alive: bool = True
    ended_at: datetime | None = None
    end: str | None = None


@dataclass
class ModelKey:
    """Whose an idempotency key is."""

    run: str
    input_digest: str
    ended_status: RunStatus | None = None


@dataclass
class ModelDecision:
    """A question to a person."""

    run: str | None
    digest: str
    opened_at: datetime
    state: DecisionState = DecisionState.OPEN
    answer: str | None = None
    answered_at: datetime | None = None
    closed_at: datetime | None = None


class ModelState:
    """All rows. What is no column is left out of `rows`."""

    def __init__(self) -> None:
        self.runs: dict[str, ModelRun] = {}
        self.steps: dict[Call, ModelStep] = {}
        self.failures: dict[tuple[str, str, str, int, int], ModelFailure] = {}
        self.waits: dict[Call, ModelWait] = {}
        self.signals: dict[str, ModelSignal] = {}
        self.cursors: dict[tuple[str, str], int] = {}
        self.workers: dict[int, ModelWorker] = {}
        self.keys: dict[tuple[str, str], ModelKey] = {}
        self.decisions: dict[str, ModelDecision] = {}
        self.actions: set[tuple[datetime, str, str, str]] = set()
        self.last_number = 0

    def rows(self) -> State:
        """Return every row, in the form of `store_model_rows`."""
        runs = {(one.id,): _columns(one) for one in self.runs.values()}
        bodies = (
            "input_digest",
            "idempotency_key",
            "output",
            "error",
            "retired_seq",
            "cancel_reason",
            "verdict",
            "failed_path",
            "failed_name",
            "failed_number",
        )
        hidden = ("id", "has_progress", *bodies)
        return {
            "run": {key: {name: value for name, value in row.items() if name not in hidden} | _without_past(row) for key, row in runs.items()},
            "run_body": {key: {name: row[name] for name in bodies} for key, row in runs.items()},
            "run_key": {key: _columns(one) for key, one in self.keys.items()},
            "step": {key: _columns(one) for key, one in self.steps.items()},
            "step_failure": {key: _columns(one) for key, one in self.failures.items()},
            "wait": {key: _columns(one) for key, one in self.waits.items()},
            "signal": {(key,): _columns(one) for key, one in self.signals.items()},
            "cursor": {key: {"number": number} for key, number in self.cursors.items()},
            "worker": {(key,): {name: value for name, value in _columns(one).items() if name != "lease"} for key, one in self.workers.items()},
            "decision": {(key,): _columns(one) for key, one in self.decisions.items()},
            "action": {one: {} for one in self.actions},
        }


def _columns(one: Any) -> dict[str, Any]:
    return asdict(one)


def _without_past(run: dict[str, Any]) -> dict[str, Any]:
    """What a run had lost before it ended is of no consequence: a retry begins at nothing."""
    return {"losses": None} if run["finished_at"] is not None else {}
