"""The grammar of a run: history in, decisions out.

Theory of operation. A body is code that asks, through `Context`, for durable calls; each has a `StepKey`. `Replay`
holds what is recorded and answers three questions. What does this call find: a record, or nothing? Which record does
the body get next? Does this code still fit this history?

1. Records are handed over one at a time, each at a standstill of the body, the lowest `seq` among those that the body
   awaits first. That is so for a replay and for the first execution alike: a record that has become durable waits its
   turn in the same heap, and not before every lower `seq` is durable too. So racing code takes the same way again.
2. A call that finds nothing is performed, but not before the body has been handed all that it awaits: until then other
   branches may still show that the code changed, and then nothing must have been performed.
3. The code does not fit when a call finds nothing although its own path has a finished record that was not asked for
   (the call was inserted, renamed or moved), when what is found is of another kind or has other arguments, and when
   the body ends, or stands still with nothing left to hand over, before everything recorded was asked for. A durable
   time-out is exempt from the first rule: while it is open it has no record, and what is recorded lies inside it.
4. Records behind a retired one were made by code that had seen another outcome: they are used if asked for, and never
   missed.

House rules: no clock, no I/O, no randomness, no asyncio; a method either answers or raises `HistoryMismatchError`,
after which the object is not asked again.
"""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass
from enum import Enum, auto

from outlast.errors import HistoryMismatchError
from outlast.step_key import StepKey

from .history import FailedAttempt, History, LastProgress, Outcome, Record, RecordKind, Wait

_BOUND_BY_ARGUMENTS = (RecordKind.TRANSACTION, RecordKind.EFFECT)
"""What was done with other arguments is another thing, and never passes for this one."""


class Found(Enum):
    """What a call finds when it is first awaited."""

    RECORD = auto()
    """It is recorded, and handed over when its turn comes."""
    GIVEN_UP = auto()
    """The body withdrew from it before, and must do so again: it is never performed and never handed over."""
    NOTHING = auto()
    """Perform it now."""
    NOTHING_YET = auto()
    """Perform it when `next_record` has nothing more to hand over."""


@dataclass(frozen=True, slots=True)
class OpenCall:
    """What is remembered of a call that has no record."""

    failures: tuple[FailedAttempt, ...] = ()
    wait: Wait | None = None
    progress: LastProgress | None = None

    @property
    def attempts(self) -> int:
        """Attempts that count against the policy."""
        return sum(not failure.is_retired for failure in self.failures)

    @property
    def last_attempt(self) -> int:
        """The number of the last attempt ever made."""
        return max((failure.attempt for failure in self.failures), default=0)


NOT_STARTED = OpenCall()
_NOTHING, _GIVEN_UP = Found.NOTHING, Outcome.GIVEN_UP  # at every step, and the look-up of a member is slow before Python 3.12


