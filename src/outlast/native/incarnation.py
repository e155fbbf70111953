"""Incarnation: one life of a worker in the database, from when it announces itself until it has ended or was ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial

from outlast.errors import OutlastError
from outlast.ids import process_nonce, worker_id

from .checkpoints import Checkpoints
from .pulse import Pulse
from .runtime import Runtime
from .store import NewWorker


class Incarnation:
    """A worker id, its lease, and the group commit under it."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        loop_tick: Callable[[], float],
        on_over: Callable[[Incarnation, str], None],
        on_silent: Callable[[str], None],
    ) -> None:
        self.id = worker_id()
        self._runtime = runtime
        self._on_over = on_over
        self._loop = asyncio.get_running_loop()
        self.is_over = False
        self.checkpoints = Checkpoints(runtime.calls, runtime.store, self.id, self.lose, runtime.at)
        self._pulse = Pulse(
            calls=runtime.pulse_calls,
            store=runtime.store,
            liveness=runtime.backend.liveness,
            worker_id=self.id,
            lease=runtime.settings.lease,
            clock=runtime.settings.clock,
            events=runtime.events,
            now=runtime.at,
            loop_tick=loop_tick,
            on_time=self._on_loop(runtime.time.correct),
            on_silent=self._on_loop(on_silent),
            on_ended=self._on_loop(self.lose),
        )

    async def begin(self, lanes: tuple[int, ...], description: str) -> None:
        """Announce the worker and begin to renew its lease."""
        runtime, settings = self._runtime, self._runtime.settings
        is_provable = await asyncio.get_running_loop().run_in_executor(None, self._pulse.proof.hold)
        worker = NewWorker(self.id, settings.name, process_nonce(), settings.lease, lanes, description, is_provable)
        try:
            await runtime.calls.write("record_worker", lambda tx: runtime.store.record_worker(tx, worker, runtime.at()))
        except BaseException:
            await self.stop_pulse()  # its lock must not outlive it: the next try has another identity
            raise
        self._pulse.start()
        runtime.events.emit("worker_started", worker=self.id, name=settings.name)

    def tick(self) -> None:
        """The loop moves: see whether the lease is still being renewed."""
        if not self.is_over:
            self._pulse.watch_renewal()

    def _on_loop(self, function: Callable[..., None]) -> Callable[..., None]:
        def call(argument: str | datetime) -> None:
            try:
                self._loop.call_soon_threadsafe(function, argument)
            except RuntimeError:
                self.is_over = True  # the loop is closed, and with it all that could be told

        return call

    def lose(self, reason: str) -> None:
        """The database says that this incarnation is over, wherever that was first heard."""
        if not self.is_over:
            self.is_over = True
            self._runtime.events.emit("lease_lost", worker=self.id, reason=reason)
            self.checkpoints.abandon()
            self._on_over(self, reason)

    async def end(self, timeout: timedelta, *, is_leaving_runs: bool = False) -> None:
        """End by itself: everything gathered is written first, and the renewals end last.

        With runs left whose bodies still go on, it says nothing and keeps its proof of life: nobody may have those runs
        before the lease is over or the process has ended.
        """
        runtime = self._runtime
        try:
            if not self.is_over:
                async with asyncio.timeout(timeout.total_seconds()):
                    await self.checkpoints.drain()
            if not self.is_over and not is_leaving_runs:
                await runtime.calls.write("end_worker", lambda tx: runtime.store.end_worker(tx, self.id, "stopped", now=runtime.at()))
        except (TimeoutError, OutlastError):
            pass  # the database does not answer: the lease takes care of what is left
        finally:
            self.is_over = True
            self.checkpoints.abandon()  # nothing more is written: the thread of a body that was left may end at any time
            await self.stop_pulse(keep_proof=is_leaving_runs)

    def abandon(self) -> None:
        """Write and renew nothing any more, from this moment on and without waiting; the lease takes care of the rest."""
        self.is_over = True
        self.checkpoints.abandon()
        self._pulse.end()

    async def stop_pulse(self, *, keep_proof: bool = False) -> None:
        await asyncio.get_running_loop().run_in_executor(None, partial(self._pulse.stop, keep_proof=keep_proof))
