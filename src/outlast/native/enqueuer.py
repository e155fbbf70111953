"""Enqueuer: enqueues of many callers at once, gathered into one transaction.

Theory of operation. As with checkpoints, one transaction is under way at a time and calls gather meanwhile, so fifty
callers at once cost one commit. While more waits than one transaction takes there are two, so that neither this process
nor the database waits for the other; both take keys in the same order. A call is answered when its runs are committed,
and raises within its time-out if they cannot be. Two calls with one key never share a transaction: the second waits for
the next, or for the key in the database, and meets the first's run.
A run whose key somebody's open transaction has waits for him apart from the others.
When the outcome of a commit is unknown the runs are accepted again under the same ids: what is there already says so.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from outlast.database.transaction import Answer, Refusal, RefusedError, Transaction
from outlast.errors import CommitUnknownError, OutlastError, UnavailableError
from outlast.limits import ENQUEUE_TIMEOUT, GROUP_BYTES_MAX, GROUP_RECORDS_MAX

from .calls import Backoff, is_passing
from .runtime import Runtime
from .store import Accepted, NewRun
from .waking import Waking

_FLUSHES_MAX = 2  # the client's work on a full group and the database's take about the same time


@dataclass(slots=True)
class _Call:
    """One call: it is answered when all of its runs are, or with the first error of any."""

    future: asyncio.Future[list[Accepted]]
    gives_up_at: float
    answers: list[Any]
    left: int

    def answer(self, place: int, answer: Accepted) -> None:
        self.answers[place] = answer
        self.left -= 1
        if not self.left:
            self.future.set_result(self.answers)


@dataclass(slots=True)
class _Asked:
    run: NewRun
    call: _Call
    place: int
    is_aside: bool = False
    is_in_flight: bool = False
    is_in_doubt: bool = False
    """A try ended unknown, so that no later failure may say that nothing was written."""

    @property
    def is_over(self) -> bool:
        """It was answered, or nobody waits for it any more."""
        return self.call.answers[self.place] is not None or self.call.future.done()


class Enqueuer:
    """The enqueues of one engine."""

    def __init__(self, runtime: Runtime, waking: Waking) -> None:
        self._runtime = runtime
        self._waking = waking
        self._waiting: deque[_Asked] = deque()
        self._flush_count = 0

    async def accept(self, runs: list[NewRun], timeout: timedelta = ENQUEUE_TIMEOUT) -> list[Accepted]:
        """Accept runs and return what became of each. Raises `UnavailableError` within the time-out."""
        if not runs:
            return []
        loop, seconds = asyncio.get_running_loop(), timeout.total_seconds()
        call = _Call(loop.create_future(), self._runtime.monotonic() + seconds, [None] * len(runs), len(runs))
        asked = [_Asked(run, call, place) for place, run in enumerate(runs)]
        self._waiting.extend(asked)
        self._begin_flushes()
        reason = f"the database did not accept the run within {seconds:g} s"
        alarm = loop.call_later(seconds + 1.0, lambda: _refuse(asked, _given_up(asked, reason)))  # it hangs, or it would have been told
        try:
            return await call.future
        finally:
            alarm.cancel()

    def _begin_flushes(self) -> None:
        """One is under way for what comes by and by; while more than its group waits, another, so that one is put together as the other is written."""
        wanted = 1 if len(self._waiting) <= GROUP_RECORDS_MAX else _FLUSHES_MAX
        while self._flush_count < wanted:
            self._flush_count += 1
            self._runtime.spawn(self._flush())

    async def _flush(self) -> None:
        group: list[_Asked] = []
        try:
            while self._waiting:
                group = self._take()
                await self._write(group)
        finally:
            self._flush_count -= 1
            left = [*group, *self._waiting]
            self._waiting.clear()
            self._say_closed([one for one in left if not one.is_aside])

    def _take(self) -> list[_Asked]:
        """Take what goes into one transaction: bounded, and no key twice."""
        group: list[_Asked] = []
        later: list[_Asked] = []
        keys: set[tuple[str, str]] = set()
        size = 0
        while self._waiting and len(group) < GROUP_RECORDS_MAX and size < GROUP_BYTES_MAX:
            one = self._waiting.popleft()
            if one.is_over:
                continue
            key = (one.run.kind, one.run.idempotency_key) if one.run.idempotency_key is not None else None
            if key in keys:
                later.append(one)
                continue
            if key is not None:
                keys.add(key)
            group.append(one)
            size += 500 + len(one.run.input)
        self._waiting.extendleft(reversed(later))
        return group

    async def _write_aside(self, one: _Asked) -> None:
        try:
            await self._write([one])
        finally:
            self._say_closed([one])

    @staticmethod
    def _say_closed(asked: list[_Asked]) -> None:
        """Only the end of the engine leaves calls unanswered."""
        for one in asked:
            _refuse([one], _given_up([one], "the engine was closed before the run was accepted"))

    async def _write(self, group: list[_Asked]) -> None:
        backoff = Backoff()
        while group := [one for one in group if not one.is_over]:
            try:
                answers = await self._record(group)
            except Exception as error:
                if len(group) > 1 and _is_of_one_run(error):
                    middle = len(group) // 2
                    await self._write(group[:middle])
                    await self._write(group[middle:])
                    return
                if not is_passing(error):
                    _refuse(group, error)
                    return
                if _is_of_one_run(error) and not group[0].is_aside:
                    group[0].is_aside = True
                    self._runtime.spawn(self._write_aside(group[0]))
                    return
                await self._wait_after(group, error, backoff)
            else:
                for one, answer in zip(group, answers, strict=True):
                    if not one.is_over:
                        one.call.answer(one.place, answer)
                return

    async def _record(self, group: list[_Asked]) -> list[Accepted]:
        """Write a group in one transaction, and wake workers elsewhere right after its commit."""
        runtime, runs = self._runtime, [one.run for one in group]
        lanes = {run.lane for run in runs}
        is_sent = False

        def record(tx: Transaction) -> Answer[list[Accepted]]:
            nonlocal is_sent
            answer = runtime.store.record_runs(tx, runs, runtime.at())
            is_sent = runtime.backend.wakes.send_after(tx, lanes)
            return answer

        for one in group:
            one.is_in_flight = True
        try:
            answers = await runtime.calls.overlap("record_runs", record)
            if not is_sent:
                self._waking.wake(lanes)
            return answers
        except (CommitUnknownError, asyncio.CancelledError):
            for one in group:
                one.is_in_doubt = True
            raise
        finally:
            for one in group:
                one.is_in_flight = False

    async def _wait_after(self, group: list[_Asked], error: Exception, backoff: Backoff) -> None:
        """Wait a little before the next try; whose time is over is told."""
        now = self._runtime.monotonic()
        for one in group:
            if now >= one.call.gives_up_at:
                _refuse([one], _given_up([one], str(error)))
        ends = [one.call.gives_up_at for one in group if not one.is_over]
        if ends:
            await asyncio.sleep(min(backoff.next(), min(ends) - now))  # so that everybody has a last try at the end


def _is_of_one_run(error: Exception) -> bool:
    """Tell whether it may be one run's fault alone, as opposed to a database that answers nobody."""
    if isinstance(error, RefusedError):
        return error.refusal is Refusal.BUSY or not is_passing(error)
    return not isinstance(error, OutlastError)


def _given_up(asked: list[_Asked], reason: str) -> UnavailableError:
    if any(one.is_in_flight or one.is_in_doubt for one in asked):
        return CommitUnknownError(f"{reason}; whether the run is there is not known, and with an idempotency key the call can be repeated")
    return UnavailableError(reason)


def _refuse(group: list[_Asked], error: Exception) -> None:
    for one in group:
        if not one.is_over:
            one.call.future.set_exception(error if len(group) == 1 else type(error)(*error.args) if type(error).__init__ is OutlastError.__init__ else error)