class Replay:
    """One execution of a body against its history."""

    def __init__(self, history: History) -> None:
        self._records = {record.key: record for record in history.records}
        self._unasked = Counter([key.path for key in self._records])
        self._handed_limit = history.retired_seq
        self._binding_count = sum(self._is_binding(record) for record in history.records)
        self._ready: list[tuple[int, Record]] = []
        self._withdrawn: set[StepKey] = set()
        self._in_flight: list[int] = []
        self._landed: set[int] = set()
        self._next_seq = max((record.seq for record in history.records), default=-1) + 1
        if history.retired_seq is not None:
            self._next_seq = max(self._next_seq, history.retired_seq + 1)
        self._live_seq = self._next_seq
        self._names: Counter[str] | None = None
        self._history = history
        self._open = _open_calls(history) if history.failures or history.waits or history.progress else {}
        self._unasked_open = set(self._open)
        self.warnings: list[str] = []

    # --- asking ------------------------------------------------------------------------------------------------------
    @property
    def is_replaying(self) -> bool:
        """True while something that an earlier execution recorded, or left open, has not been reached again."""
        return self._binding_count > 0 or bool(self._unasked_open) or (bool(self._ready) and self._ready[0][0] < self._live_seq)

    def ask(self, key: StepKey, kind: RecordKind, digest: str, *, is_inserted: bool = False) -> Found:
        """Answer what a call finds. Each key is asked for once."""
        self._unasked_open.discard(key)
        if not self._records:
            return Found.NOTHING_YET if self._ready else _NOTHING
        record = self._records.pop(key, None)
        if record is None:
            if not is_inserted and kind is not RecordKind.TIMEOUT and self._unasked[key.path]:
                self._refuse_insertion(key)
            return Found.NOTHING_YET
        self._unasked[key.path] -= 1
        self._binding_count -= self._is_binding(record)
        self._check(record, kind, digest)
        if record.outcome is Outcome.GIVEN_UP:
            return Found.GIVEN_UP
        heapq.heappush(self._ready, (record.seq, record))
        return Found.RECORD

    def open_call(self, key: StepKey) -> OpenCall:
        """Return what earlier executions left of a call that has no record."""
        return self._open.get(key, NOT_STARTED)

    def _check(self, record: Record, kind: RecordKind, digest: str) -> None:
        if record.kind is not kind:
            raise HistoryMismatchError(f"{record.key} as a {record.kind}", f"{record.key} as a {kind}")
        if record.digest == digest or record.outcome is Outcome.GIVEN_UP:
            return
        if self._is_binding(record) and (kind in _BOUND_BY_ARGUMENTS or self._occurrences(record.key.name) > 1):
            recorded, given = record.digest or "of none", digest or "of none"
            raise HistoryMismatchError(f"{record.key} with other arguments (digest {recorded})", f"{record.key} with digest {given}")
        self.warnings.append(f"step {record.key} was recorded with other arguments; its recorded result was used")

    def _occurrences(self, name: str) -> int:
        if self._names is None:
            self._names = Counter(record.key.name for record in self._history.records)
        return self._names[name]

    def _refuse_insertion(self, key: StepKey) -> None:
        missed = [record for record in self._records.values() if record.key.path == key.path and self._is_binding(record)]
        if missed:
            raise HistoryMismatchError(f"{min(missed, key=lambda record: record.seq).key} at this point", str(key))

    def _is_binding(self, record: Record) -> bool:
        return self._handed_limit is None or record.seq < self._handed_limit

    # --- handing over ------------------------------------------------------------------------------------------------
    def next_record(self) -> Record | None:
        """Return the record that the body gets next, at a standstill; None when it is not durable yet or there is none."""
        while self._ready:
            seq, record = self._ready[0]
            if self._in_flight and self._in_flight[0] < seq:
                return None
            heapq.heappop(self._ready)
            if record.key not in self._withdrawn:
                return record
        return None

    @property
    def has_ready(self) -> bool:
        """True while a record that the body awaits has not been handed over."""
        return bool(self._ready)

    @property
    def has_in_flight(self) -> bool:
        """True while a record has joined a flush and is not known to be durable."""
        return bool(self._in_flight)

    def find_ready(self, key: StepKey) -> Record | None:
        """Return the durable record of a call that was not handed over yet."""
        return next((record for _, record in self._ready if record.key == key), None)

    def join_flush(self) -> int:
        """Return the `seq` of a record that joins a flush now."""
        seq = self._next_seq
        self._next_seq += 1
        self._in_flight.append(seq)  # the highest so far, so that the heap stays one
        return seq

    def leave_flush(self, seq: int) -> None:
        """Take note that nothing will be recorded under a `seq` that was given."""
        self._in_flight.remove(seq)
        heapq.heapify(self._in_flight)
        self._drop_landed()

    def land(self, record: Record) -> None:
        """Take note that a record is durable; the body gets it in its turn."""
        if not self._landed and self._in_flight and self._in_flight[0] == record.seq:
            heapq.heappop(self._in_flight)
        else:
            self._landed.add(record.seq)
            self._drop_landed()
        if record.outcome is not _GIVEN_UP:
            heapq.heappush(self._ready, (record.seq, record))

    def _drop_landed(self) -> None:
        while self._in_flight and self._in_flight[0] in self._landed:
            self._landed.discard(heapq.heappop(self._in_flight))

    def withdraw(self, key: StepKey) -> None:
        """Take note that the body does not await this call any more: its record is not handed over."""
        self._withdrawn.add(key)

    # --- ending ------------------------------------------------------------------------------------------------------
    def check_end(self) -> None:
        """Raise unless everything recorded was asked for: what a body's end has to pass."""
        missed = self.find_missed()
        if missed is not None:
            raise HistoryMismatchError(f"{missed.key}, which is recorded", "the end of the body")

    def find_missed(self) -> Record | None:
        """Return the first record that was not asked for and has to be; at a standstill with nothing to hand over that shows changed code."""
        if not self._binding_count:
            return None
        return min((record for record in self._records.values() if self._is_binding(record)), key=lambda record: record.seq)


def _open_calls(history: History) -> dict[StepKey, OpenCall]:
    recorded = {record.key for record in history.records}
    waits = {wait.key: wait for wait in history.waits}
    progress = {report.key: report for report in history.progress}
    failures: dict[StepKey, list[FailedAttempt]] = {}
    for failure in history.failures:
        failures.setdefault(failure.key, []).append(failure)
    keys = (failures.keys() | waits.keys() | progress.keys()) - recorded
    return {key: OpenCall(tuple(failures.get(key, ())), waits.get(key), progress.get(key)) for key in keys}
