"""Reading: what people, handles and callers ask about runs. It changes nothing and needs no class of the user's."""

from collections.abc import Mapping, Sequence
from typing import Any

from outlast.database.transaction import Transaction
from outlast.ids import is_run_id
from outlast.native.encoding import failure_from_json, headers_from_json, texts_from_json
from outlast.native.store import RunFilter
from outlast.native.view import Activity, explained, open_views, record_view
from outlast.run import RunStatus, RunView, StepView
from outlast.step_key import StepKey

from .contexts import failed_attempt_from_row, read_parts, record_from_row, wait_from_row
from .parameters import SQL, array, step_key


class Reading:
    """The part of the store that answers."""

    def find_run(self, tx: Transaction, run_id: str) -> RunView | None:
        views = _views(tx, [run_id]) if is_run_id(run_id) else []
        return views[0] if views else None

    def find_key(self, tx: Transaction, kind: str, key: str) -> tuple[str, RunStatus | None] | None:
        row = tx.run(SQL["find_key"], {"kind": kind, "key": key}).first()
        return None if row is None else (row[0], None if row[1] is None else RunStatus(row[1]))

    def find_ended(self, tx: Transaction, run_ids: Sequence[str]) -> set[str]:
        known = array(run_id for run_id in run_ids if is_run_id(run_id))
        return set(run_ids) - {run_id for (run_id,) in tx.run(SQL["find_going"], {"runs": known}).all()}

    def list_runs(self, tx: Transaction, filter: RunFilter, limit: int, before: str | None) -> list[RunView]:
        asked = {"before": before, "status": filter.status, "kind": filter.kind, "queue": filter.queue, "limit": limit}
        return _views(tx, [run_id for (run_id,) in tx.run(SQL["list_run_ids"], asked).all()])

    def list_steps(self, tx: Transaction, run_id: str) -> list[StepView]:
        if not is_run_id(run_id):
            return []
        records = [record_from_row(row) for row in read_parts(tx, [run_id], "read_records")[0][run_id]]
        return [*map(record_view, records), *_opened(tx, {run_id: {record.key for record in records}})[run_id]]


def _views(tx: Transaction, run_ids: Sequence[str]) -> list[RunView]:
    rows = tx.run(SQL["find_run"], {"runs": array(run_ids)}).all() if run_ids else []
    opened = _opened(tx, _recorded(tx, [row[0] for row in rows if row[12] is None]))
    return [explained(_view(row), opened.get(row[0], []), is_queue_paused=row[25]) for row in rows]


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
    key, worker, input_text, output, error, cancel_reason, verdict, warnings, tags, headers, _is_paused = row[15:]
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
