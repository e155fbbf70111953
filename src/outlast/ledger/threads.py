"""Threads: a ledger's own way to its database and to plain functions. Nothing that blocks runs on the caller's loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import TypeVar

from outlast.clock import Clock
from outlast.database.backoff import Backoff, is_passing
from outlast.database.transaction import Database, Transaction
from outlast.errors import CommitUnknownError, OutlastError, UsageError
from outlast.limits import CONNECTIONS_MAX, LEDGER_THREADS_MAX

R = TypeVar("R")


class Threads:
    """Those of one ledger, from its first call to its end."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._store = ThreadPoolExecutor(CONNECTIONS_MAX, thread_name_prefix="outlast-ledger")
        self._effects = ThreadPoolExecutor(LEDGER_THREADS_MAX, thread_name_prefix="outlast-effect")

    async def write(self, function: Callable[[Transaction], R], patience: timedelta, on_doubt: Callable[[], None]) -> tuple[R, bool]:
        """Write until the database answers; also tell whether an earlier try may have been committed, as `on_doubt` was when it happened.

        Raises what does not pass at once, and what is still there when the patience is over.
        """
        doubts = []

        def doubt() -> None:
            doubts.append(True)
            on_doubt()

        written = await self.insist(lambda: self.write_blocking(function), patience, doubt)
        return written, bool(doubts)

    async def insist(self, function: Callable[[], R], patience: timedelta, on_doubt: Callable[[], None]) -> R:
        """Run something that writes until the database answers, as `write` does."""
        backoff = Backoff()
        give_up_at = self._clock.monotonic() + patience.total_seconds()
        while True:
            try:
                return await self.other(function)
            except OutlastError as error:
                if not is_passing(error) or self._clock.monotonic() >= give_up_at:
                    raise
                if isinstance(error, CommitUnknownError):
                    on_doubt()
            await asyncio.sleep(backoff.next())

    def insist_blocking(self, function: Callable[[], R], patience: timedelta) -> R:
        """Run something that writes until the database answers, on this thread."""
        backoff = Backoff()
        give_up_at = self._clock.monotonic() + patience.total_seconds()
        while True:
            try:
                return function()
            except OutlastError as error:
                if not is_passing(error) or self._clock.monotonic() >= give_up_at:
                    raise
            time.sleep(backoff.next())

    async def read(self, function: Callable[[Transaction], R]) -> R:
        return await self.other(lambda: self._read(function))

    async def other(self, function: Callable[[], R]) -> R:
        """Run something that blocks and is no function of the application's."""
        return await asyncio.wrap_future(self._submit(self._store, function))

    def perform(self, function: Callable[[], R]) -> Future[R]:
        """Run a function of the application's, beside others of them."""
        return self._submit(self._effects, function)

    def write_blocking(self, function: Callable[[Transaction], R]) -> R:
        with self._database.transaction() as tx:
            return function(tx)

    def close(self) -> None:
        """End the threads; functions of the application's that go on are not waited for."""
        self._effects.shutdown(wait=False, cancel_futures=True)
        self._store.shutdown(wait=True)

    def _read(self, function: Callable[[Transaction], R]) -> R:
        with self._database.reading() as tx:
            return function(tx)

    def _submit(self, threads: ThreadPoolExecutor, function: Callable[[], R]) -> Future[R]:
        try:
            return threads.submit(function)
        except RuntimeError:
            raise UsageError("this ledger was closed: connect again") from None
