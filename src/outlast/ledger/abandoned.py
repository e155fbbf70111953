"""Abandoned: what becomes of an attempt when its call ends in the middle, and of its thread, which cannot be ended.

While a thread goes on that nobody waits for, it may do at any time what it was to do. So the ledger says of its attempt that it
goes on, until it ends: nobody believes meanwhile that nothing was done. What it returns in the end is offered to the ledger. A
process that dies leaves the mark behind, and then a person is asked.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

from outlast.effect import Effect
from outlast.errors import OutlastError

from .entries import Entries
from .operation import OperationAttempt
from .threads import Threads

logger = logging.getLogger("outlast")


class Abandoned:
    """One attempt that its call may abandon. The call's loop and the attempt's thread use it at once."""

    def __init__(self, entries: Entries, threads: Threads, effect: Effect[..., Any], key: str, attempt: OperationAttempt, patience: timedelta) -> None:
        """`patience`: how long a write is tried again whose answer does not come."""
        self._entries = entries
        self._threads = threads
        self._effect = effect
        self._key = key
        self._attempt = attempt
        self._patience = patience
        self._lock = threading.Lock()
        self._goes_on = False
        self._is_marked = False

    def leave(self, thread: Future[Any]) -> None:
        """Nobody waits for its thread any more."""
        self._goes_on = True
        thread.add_done_callback(self._end)

    async def cut_off(self) -> None:
        """Nobody acts for it any more: whoever comes next need not wait for the lease, and knows of a thread that goes on.

        Tried again for as long as the patience lasts; a caller who is canceled once more does not wait for it, and it goes on without him.
        """
        try:
            await asyncio.shield(self._threads.insist(self._note, self._patience if self._goes_on else timedelta(0), lambda: None))
        except OutlastError as error:
            logger.debug("that attempt %d of %s was cut off is not noted: %s", self._attempt.number, self._key, error)

    def warn_late(self) -> None:
        logger.warning(
            "attempt %d of effect %s (key %s) ended late: its result is refused, and kept beside the attempt",
            self._attempt.number,
            self._effect.name,
            self._key,
        )

    def _note(self) -> None:
        with self._lock:  # a thread does not end between the look and the mark: nobody would take it away
            self._is_marked = self._is_marked or self._goes_on  # before, for a commit that fails may have been made
            self._threads.write_blocking(lambda tx: self._entries.cut_off(tx, self._attempt, lingers=self._goes_on))

    # --- on the thread, when it ends -------------------------------------------------------------------------------------
    def _end(self, thread: Future[Any]) -> None:
        try:
            if thread.exception() is None:
                self._offer(thread.result())
        finally:
            with self._lock:
                self._goes_on = False
            if self._is_marked:
                self._unmark()

    def _offer(self, value: Any) -> None:
        step = self._effect.step
        try:
            result = step.signature.result.encode(value, step.result_field)
            is_believed = self._threads.write_blocking(lambda tx: self._entries.offer(tx, self._attempt, result))
        except OutlastError as error:
            logger.warning("attempt %d of effect %s ended late, and its result is lost: %s", self._attempt.number, self._effect.name, error)
            return
        if not is_believed:
            self.warn_late()

    def _unmark(self) -> None:
        try:
            self._threads.insist_blocking(lambda: self._threads.write_blocking(lambda tx: self._entries.thread_ended(tx, self._attempt)), self._patience)
        except OutlastError as error:
            logger.warning(
                "the thread of attempt %d of effect %s has ended, and the ledger does not know it, so that a person may be asked: %s",
                self._attempt.number,
                self._effect.name,
                error,
            )
