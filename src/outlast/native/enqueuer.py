"""Enqueuer: enqueues of many callers at once, gathered into one transaction.

Theory of operation. As with checkpoints, one transaction is under way at a time and calls gather meanwhile, so fifty
callers at once cost one commit. A call is answered when its run is committed, and raises within its time-out if it
cannot be. Two calls with one key never share a transaction: the second waits for the next and meets the first's run.
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
            raise UnavailableError(f"the database did not accept the run within {timeout.total_seconds():g} s") from None
        finally:
            for one in asked:
                one.future.cancel()

    async def _flush(self) -> None:
        try:
            while self._waiting:
                await self._write(self._take())
        finally:
            self._flushing = None

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

    async def _write(self, group: list[_Asked]) -> None:
        runtime, backoff = self._runtime, Backoff()
        while group := [one for one in group if not one.future.done()]:
            try:
                runs = [one.run for one in group]
                answers = await runtime.calls.write("record_runs", lambda tx, runs=runs: runtime.store.record_runs(tx, runs, runtime.at()))  # type: ignore[misc]  # a lambda's default cannot be annotated
            except OutlastError as error:
                if len(group) > 1 and isinstance(error, RefusedError) and (error.refusal is Refusal.BUSY or not is_passing(error)):
                    middle = len(group) // 2
                    await self._write(group[:middle])
                    await self._write(group[middle:])
                    return
                if not is_passing(error) or not await self._may_try_again(group, error, backoff):
                    _refuse(group, error)
                    return
            else:
                for one, answer in zip(group, answers, strict=True):
                    if not one.future.done():
                        one.future.set_result(answer)
                return

    async def _may_try_again(self, group: list[_Asked], error: OutlastError, backoff: Backoff) -> bool:
        """Wait a little; False when the first caller's time would be over."""
        delay = backoff.next()
        if self._runtime.monotonic() + delay >= min(one.gives_up_at for one in group):
            return isinstance(error, CommitUnknownError) and self._runtime.monotonic() < min(one.gives_up_at for one in group)
        await asyncio.sleep(delay)
        return True


def _refuse(group: list[_Asked], error: OutlastError) -> None:
    for one in group:
        if not one.future.done():
            one.future.set_exception(error if len(group) == 1 else type(error)(*error.args) if type(error).__init__ is OutlastError.__init__ else error)
