"""Rows: an operation and its attempts as both stores select them, in one order of columns, and what may be stored at all.

Instants and spans are Python's own here; what the database keeps instead is the store's business.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from outlast.database.transaction import Refusal, RefusedError
from outlast.failure import Failure

from .operation import ALLOWED, OUTCOMES, AttemptOutcome, Operation, OperationAttempt, OperationChange, OperationName, OperationStatus, Owner, Plan

Row = Sequence[Any]
PLANNED_AT, CHANGED_AT, STARTED_AT, TIMEOUT, SETTLE, LEASE_UNTIL, ENDED_AT = 15, 16, 5, 6, 7, 8, 10
"""Where instants and spans stand: the first two in an operation's row, the others in an attempt's."""
OPERATION_COLUMNS = 17

_encode = msgspec.json.Encoder().encode
_failure = msgspec.json.Decoder(Failure).decode


def operation_from_row(row: Row, attempt: OperationAttempt | None, now: datetime) -> Operation:
    """Return an operation from: effect, key, status, arguments, digest, run, generation, step, token, worker, attempt's number, result,
    error, reconciles, decision, planned_at, changed_at."""
    effect, key, status, arguments, digest, run, generation, step, token, worker, _, result, error, reconciles, decision, planned_at, changed_at = row
    return Operation(
        OperationName(effect, key),
        OperationStatus(status),
        arguments or "",
        digest,
        Owner(run, generation, step, token, worker),
        planned_at,
        changed_at,
        now,
        attempt,
        result,
        failure_from_json(error),
        reconciles,
        decision,
    )


def attempt_from_row(row: Row) -> OperationAttempt | None:
    """Return an attempt from: number, token, run, run_token, worker, started_at, timeout, settle, lease_until, outcome, ended_at, error, late,
    lingers.

    None where there is no attempt, and every column is null.
    """
    number, token, run, run_token, worker, started_at, timeout, settle, lease_until, outcome, ended_at, error, late, lingers = row
    if number is None:
        return None
    word = None if outcome is None else AttemptOutcome(outcome)
    return OperationAttempt(
        number, token, run, run_token, worker, started_at, timeout, settle, lease_until, word, ended_at, failure_from_json(error), late, bool(lingers)
    )


def name_columns(name: OperationName) -> dict[str, Any]:
    return {"effect": _storable(name.effect), "key": _storable(name.key)}


def owner_columns(owner: Owner) -> dict[str, Any]:
    return {"run": _storable(owner.run), "generation": owner.generation, "step": _storable(owner.step), "token": owner.token, "worker": owner.worker}


def plan_columns(plan: Plan) -> dict[str, Any]:
    return name_columns(plan.name) | owner_columns(plan.owner) | {"arguments": _storable(plan.arguments) or None, "digest": _storable(plan.digest)}


def held_columns(change: OperationChange) -> dict[str, Any]:
    """Return what has to be there for a change: the owner's claim and the current attempt."""
    return name_columns(change.name) | owner_columns(change.owner) | {"attempt": change.attempt}


def change_columns(change: OperationChange) -> dict[str, Any]:
    """Return what a change writes; from which states it may come is `found_states`."""
    return held_columns(change) | {
        "status": ALLOWED[change.change][1],
        "outcome": OUTCOMES.get(change.change),
        "result": None if change.result is None else _storable(change.result),
        "error": failure_to_json(change.error),
        "decision": None if change.decision is None else _storable(change.decision),
    }


def late_columns(name: OperationName, attempt: int, token: int, late: str) -> dict[str, Any]:
    return name_columns(name) | {"attempt": attempt, "token": token, "late": _storable(late)}


def found_states(change: OperationChange) -> list[OperationStatus]:
    return sorted(ALLOWED[change.change][0])


def names_to_json(names: Sequence[OperationName]) -> str:
    return _encode([name_columns(name) for name in names]).decode()


def failure_to_json(failure: Failure | None) -> str | None:
    return None if failure is None else _encode(failure).decode()


def failure_from_json(text: str | None) -> Failure | None:
    return None if text is None else _failure(text)


def _storable(text: str) -> str:
    """Return the text; RefusedError for what one of the databases would not take, so that both take the same."""
    if "\0" in text:
        raise RefusedError(Refusal.DATA, f"{text!r:.80}: a text with a NUL character cannot be stored")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise RefusedError(Refusal.DATA, f"{text!a:.80}: a text with a lone surrogate cannot be stored") from error
    return text
