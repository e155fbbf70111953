"""Reading: what people, handles and callers ask about runs. It changes nothing and needs no class of the user's."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from outlast.database.transaction import Transaction
from outlast.ids import is_run_id
from outlast.inspector import BoundedCount
from outlast.limits import LANE_COUNT_MAX
from outlast.native.encoding import failure_from_json, headers_from_json, texts_from_json
from outlast.native.lanes import Served, bounded, why_unserved
from outlast.native.mailbox import Question
from outlast.native.store import RunFilter
from outlast.native.view import Activity, explained, open_views, record_view, waiting_by_name
from outlast.native.why import Circumstances
from outlast.run import RunStatus, RunView, StepView
from outlast.step_key import StepKey

from .contexts import failed_attempt_from_row, read_parts, record_from_row, wait_from_row
from .mailbox import list_questions
from .parameters import SQL, array, step_key
from .serving import list_served

Row = tuple[Any, ...]


class Reading:
    """The part of the store that answers."""

    def find_run(self, tx: Transaction, run_id: str, now: datetime | None = None, *, explains: bool = True) -> RunView | None:
        rows = _rows(tx, [run_id], now) if is_run_id(run_id) else []
        if not rows:
            return None
        return _explained(tx, rows, now, _ahead(tx, rows[0]))[0] if explains else _view(rows[0])

    def find_key(self, tx: Transaction, kind: str, key: str) -> tuple[str, RunStatus | None] | None:
        row = tx.run(SQL["find_key"], {"kind": kind, "key": key}).first()
        return None if row is None else (row[0], None if row[1] is None else RunStatus(row[1]))

    def find_ended(self, tx: Transaction, run_ids: Sequence[str]) -> set[str]:
        known = array(run_id for run_id in run_ids if is_run_id(run_id))
        return set(run_ids) - {run_id for (run_id,) in tx.run(SQL["find_going"], {"runs": known}).all()}

    def list_runs(self, tx: Transaction, filter: RunFilter, limit: int, before: str | None, now: datetime | None = None) -> list[RunView]:
        asked = {"before": before, "status": filter.status, "kind": filter.kind, "queue": filter.queue, "limit": limit}
        return _explained(tx, _rows(tx, [run_id for (run_id,) in tx.run(SQL["list_run_ids"], asked).all()], now), now)

    def list_dead_letters(self, tx: Transaction, limit: int, before: tuple[datetime, str] | None, now: datetime | None = None) -> list[RunView]:
        at, last = (None, None) if before is None else before
        ids = [run_id for (run_id,) in tx.run(SQL["list_attention_ids"], {"at": at, "before": last, "limit": limit}).all()]
        return _explained(tx, _rows(tx, ids, now), now)

    def list_steps(self, tx: Transaction, run_id: str) -> list[StepView]:
        if not is_run_id(run_id):
            return []
        records = [record_from_row(row) for row in read_parts(tx, [run_id], "read_records")[0][run_id]]
        return [*map(record_view, records), *_opened(tx, {run_id: {record.key for record in records}})[run_id]]


def _rows(tx: Transaction, run_ids: Sequence[str], now: datetime | None) -> list[Row]:
    return tx.run(SQL["find_run"], {"runs": array(run_ids), "now": now}).all() if run_ids else []


def _ahead(tx: Transaction, row: Row) -> BoundedCount | None:
    """Return how many claimable runs of its lane come before one that is claimable itself."""
    run_id, status, priority, due_at, lane = row[0], row[4], row[6], row[13], row[26]
    if status != RunStatus.PENDING:
        return None
    asked = {"run": run_id, "lane": lane, "priority": priority, "due_at": due_at, "bound": LANE_COUNT_MAX + 1}
    return bounded(tx.run(SQL["count_ahead"], asked).all()[0][0])


def _explained(tx: Transaction, rows: Sequence[Row], now: datetime | None, ahead: BoundedCount | None = None) -> list[RunView]:
    """Return the views of runs with why each is where it is; what is over needs no further look."""
    going = [row[0] for row in rows if row[12] is None]
    opened = _opened(tx, _recorded(tx, going)) if going else {}
    served = list_served(tx, now) if going else frozenset()
    questions = list_questions(tx, waiting_by_name(opened))
    return [explained(_view(row), opened.get(row[0], []), _circumstances(row, served, ahead, questions)) for row in rows]


def _circumstances(row: Row, served: Collection[Served], ahead: BoundedCount | None, questions: Sequence[Question]) -> Circumstances:
    _, kind, version, queue, *_ = row
    is_paused, _lane, losses, is_holder_alive, is_holder_late, is_due = row[25:]
    unserved = why_unserved(queue, kind, version, served)
    asked = tuple(one for one in questions if one.run_id == row[0])
    return Circumstances(bool(is_paused), bool(is_due), losses, bool(is_holder_alive), bool(is_holder_late), unserved, ahead, asked)


def _recorded(tx: Transaction, run_ids: Sequence[str]) -> dict[str, set[StepKey]]:
    """Return which of the keys that failed or reported before have a record: those are over."""
    (recovered,) = read_parts(tx, run_ids, "list_recovered_keys")
    return {run_id: {step_key(path, name, number) for path, name, number in recovered[run_id]} for run_id in run_ids}


def _opened(tx: Transaction, recorded: Mapping[str, set[StepKey]]) -> dict[str, list[StepView]]:
    """Return what is open of each run, apart from the keys that are over."""
    failures, waits, activity = read_parts(tx, list(recorded), "read_failures", "read_waits", "read_progress")
    return {
        run_id: open_views(
            recorded[run_id],
            map(failed_attempt_from_row, failures[run_id]),
            map(wait_from_row, waits[run_id]),
            map(_activity, activity[run_id]),
        )
        for run_id in recorded
    }


def _activity(row: tuple[Any, ...]) -> Activity:
    path, name, number, attempt, started_at, done, total, note = row
    return Activity(step_key(path, name, number), attempt, started_at, done, total, note)


def _view(row: tuple[Any, ...]) -> RunView:
    run_id, kind, version, queue, status, generation, priority, attempts, recoveries, strikes, created, started, finished, due, deadline = row[:15]
    key, worker, input_text, output, error, cancel_reason, verdict, warnings, tags, headers = row[15:25]
    return RunView(
        id=run_id,
        kind=kind,
        version=version,
        queue=queue,
        status=RunStatus(status),
        why="",
        generation=generation,
        priority=priority,
        attempts=attempts,
        recoveries=recoveries,
        strikes=strikes,
        created_at=created,
        started_at=started,
        finished_at=finished,
        due_at=due,
        deadline_at=deadline,
        idempotency_key=key,
        worker=worker,
        input=input_text,
        output=("null" if output is None else output) if status == RunStatus.SUCCEEDED else None,
        error=failure_from_json(error),
        cancel_reason=cancel_reason,
        verdict=verdict,
        warnings=tuple(warnings),
        tags=texts_from_json(tags),
        headers=headers_from_json(headers),
        current_step=None,
        progress=None,
    )
