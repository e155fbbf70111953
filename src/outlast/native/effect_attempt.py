"""EffectAttempt: `perform` being called for one attempt, and what its function may yet say when nobody waits for it any more.

A coroutine ends when it is told to. A thread may go on: while it does, the attempt is marked as lingering, so that nobody takes
a "not done" for the last word, and when it ends it offers its result by itself. The result is believed if its attempt is
still the current one, and its claim too; otherwise it is kept beside the attempt, with a warning.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING, Any

from outlast.errors import OutlastError, PayloadError
from outlast.ledger.operation import Change, OperationAttempt, OperationChange

if TYPE_CHECKING:
    from .effecting import Effecting

logger = logging.getLogger("outlast")

_NOTHING: Any = object()


class EffectAttempt:
    """One call of `perform`. Its function may run on a thread, whose end and the loop's giving up meet under a lock."""

    def __init__(self, effecting: Effecting, attempt: OperationAttempt) -> None:
        self._effecting = effecting
        self.attempt = attempt
        self._lock = threading.Lock()
        self._is_abandoned = False
        self._has_ended = False
        self._value = _NOTHING

    async def call(self) -> Any:
        """Return what `perform` returns, or raise what it raises."""
        step = self._effecting.effect.step
        if step.is_async:
            return await self._effecting.call_function(step, self.attempt)
        return await self._effecting.call_function(step, self.attempt, self._watched)

    def _watched(self, function: Any) -> Any:
        """Call the function on its thread; if nobody waits for it in the end, see to its word."""
        value = _NOTHING
        try:
            value = function()
        finally:
            with self._lock:
                self._has_ended, self._value = True, value
                is_abandoned = self._is_abandoned
            if is_abandoned:
                self._speak()
        return value

    async def abandon(self) -> None:
        """Nobody waits for it any more: note that its outcome is not known, and that its function goes on, if it does.

        The operation has no owner then, so that whoever uses its key next asks what became of the attempt.
        """
        with self._lock:
            self._is_abandoned = True
            lingers = not self._effecting.effect.step.is_async and not self._has_ended
            has_spoken = self._has_ended and self._value is not _NOTHING
        if has_spoken:
            await asyncio.to_thread(self._speak)
            return
        if await self._write(lambda tx: self._effecting.book.cut_off(tx, self._change(Change.DOUBT), self.attempt, lingers=lingers)) and lingers:
            with self._lock:
                has_ended = self._has_ended
            if has_ended:  # it has cleared the mark before it was there
                await self._write(lambda tx: self._effecting.book.mark_lingering(tx, self.attempt, lingers=False))

    async def withdraw(self) -> None:
        """It was begun for nobody, and never called."""
        await self._write(lambda tx: self._effecting.book.cut_off(tx, self._change(Change.NOT_DONE), self.attempt, lingers=False))

    async def _write(self, function: Any) -> bool:
        try:
            await self._effecting.effects.calls.write("note_effect", function)
        except OutlastError as error:
            logger.debug("that attempt %d of %s was cut off is not noted: %s", self.attempt.number, self._effecting.name.key, error)
            return False
        return True

    def _speak(self) -> None:
        """Offer what the function returned, and say that it goes on no more. Called on its own thread, or beside the loop."""
        if self._value is not _NOTHING:
            self._offer_value()
        try:
            self._effecting.effects.calls.write_blocking("note_effect", lambda tx: self._effecting.book.mark_lingering(tx, self.attempt, lingers=False))
        except OutlastError as error:
            logger.warning("that attempt %d of %s goes on no more is not noted: %s", self.attempt.number, self._effecting.name.key, error)

    def _offer_value(self) -> None:
        step = self._effecting.effect.step
        try:
            result = step.signature.result.encode(self._value, step.result_field)
        except PayloadError as error:
            logger.warning("attempt %d of effect %s ended late, with a result that cannot be kept: %s", self.attempt.number, self._effecting.name.effect, error)
        else:
            self.offer(result)

    def offer(self, result: str) -> None:
        """Offer a result that came too late to be recorded in the ordinary way. Blocks."""
        change, name, run = self._change(Change.FOUND_DONE, result), self._effecting.name, self._effecting.owner.run
        try:
            is_believed = self._effecting.effects.calls.write_blocking(
                "record_late", lambda tx: self._effecting.book.record_late(tx, change, self.attempt, result)
            )
        except OutlastError as error:
            logger.warning("attempt %d of effect %s ended late, and its result is lost: %s", self.attempt.number, name.effect, error)
            return
        if not is_believed:
            logger.warning("attempt %d of effect %s (run %s) ended late: its result is refused, and kept beside it", self.attempt.number, name.effect, run)
            self._effecting.effects.events.emit("late_result_refused", run=run, effect=name.effect, attempt=self.attempt.number)

    def _change(self, change: Change, result: str | None = None) -> OperationChange:
        return OperationChange(self._effecting.name, change, self._effecting.owner, self.attempt.number, result=result)
