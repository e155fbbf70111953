"""Planted bugs: faults that the checker must catch, put into a process of the load when it starts and never into the library.

A bug in a statement replaces a fragment of its real text, which must be there exactly once; a bug in code replaces a named
function. So one that does not fit the library any more fails loudly instead of planting nothing.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from outlast.database.statements import load_statements
from outlast.errors import CommitUnknownError, UsageError
from outlast.ids import run_id
from outlast.native import checkpoints, claimer, delivery, enqueuer
from outlast.native.postgres import claiming as postgres_claiming
from outlast.native.postgres import committing as postgres_committing
from outlast.native.sqlite import claiming as sqlite_claiming
from outlast.native.sqlite import committing as sqlite_committing
from outlast.native.store import StepCheckpoint

VARIABLE = "OUTLAST_CHAOS_PLANTED"
BOTH = ("postgres", "sqlite")


@dataclass(frozen=True)
class Edit:
    """A fragment of a statement's text, and what takes its place."""

    database: str
    statement: str
    fragment: str
    instead: str = ""


@dataclass(frozen=True)
class Plant:
    """One bug, and the invariants of which at least one must break."""

    what: str
    caught_by: tuple[str, ...]
    edits: tuple[Edit, ...] = ()
    code: Callable[[], None] | None = None
    databases: tuple[str, ...] = BOTH
    seconds: float = 0.0
    """Of chaos; 0 for the directed scenario."""
    options: dict[str, Any] = field(default_factory=dict)
    """Of the trial."""


def plant(name: str) -> None:
    """Put a bug into this process."""
    bug = PLANTED[name]
    for edit in bug.edits:
        statements = load_statements(f"outlast.native.{edit.database}")
        statements[edit.statement] = edited(statements, edit)
    if bug.code is not None:
        bug.code()


def edited(statements: dict[str, str], edit: Edit) -> str:
    """Return the text with the bug in it."""
    count = statements[edit.statement].count(edit.fragment)
    if count != 1:
        raise AssertionError(f"the fragment {edit.fragment!r} is {count} times in {edit.statement} of {edit.database}: the planted bug is stale")
    return statements[edit.statement].replace(edit.fragment, edit.instead)


def plant_from_environment() -> None:
    if name := os.environ.get(VARIABLE):
        plant(name)


def _replace(owner: Any, name: str, instead: Any) -> None:
    if not hasattr(owner, name):
        raise AssertionError(f"{owner} has no {name} any more: the planted bug is stale")
    setattr(owner, name, instead)


# --- bugs in code ----------------------------------------------------------------------------------------------------------
def _no_fence() -> None:
    for module in (postgres_claiming, sqlite_claiming):
        _replace(module.Claiming, "fence", lambda self, tx, worker_id: None)


def _swallow_refusals() -> None:
    for module in (postgres_committing, sqlite_committing):
        commit = module.Committing.commit_checkpoints

        def swallowing(self: Any, tx: Any, group: Any, now: Any = None, commit: Any = commit) -> Any:
            commit(self, tx, group, now)
            return list

        _replace(module.Committing, "commit_checkpoints", swallowing)


def _unknown_is_success() -> None:
    async def resolve(self: Any, group: Any) -> list[Any]:
        self._end(group, checkpoints.Landing.KEPT)
        return []

    _replace(checkpoints.Checkpoints, "_resolve", resolve)


def _hand_over_early() -> None:
    add = checkpoints.Checkpoints.add

    def adding(self: Any, checkpoint: Any, on_end: Any) -> None:
        if not isinstance(checkpoint, StepCheckpoint):
            add(self, checkpoint, on_end)
            return
        asyncio.get_running_loop().call_soon(on_end, checkpoints.Landing.KEPT, None)
        add(self, checkpoint, lambda landing, error: None)

    _replace(checkpoints.Checkpoints, "add", adding)


def _unknown_enqueue_is_failure() -> None:
    record = enqueuer.Enqueuer._record

    async def recording(self: Any, group: Any) -> Any:
        try:
            return await record(self, group)
        except CommitUnknownError as error:
            raise UsageError(f"the enqueue failed: {error}") from error

    _replace(enqueuer.Enqueuer, "_record", recording)


def _unknown_enqueue_is_tried_anew() -> None:
    record = enqueuer.Enqueuer._record

    async def recording(self: Any, group: Any) -> Any:
        try:
            return await record(self, group)
        except CommitUnknownError:
            for one in group:
                one.run = replace(one.run, id=run_id())
            raise

    _replace(enqueuer.Enqueuer, "_record", recording)


def _never_rest() -> None:
    for module in (claimer, delivery):
        _replace(module, "IDLE_POLL", timedelta(milliseconds=50))


