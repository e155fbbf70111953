"""Reading: what people, handles and callers ask about runs. It changes nothing and needs no class of the user's."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from outlast.database.sqlite.instant import from_number, from_number_or_none, to_number
from outlast.database.transaction import Transaction
from outlast.inspector import BoundedCount
from outlast.limits import LANE_COUNT_MAX
from outlast.native.encoding import batch_to_json, failure_from_json, headers_from_json, texts_from_json
from outlast.native.lanes import Served, bounded, why_unserved
from outlast.native.mailbox import Question
from outlast.native.store import RunFilter
from outlast.native.view import Activity, explained, open_views, record_view, waiting_by_name
from outlast.native.why import Circumstances
from outlast.run import RunStatus, RunView, StepView
from outlast.step_key import StepKey, parse_path

from .contexts import failed_attempt_from_row, record_from_row, wait_from_row
from .mailbox import Mailbox
from .serving import Serving

Row = tuple[Any, ...]
_LISTED_BY = {
    RunStatus.PENDING: "list_pending_ids",
    RunStatus.RUNNING: "list_running_ids",
    RunStatus.FAILED: "list_dead_letter_ids",
    RunStatus.DEAD: "list_dead_letter_ids",
}

_AFTER_ALL = (1 << 63) - 1


class Reading(Mailbox, Serving):
    """The part of the store that answers."""

    def find_run(self, tx: Transaction, run_id: str, now: datetime | None = None, *, explains: bool = True) -> RunView | None:
        at = self._now(now)
        rows = self._rows(tx, [run_id], at)
        if not rows:
            return None
        return self._explained(tx, rows, at, self._ahead(tx, rows[0]))[0] if explains else _view(rows[0])

    def find_key(self, tx: Transaction, kind: str, key: str) -> tuple[str, RunStatus | None] | None:
        row = tx.run(self._sql["find_key"], {"kind": kind, "key": key}).first()
        return None if row is None else (row[0], None if row[1] is None else RunStatus(row[1]))

    def find_ended(self, tx: Transaction, run_ids: Sequence[str]) -> set[str]:
        going = {run_id for (run_id,) in tx.run(self._sql["find_going"], {"run_ids": batch_to_json(run_ids)}).all()}
        return set(run_ids) - going

    def list_runs(self, tx: Transaction, filter: RunFilter, limit: int, before: str | None, now: datetime | None = None) -> list[RunView]:
        statement = _LISTED_BY.get(filter.status, "list_run_ids") if filter.status is not None else "list_run_ids"
        asked = {"before": before, "status": filter.status, "kind": filter.kind, "queue": filter.queue, "limit": limit}
        at = self._now(now)
        return self._explained(tx, self._rows(tx, [run_id for (run_id,) in tx.run(self._sql[statement], asked).all()], at), at)

    def list_dead_letters(self, tx: Transaction, limit: int, before: tuple[datetime, str] | None, now: datetime | None = None) -> list[RunView]:
        at, last = (_AFTER_ALL, "") if before is None else (to_number(before[0]), before[1])
        ids = [run_id for (run_id,) in tx.run(self._sql["list_attention_ids"], {"at": at, "before": last, "limit": limit}).all()]
        now_number = self._now(now)
        return self._explained(tx, self._rows(tx, ids, now_number), now_number)

    def list_steps(self, tx: Transaction, run_id: str) -> list[StepView]:
        generation = tx.run(self._sql["find_generation"], {"run": run_id}).first()
        if generation is None:
            return []
        runs = batch_to_json([{"run": run_id, "generation": generation[0]}])
        records = [record_from_row(row[1:]) for row in tx.run(self._sql["read_records"], {"runs": runs}).all()]
        recorded = {record.key for record in records}
        return [*map(record_view, records), *self._opened(tx, runs, {run_id: recorded})[run_id]]

    def _rows(self, tx: Transaction, run_ids: Sequence[str], now: int) -> list[Row]:
        return tx.run(self._sql["find_run"], {"run_ids": batch_to_json(run_ids), "now": now}).all()

    def _ahead(self, tx: Transaction, row: Row) -> BoundedCount | None:
        """Return how many claimable runs of its lane come before one that is claimable itself."""
        run_id, status, priority, due_at, lane = row[0], row[4], row[6], row[13], row[26]
        if status != RunStatus.PENDING:
            return None
        asked = {"run": run_id, "lane": lane, "priority": priority, "due_at": due_at, "bound": LANE_COUNT_MAX + 1}
        return bounded(tx.run(self._sql["count_ahead"], asked).all()[0][0])

    def _explained(self, tx: Transaction, rows: Sequence[Row], now: int, ahead: BoundedCount | None = None) -> list[RunView]:
        """Return the views of runs with why each is where it is; what is over needs no further look."""
        going = [{"run": row[0], "generation": row[5]} for row in rows if row[12] is None]
        opened = self._opened(tx, batch_to_json(going), self._recorded(tx, batch_to_json(going))) if going else {}
        served = self._served(tx, now) if going else frozenset()
        questions = self.list_questions(tx, waiting_by_name(opened))
        return [explained(_view(row), opened.get(row[0], []), _circumstances(row, served, ahead, questions)) for row in rows]

    def _recorded(self, tx: Transaction, runs: str) -> dict[str, set[StepKey]]:
        """Return which of the keys that failed before, and are not retired, have a record: those are over."""
        recorded: dict[str, set[StepKey]] = defaultdict(set)
        for run_id, path, name, number in tx.run(self._sql["list_recovered_keys"], {"runs": runs}).all():
            recorded[run_id].add(StepKey(parse_path(path), name, number))
        return recorded

    def _opened(self, tx: Transaction, runs: str, recorded: dict[str, set[StepKey]]) -> dict[str, list[StepView]]:
        failures, waits, activity = (self._rows_of_runs(tx, name, runs) for name in ("read_failures", "read_waits", "read_progress"))
        return defaultdict(
            list,
            {
                run_id: open_views(
                    recorded.get(run_id, set()),
                    map(failed_attempt_from_row, failures[run_id]),
                    map(wait_from_row, waits[run_id]),
                    map(_activity, activity[run_id]),
                )
                for run_id in {*failures, *waits, *activity}
            },
        )


def _activity(row: tuple[Any, ...]) -> Activity:
    path, name, number, attempt, started_at, done, total, note = row
    return Activity(StepKey(parse_path(path), name, number), attempt, from_number(started_at), done, total, note)


def _circumstances(row: Row, served: Collection[Served], ahead: BoundedCount | None, questions: Sequence[Question]) -> Circumstances:
    _, kind, version, queue, *_ = row
    is_paused, _lane, losses, is_holder_alive, is_holder_late, is_due = row[25:]
    unserved = why_unserved(queue, kind, version, served)
    asked = tuple(one for one in questions if one.run_id == row[0])
    return Circumstances(bool(is_paused), bool(is_due), losses, bool(is_holder_alive), bool(is_holder_late), unserved, ahead, asked)


def _view(row: Row) -> RunView:
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
        created_at=from_number(created),
        started_at=from_number_or_none(started),
        finished_at=from_number_or_none(finished),
        due_at=from_number_or_none(due),
        deadline_at=from_number_or_none(deadline),
        idempotency_key=key,
        worker=worker,
        input=input_text,
        output=("null" if output is None else output) if status == RunStatus.SUCCEEDED else None,
        error=failure_from_json(error),
        cancel_reason=cancel_reason,
        verdict=verdict,
        warnings=texts_from_json(warnings),
        tags=texts_from_json(tags),
        headers=headers_from_json(headers),
        current_step=None,
        progress=None,
    )
