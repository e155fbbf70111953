"""NativeOperator: the port that acts on behalf of people, over the native engine's store. Every deed is kept with who and why."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from outlast.database.transaction import Transaction
from outlast.decision import NO_RESULT, DecisionView
from outlast.duration import Duration, as_duration
from outlast.errors import OutlastError, RunNotFoundError, UsageError
from outlast.limits import NAME_CHARACTERS_MAX, REASON_CHARACTERS_MAX
from outlast.operator import PruneReport, QueueView
from outlast.run import RunStatus, RunView

from .deciding import Answering, plain_json, resume
from .delivery import Delivery
from .new_run import checked_text
from .pruning import PruneOrder, Pruning
from .reading import checked_run_id
from .runtime import Runtime
from .transitions import DISCARDABLE, RETRYABLE

logger = logging.getLogger("outlast")


class NativeOperator:
    """See `outlast.operator.Operator`."""

    def __init__(self, runtime: Callable[[], Awaitable[Runtime]], wake: Callable[[set[int]], Awaitable[None]]) -> None:
        self._runtime = runtime
        self._wake = wake

    async def retry(self, run_id: str, /, *, actor: str, reason: str) -> RunView:
        checked_run_id(run_id)
        _check_who_and_why(actor, reason)
        runtime = await self._runtime()

        def retry(tx: Transaction) -> tuple[tuple[RunStatus, int] | None, RunView | None]:
            return runtime.store.retry_run(tx, run_id, actor, reason, runtime.at()), runtime.store.find_run(tx, run_id, runtime.at())

        found, view = await runtime.calls.write("retry_run", retry)
        if found is None or view is None:
            raise RunNotFoundError(f"there is no run {run_id}", run_id=run_id)
        status, lane = found
        if status not in RETRYABLE:
            raise UsageError(f"run {run_id} is {status}: only a run that failed, is dead or was canceled can be retried")
        await self._wake({lane})
        return view

    async def discard(self, run_id: str, /, *, actor: str, reason: str) -> RunView:
        checked_run_id(run_id)
        _check_who_and_why(actor, reason)
        runtime = await self._runtime()

        def discard(tx: Transaction) -> tuple[RunStatus | None, RunView | None]:
            return runtime.store.discard_run(tx, run_id, actor, reason, runtime.at()), runtime.store.find_run(tx, run_id, runtime.at())

        status, view = await runtime.calls.write("discard_run", discard)
        if status is None or view is None:
            raise RunNotFoundError(f"there is no run {run_id}", run_id=run_id)
        if status not in DISCARDABLE:
            remedy = "nothing is left to discard" if status.is_terminal else "cancel it instead"
            raise UsageError(f"run {run_id} is {status}: only a run that failed or is dead can be discarded; {remedy}")
        return view

    async def decide(self, decision_id: str, option: str, /, *, result: Any = NO_RESULT, note: str = "", actor: str) -> DecisionView:
        checked_text(decision_id, "decision_id", NAME_CHARACTERS_MAX)
        checked_text(actor, "actor", NAME_CHARACTERS_MAX)
        if note:
            checked_text(note, "note", REASON_CHARACTERS_MAX)
        answering = Answering(decision_id, option, plain_json(result), note, actor)
        runtime = await self._runtime()
        decision = await runtime.calls.write("decide", lambda tx: answering.answer(runtime, tx))
        await self._deliver(runtime)
        return decision

    async def _deliver(self, runtime: Runtime) -> None:
        """Wake who waits for what was just committed. Where that fails for now any worker does it at its next look."""
        try:
            await self._wake(await Delivery(runtime.calls, runtime.store, runtime.at).deliver())
        except OutlastError as error:
            logger.debug("what was sent was not delivered: %s", error)

    async def resume(self, run_id: str, result: Any, /, *, actor: str, reason: str) -> RunView:
        checked_run_id(run_id)
        _check_who_and_why(actor, reason)
        text = plain_json(result)
        if text is None:
            raise UsageError("result is not given: write what the step or effect that failed would have returned")
        runtime = await self._runtime()
        resumed, view = await runtime.calls.write("resume_run", lambda tx: resume(runtime, tx, run_id, text, actor, reason))
        if resumed is None or view is None:
            raise RunNotFoundError(f"there is no run {run_id}", run_id=run_id)
        if resumed.found is not RunStatus.FAILED:
            raise UsageError(f"run {run_id} is {resumed.found}: only a run that failed can be resumed with a result")
        if resumed.key is None:
            raise UsageError(f"run {run_id} was failed by no step or effect, so that there is nothing to give a result to; retry it instead")
        await self._wake({resumed.lane})
        return view

    async def pause_queue(self, name: str, /, *, actor: str, reason: str) -> QueueView:
        _check_queue(name, actor, reason)
        runtime = await self._runtime()
        change = await runtime.calls.write("pause_queue", lambda tx: runtime.store.pause_queue(tx, name, actor, reason, runtime.at()))
        return QueueView(name, change.paused_at, change.has_changed, len(change.lanes))

    async def unpause_queue(self, name: str, /, *, actor: str, reason: str) -> QueueView:
        _check_queue(name, actor, reason)
        runtime = await self._runtime()
        change = await runtime.calls.write("unpause_queue", lambda tx: runtime.store.unpause_queue(tx, name, actor, reason, runtime.at()))
        if change.lanes:
            await self._wake(set(change.lanes))
        return QueueView(name, None, change.has_changed, len(change.lanes))

    async def prune(
        self, older_than: Duration, /, *, keys_older_than: Duration | None = None, dead_letters: bool = False, actor: str, reason: str
    ) -> PruneReport:
        _check_who_and_why(actor, reason)
        try:
            runs = as_duration(older_than, "older_than")
            keys = None if keys_older_than is None else as_duration(keys_older_than, "keys_older_than")
        except ValueError as error:
            raise UsageError(str(error)) from None
        if keys is not None and keys < runs:
            raise UsageError(f"keys_older_than is {keys_older_than!r} and older_than {older_than!r}: a key outlives its run, so write at least as much")
        return await Pruning(await self._runtime(), PruneOrder(runs, keys, dead_letters, actor, reason)).run()


def _check_who_and_why(actor: str, reason: str) -> None:
    checked_text(actor, "actor", NAME_CHARACTERS_MAX)
    checked_text(reason, "reason", REASON_CHARACTERS_MAX)


def _check_queue(name: str, actor: str, reason: str) -> None:
    checked_text(name, "queue", NAME_CHARACTERS_MAX)
    _check_who_and_why(actor, reason)
