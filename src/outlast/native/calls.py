"""Calls: the engine's way to its database. Store transactions run on threads, or on the loop
where the driver does not block; nothing else of the engine blocks.

It counts how long the database has been answering without a break, which is what a judge of silence must know, and it
is where faults are injected: before and after every transaction an event with the call's name is emitted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from outlast.clock import Clock
from outlast.database.backoff import Backoff as Backoff  # every part of the engine has them from here
from outlast.database.backoff import is_passing as is_passing
from outlast.database.transaction import Answer, Database, RefusedError, Transaction
from outlast.errors import CommitUnknownError, UnavailableError
from outlast.events import Events
from outlast.limits import CONNECTIONS_MAX

from .write_refusals import WriteRefusals

R = TypeVar("R")
logger = logging.getLogger("outlast")


class Calls:
    """Runs functions of an open transaction on threads of its own."""

    def __init__(
        self,
        database: Database,
        events: Events,
        clock: Clock,
        *,
        threads: int = CONNECTIONS_MAX,
        name: str = "outlast-store",
        refusals: WriteRefusals | None = None,
    ) -> None:
        self._database = database
        self._events = events
        self._clock = clock
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._whole_since = clock.monotonic()
        self._is_whole = True
        self.refusals = refusals or WriteRefusals(clock)

    @property
    def whole_for(self) -> float:
        """Seconds for which every call has been answered; none while the database takes no writes."""
        return min(self._clock.monotonic() - self._whole_since, self.refusals.taken_for) if self._is_whole else 0.0

    def write(self, name: str, function: Callable[[Transaction], R]) -> Awaitable[R]:
        """Run `function` in a transaction; what it returned is returned after the commit."""
        return asyncio.get_running_loop().run_in_executor(self._threads, self.write_blocking, name, function)

    async def overlap(self, name: str, function: Callable[[Transaction], Answer[R]], *, is_reading: bool = False) -> R:
        """Run `function` in a transaction while the loop goes on, where the driver can do that, and return its answer after the commit.

        On a thread every call of the driver gives the interpreter up, and beside a busy loop getting it back takes
        up to 5 ms each: the frequent transactions of a worker took 58 us of processor a step that way, and 43 so.
        """
        opened = self._database.on_loop(is_reading=is_reading)
        if opened is None:
            return (await (self.read(name, function) if is_reading else self.write(name, function)))()
        self._events.emit("before_store", call=name)
        began = self._clock.monotonic()
        try:
            async with opened as tx:
                answer = function(tx)
        except UnavailableError as error:
            self._broken(name, error)
            raise
        except RefusedError as error:
            self.refusals.note_refused(name, error, began)
            raise
        self._answered(name)
        if not is_reading and self.refusals.is_refusing:
            self.refusals.note_taken(name)
        self._events.emit("after_store", call=name)
        return answer()

    def read(self, name: str, function: Callable[[Transaction], R]) -> Awaitable[R]:
        """Run `function` in a short transaction that reads."""
        return asyncio.get_running_loop().run_in_executor(self._threads, self._read, name, function)

    def other(self, function: Callable[[], R]) -> Awaitable[R]:
        """Run something that blocks and is no transaction."""
        return asyncio.get_running_loop().run_in_executor(self._threads, function)

    def write_blocking(self, name: str, function: Callable[[Transaction], R]) -> R:
        self._events.emit("before_store", call=name)
        began = self._clock.monotonic()
        try:
            with self._database.transaction() as tx:
                result = function(tx)
        except UnavailableError as error:
            self._broken(name, error)
            raise
        except RefusedError as error:
            self.refusals.note_refused(name, error, began)
            raise
        self._answered(name)
        if self.refusals.is_refusing:
            self.refusals.note_taken(name)
        self._events.emit("after_store", call=name)
        return result

    def _read(self, name: str, function: Callable[[Transaction], R]) -> R:
        self._events.emit("before_store", call=name)
        try:
            with self._database.reading() as tx:
                result = function(tx)
        except UnavailableError as error:
            self._broken(name, error)
            raise
        self._answered(name)
        self._events.emit("after_store", call=name)
        return result

    def _broken(self, name: str, error: Exception) -> None:
        if isinstance(error, CommitUnknownError):
            self._events.emit("commit_unknown", what=name)
        if self._is_whole:
            self._is_whole = False
            logger.warning("the database does not answer (%s): %s", name, error)
            self._events.emit("store_unavailable", what=name, error=str(error))

    def _answered(self, name: str) -> None:
        if not self._is_whole:
            self._whole_since = self._clock.monotonic()
            self._is_whole = True
            logger.warning("the database answers again (%s)", name)
            self._events.emit("store_available", what=name)

    def close(self) -> None:
        self._threads.shutdown(wait=True)