# --- the list --------------------------------------------------------------------------------------------------------------
PLANTED: dict[str, Plant] = {
    "token_at_least": Plant(
        "a record of an older claim is taken",
        ("S10", "S5"),
        (
            Edit("postgres", "insert_records", "r.token = b.token", "r.token >= b.token"),
            Edit("sqlite", "insert_records", "run.token = value ->> 'token'", "run.token >= value ->> 'token'"),
        ),
    ),
    "claim_without_recheck": Plant(
        "what was pending when it was looked at is claimed without another look",
        ("S11",),
        (
            Edit("postgres", "claim_runs", " AND r.status = wanted.status AND r.due_at <= wanted.now"),
            Edit("sqlite", "claim_runs", " AND run.status = 'pending' AND run.due_at <= :now"),
        ),
    ),
    "token_not_raised": Plant(
        "a claim brings the token that the last one had",
        ("S9",),
        (
            Edit("postgres", "claim_runs", "token = r.token + 1", "token = greatest(r.token, 1)"),
            Edit("sqlite", "claim_runs", "token = token + 1", "token = max(token, 1)"),
        ),
    ),
    "result_replaced": Plant(
        "a record that meets one of its key takes its place",
        ("S3",),
        (
            Edit(
                "postgres",
                "insert_records",
                "RETURNING run, outlast.step.token",
                "ON CONFLICT (run, generation, path, name, number) DO UPDATE SET result = excluded.result RETURNING run, outlast.step.token",
            ),
            Edit(
                "sqlite",
                "insert_records",
                "AND run.status = 'running'",
                "AND run.status = 'running' ON CONFLICT (run, generation, path, name, number) DO UPDATE SET result = excluded.result",
            ),
        ),
    ),
    "renewal_by_a_dead_worker": Plant(
        "a worker that was ended can renew its lease",
        ("S12",),
        (Edit("postgres", "renew_worker", " AND w.is_alive"), Edit("sqlite", "renew_worker", " AND is_alive = 1")),
    ),
    "no_fence": Plant("a worker that was ended can write as long as nobody has its runs", ("S10",), code=_no_fence),
    "silent_too_early": Plant(
        "a worker is called silent while its lease lasts",
        ("S11",),
        (
            Edit("postgres", "end_worker", "AND (NOT %(is_silent)s::boolean OR w.lease_until < clock.now)"),
            Edit("sqlite", "end_worker", " AND (NOT :is_silent OR lease_until < :now)"),
        ),
    ),
    "cancel_ignored": Plant(
        "a body that ends after the cancel was accepted succeeds",
        ("S18",),
        (
            Edit("postgres", "change_runs", " AND (r.cancel_requested_at IS NULL OR b.passes_cancel)"),
            Edit("sqlite", "end_runs", "AND (outlast_run.cancel_requested_at IS NULL OR new.passes_cancel)"),
        ),
    ),
    "refusals_swallowed": Plant("what the database refused is reported as written", ("S13",), code=_swallow_refusals),
    "key_taken_twice": Plant(
        "who comes with a key that is taken takes it over",
        ("S22",),
        (
            Edit(
                "postgres",
                "insert_runs",
                "SELECT outlast.accept_runs(%(batch)s::json, %(count)s::bigint",
                "WITH freed AS (DELETE FROM outlast.run_key k USING json_to_recordset(%(batch)s::json) AS b(kind text, idempotency_key text)"
                " WHERE k.kind = b.kind AND k.key = b.idempotency_key RETURNING 1)"
                " SELECT outlast.accept_runs(%(batch)s::json, %(count)s::bigint + 0 * (SELECT count(*) FROM freed)",
            ),
            Edit("sqlite", "insert_keys", "DO NOTHING", "DO UPDATE SET run = excluded.run"),
        ),
    ),
    "waits_left_behind": Plant(
        "a run that is over keeps its waits",
        ("S29",),
        (
            Edit(
                "postgres",
                "change_runs",
                "DELETE FROM outlast.wait w USING changed c(run) WHERE",
                "DELETE FROM outlast.wait w USING changed c(run) WHERE false AND",
            ),
            Edit("sqlite", "delete_waits", "WHERE", "WHERE false AND"),
        ),
    ),
    "unknown_commit_taken_for_success": Plant(
        "a worker takes every commit whose answer was lost for done", ("S4", "S8", "S13"), code=_unknown_is_success, databases=("postgres",), seconds=40
    ),
    "unknown_commit_taken_for_failure": Plant(
        "an enqueue whose answer was lost is reported as failed", ("S21",), code=_unknown_enqueue_is_failure, databases=("postgres",), seconds=40
    ),
    "unknown_enqueue_tried_anew": Plant(
        "an enqueue whose answer was lost is repeated as another run", ("S21",), code=_unknown_enqueue_is_tried_anew, databases=("postgres",), seconds=40
    ),
    "handed_before_the_commit": Plant("a body goes on before its record is durable", ("S4",), code=_hand_over_early, seconds=10),
    "last_record_forgotten": Plant(
        "a history is read that is older than the claim",
        ("S3",),
        (
            Edit(
                "postgres",
                "read_records",
                "s.generation = r.generation",
                "s.generation = r.generation AND s.seq < (SELECT max(x.seq) FROM outlast.step x WHERE x.run = r.id)",
            ),
            Edit(
                "sqlite",
                "read_records",
                "step.generation = value ->> 'generation'",
                "step.generation = value ->> 'generation' AND step.seq < (SELECT max(x.seq) FROM outlast_run_step AS x WHERE x.run = step.run)",
            ),
        ),
        seconds=12,
        options={"settle_seconds": 20},
    ),
    "timers_never_wake": Plant(
        "what sleeps is never woken",
        ("L1",),
        (
            Edit("postgres", "wake_due", "WHERE r.status = 'waiting' AND", "WHERE false AND r.status = 'waiting' AND"),
            Edit("sqlite", "wake_due", "WHERE status = 'waiting' AND", "WHERE false AND status = 'waiting' AND"),
        ),
        seconds=10,
        options={"settle_seconds": 15},
    ),
    "orphans_left": Plant(
        "what a dead worker held is never found",
        ("L1", "L4"),
        (
            Edit("postgres", "list_orphans", "AND w.is_alive IS NOT TRUE", "AND w.is_alive IS NOT TRUE AND false"),
            Edit("sqlite", "list_orphans", "AND worker.is_alive IS NOT 1", "AND worker.is_alive IS NOT 1 AND false"),
        ),
        seconds=15,
        options={"settle_seconds": 20},
    ),
    "never_at_rest": Plant("an idle worker looks again at once", ("L8",), code=_never_rest, seconds=4, options={"is_idle_measured": True, "has_faults": False}),
}
