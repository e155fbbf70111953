"""Enqueuer: enqueues of many callers at once, gathered into one transaction.

Theory of operation. As with checkpoints, one transaction is under way at a time and calls gather meanwhile, so fifty
callers at once cost one commit. A call is answered when its run is committed, and raises within its time-out if it
cannot be. Two calls with one key never share a transaction: the second waits for the next and meets the first's run.
A run whose key somebody's open transaction has waits for him apart from the others.
When the outcome of a commit is unknown the runs are accepted again under the same ids: what is there already says so.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from datetime import timedelta

from outlast.database.transaction import Refusal, RefusedError
from outlast.errors import CommitUnknownError, OutlastError, UnavailableError
from outlast.limits import ENQUEUE_TIMEOUT, GROUP_BYTES_MAX, GROUP_RECORDS_MAX

from .calls import Backoff, is_passing
from .runtime import Runtime
from .store import Accepted, NewRun


@dataclass(slots=True)
class _Asked:
    run: NewRun
    future: asyncio.Future[Accepted]
    gives_up_at: float
    is_aside: bool = False
    is_in_flight: bool = False
    is_in_doubt: bool = False
    """A try ended unknown, so that no later failure may say that nothing was written."""


class Enqueuer:
    """The enqueues of one engine."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._waiting: deque[_Asked] = deque()
        self._flushing: asyncio.Task[None] | None = None

    async def accept(self, runs: list[NewRun], timeout: timedelta = ENQUEUE_TIMEOUT) -> list[Accepted]:
        """Accept runs and return what became of each. Raises `UnavailableError` within the time-out."""
        loop = asyncio.get_running_loop()
        ends_at = self._runtime.monotonic() + timeout.total_seconds()
        asked = [_Asked(run, loop.create_future(), ends_at) for run in runs]
        self._waiting.extend(asked)
        if self._flushing is None:
            self._flushing = self._runtime.spawn(self._flush())
        try:
            async with asyncio.timeout(timeout.total_seconds() + 1.0):
                return [await one.future for one in asked]
        except TimeoutError:
            raise _given_up(asked, f"the database did not accept the run within {timeout.total_seconds():g} s") from None
        finally:
            for one in asked:
                if not one.future.cancel() and not one.future.cancelled():
                    one.future.exception()  # the first error was raised; the others must not be reported as forgotten

    async def _flush(self) -> None:
        group: list[_Asked] = []
        try:
            while self._waiting:
                group = self._take()
                await self._write(group)
        finally:
            self._flushing = None
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
            if one.future.done():
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
        while group := [one for one in group if not one.future.done()]:
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
                    if not one.future.done():
                        one.future.set_result(answer)
                return

    async def _record(self, group: list[_Asked]) -> list[Accepted]:
        runtime, runs = self._runtime, [one.run for one in group]
        for one in group:
            one.is_in_flight = True
        try:
            return await runtime.calls.overlap("record_runs", lambda tx: runtime.store.record_runs(tx, runs, runtime.at()))
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
            if now >= one.gives_up_at:
                _refuse([one], _given_up([one], str(error)))
        ends = [one.gives_up_at for one in group if not one.future.done()]
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
        if not one.future.done():
            one.future.set_exception(error if len(group) == 1 else type(error)(*error.args) if type(error).__init__ is OutlastError.__init__ else error)
