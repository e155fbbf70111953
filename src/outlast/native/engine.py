"""NativeEngine: the built-in engine, a `TaskEngine` over a store. Made by `connect`."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import Any, Self, overload

from typing_extensions import TypeVar, Unpack

from outlast.blocking import BlockingEngine
from outlast.database.transaction import Transaction
from outlast.duration import Duration, as_duration
from outlast.engine import Capabilities, EnqueueOptions
from outlast.errors import IdempotencyConflictError, ResultPrunedError, RunNotFoundError, UnknownTaskError, UsageError
from outlast.events import Events
from outlast.finding import Finding
from outlast.limits import ANSWER_TIMEOUT, CONCURRENCY_MAX, NAME_CHARACTERS_MAX, REASON_CHARACTERS_MAX, RENEWAL_ANSWERS_PER_LEASE, STOP_TIMEOUT
from outlast.portal import Portal
from outlast.run import CancelOutcome, Run, RunStatus, RunView, SignalOptions
from outlast.signal import SignalReceipt
from outlast.task import Task
from outlast.task_ref import TaskRef

from .backend import Backend
from .calls import Calls
from .doctor import examine
from .enqueuer import Enqueuer
from .interrupting import interrupt_hung, interrupting_after
from .new_run import NO_INPUT, checked_text, new_runs
from .operating import NativeOperator
from .outcome import decoded_result
from .reading import NativeInspector, checked_run_id
from .results import Results
from .runtime import Runtime
from .sending import Sender, new_signal
from .service_scope import ServiceScope
from .settings import Settings
from .store import Accepted, LaneName, NewRun
from .waking import Waking
from .worker import Worker

I = TypeVar("I")
O = TypeVar("O")
logger = logging.getLogger("outlast")

_STOP_MARGIN_SECONDS = 0.5  # a stop ends by itself within its time-out, unless the database is silent
_CLOSE_SECONDS = 2.0  # what is under way after a stop is at most an enqueue of somebody who is told all the same
CAPABILITIES = Capabilities(engine="native")


def _outcome_in_doubt(view: RunView, reason: str) -> CancelOutcome:
    """Return what an earlier try of a cancel did, whose answer was lost, when the run is over by now."""
    if view.status is not RunStatus.CANCELED or view.cancel_reason != reason:
        return CancelOutcome.ALREADY_OVER
    return CancelOutcome.CANCELED if view.started_at is None else CancelOutcome.REQUESTED


class NativeEngine:
    """Durable tasks on SQLite or PostgreSQL. It opens nothing before it is first used, and belongs to one event loop.

    `async with` stops it on the way out: what it executes is drained, and what it had to leave is logged.
    """

    def __init__(self, backend: Backend, pulse: Backend, settings: Settings) -> None:
        self.events = Events()
        self.capabilities = CAPABILITIES
        self._backend = backend
        self._pulse = pulse
        self._settings = settings
        self._runtime: Runtime | None = None
        self._opening: asyncio.Lock | None = None
        self._enqueuer: Enqueuer | None = None
        self._sender: Sender | None = None
        self._waking: Waking | None = None
        self._results: Results | None = None
        self._worker: Worker | None = None
        self._services = ServiceScope(settings.services)
        self._changing = asyncio.Lock()  # one start or stop at a time: another must not meet half of a worker, or another's services
        self._lanes: dict[LaneName, int] = {}
        self._is_listening = False
        self._is_closed = False
        self._home: tuple[asyncio.AbstractEventLoop, int] | None = None
        self.inspector = NativeInspector(self._open)
        self.operator = NativeOperator(self._open, self._wake)
        self.blocking = BlockingEngine(self, Portal(self._loop))
        """The same surface for programs without asyncio, and for other threads than the event loop's."""

    @property
    def url(self) -> str:
        """The database's address without any secret in it."""
        return self._backend.database.url

    @property
    def tasks(self) -> tuple[Task[Any, Any], ...]:
        return tuple(self._settings.tasks.values())

    @property
    def lease(self) -> timedelta:
        """How long its worker may be silent before its runs go on elsewhere."""
        return self._settings.lease

    # --- life --------------------------------------------------------------------------------------------------------------
    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def _open(self) -> Runtime:
        """Return the runtime, made at the first use: threads, the schema's check, the database's time."""
        if self._runtime is not None and self._home == (asyncio.get_running_loop(), os.getpid()):
            return self._runtime
        if self._is_closed:
            raise UsageError("this engine is closed: make another with connect(...)")
        home = self._loop()
        if home is None or self._opening is None:
            self._opening, self._home = asyncio.Lock(), (asyncio.get_running_loop(), os.getpid())
        elif home is not asyncio.get_running_loop():
            raise UsageError("this engine was opened on another event loop: use engine.blocking from a plain thread, or make an engine for each loop")
        async with self._opening:
            if self._runtime is None:
                self._runtime = await self._opened()
            return self._runtime

    def _loop(self) -> asyncio.AbstractEventLoop | None:
        """Return the event loop that it lives on, None before it was opened; `UsageError` in a forked child, where that loop does not run."""
        if self._home is None or (self._runtime is None and self._home[0].is_closed()):
            return None
        loop, process = self._home
        if process != os.getpid():
            raise UsageError("the process was forked after the engine was opened: connect again in the child")
        return loop

    async def _opened(self) -> Runtime:
        settings, backend = self._settings, self._backend
        calls = Calls(backend.database, self.events, settings.clock)
        pulse_calls = Calls(self._pulse.database, self.events, settings.clock, threads=1, name="outlast-pulse-store", refusals=calls.refusals)
        runtime = Runtime(backend, calls, pulse_calls, settings, self.events, settings.store_clock())
        try:
            await calls.other(lambda: backend.schema.ensure(settings.migrate))
            now = settings.now()
            runtime.time.correct(await calls.other(backend.database.now) if now is None else now)
        except BaseException:
            calls.close()
            pulse_calls.close()
            raise
        runtime.watch_loop()
        answers = [(backend.database, ANSWER_TIMEOUT), (self._pulse.database, min(ANSWER_TIMEOUT, settings.lease / RENEWAL_ANSWERS_PER_LEASE))]
        runtime.spawn(interrupt_hung(answers if self._pulse.database is not backend.database else answers[:1]))
        self._waking = Waking(runtime)
        self._enqueuer = Enqueuer(runtime, self._waking)
        self._sender = Sender(runtime, self._wake)
        self._results = Results(runtime)
        return runtime

    async def migrate(self) -> list[str]:
        """Bring the schema up to date; return the names of the migrations that were applied."""
        return await asyncio.get_running_loop().run_in_executor(None, self._backend.schema.migrate)

    def migration_script(self) -> str:
        """Return the SQL of all migrations, for an application's own migration tool."""
        return self._backend.schema.script()

    async def examine(self) -> list[Finding]:
        """Return what `outlast doctor` reports: what is wrong with the database, or with the fleet on it.

        It changes nothing, takes connections of its own, and works where nothing else does: without the schema, or without
        an answer. Takes at most a minute, and raises nothing for what it finds.
        """
        return await examine(self._backend.examiner(), self._settings.tasks.keys())

    async def close(self, *, timeout: Duration = STOP_TIMEOUT) -> None:
        """Stop, and close every connection. It may be called twice."""
        await self.stop(timeout=timeout)
        self._is_closed = True
        runtime, self._runtime = self._runtime, None
        with self._interrupting_after(_CLOSE_SECONDS):
            if runtime is not None:
                if self._waking is not None:
                    await self._waking.drain(_CLOSE_SECONDS / 2)
                await runtime.cancel_spawned()
            await asyncio.get_running_loop().run_in_executor(None, self._close_connections, runtime)

    def _close_connections(self, runtime: Runtime | None) -> None:
        """Also without a runtime: a migration, or an opening that was refused, has opened connections."""
        if runtime is not None:
            runtime.calls.close()
            runtime.pulse_calls.close()
        self._backend.wakes.close()
        self._backend.liveness.close()
        self._backend.database.close()
        if self._pulse.database is not self._backend.database:
            self._pulse.database.close()

    def _interrupting_after(self, seconds: float) -> AbstractContextManager[None]:
        return interrupting_after(seconds, (self._backend.database, self._pulse.database))

    # --- accepting -----------------------------------------------------------------------------------------------------------
    @overload
    async def enqueue(self, task: TaskRef[None, O], /, **options: Unpack[EnqueueOptions]) -> Run[O]: ...
    @overload
    async def enqueue(self, task: TaskRef[I, O], input: I, /, **options: Unpack[EnqueueOptions]) -> Run[O]: ...
    async def enqueue(self, task: TaskRef[Any, O], input: Any = NO_INPUT, /, **options: Unpack[EnqueueOptions]) -> Run[O]:
        """Accept a run; see `TaskEngine.enqueue`."""
        (run,) = await self._accept(task, [input], [options.get("idempotency_key")], options)
        return run

    async def enqueue_many(
        self, task: TaskRef[I, O], inputs: Sequence[I], /, *, idempotency_keys: Sequence[str] | None = None, **options: Unpack[EnqueueOptions]
    ) -> list[Run[O]]:
        """Accept many runs of one task, in as few transactions as their size allows; return handles in the inputs' order.

        What is wrong with any input is found before the first is written. If the database fails in the middle, some of
        the runs may exist; with idempotency keys the call can be repeated.
        """
        if "idempotency_key" in options:
            raise UsageError("enqueue_many takes idempotency_keys, one for each input")
        if idempotency_keys is not None and len(idempotency_keys) != len(inputs):
            raise UsageError(f"{len(inputs)} inputs came with {len(idempotency_keys)} idempotency keys: give one for each")
        return await self._accept(task, inputs, idempotency_keys or [None] * len(inputs), options)

    async def _accept(self, task: TaskRef[Any, O], inputs: Sequence[Any], keys: Sequence[str | None], options: EnqueueOptions) -> list[Run[O]]:
        self._check_known(task)
        queue = checked_text(options.get("queue", "default"), "queue", NAME_CHARACTERS_MAX)
        runtime = await self._open()
        assert self._enqueuer is not None  # made by _open
        lane = await self._lane(LaneName(queue, task.name, task.version))
        runs = new_runs(task, inputs, lane, runtime.time, keys, options)
        answers = await self._enqueuer.accept(runs)
        for run, answer in zip(runs, answers, strict=True):
            if not answer.created:
                await self._check_conflict(task, run, answer)
        if self._worker is not None and any(answer.created for answer in answers):
            self._worker.nudge({lane})  # workers elsewhere were woken with the commit
        decode = partial(decoded_result, task)
        return [Run(self, answer.run_id, decode, created=answer.created, was_accepted=True) for answer in answers]

    def _check_known(self, task: TaskRef[Any, Any]) -> None:
        if not isinstance(task, TaskRef):
            raise UsageError(f"enqueue takes a task or a task_ref, not {task!r}")
        if isinstance(task, Task) and self._settings.tasks.get((task.name, task.version)) is not task:
            raise UnknownTaskError(f"task {task.name} v{task.version} is not one of this engine's: add it to connect(tasks=...), or enqueue by task_ref(...)")

    async def _lane(self, name: LaneName) -> int:
        """Return a lane's number; lanes are made in a transaction of their own and never go away, so they are remembered."""
        if name not in self._lanes:
            runtime = await self._open()
            lanes, _ = await runtime.write_again("ensure_lanes", lambda tx: runtime.store.ensure_lanes(tx, [name]))
            self._lanes.update(lanes)
        return self._lanes[name]

    async def _check_conflict(self, task: TaskRef[Any, Any], run: NewRun, answer: Accepted) -> None:
        """A key with another input's digest is a conflict, unless today's type reads the stored input as the same value."""
        if answer.stored_digest == run.input_digest or run.idempotency_key is None:
            return
        stored = await self.find(answer.run_id)
        if stored is None or not task.input.is_same(stored.input, run.input):
            raise IdempotencyConflictError(task.name, run.idempotency_key, answer.run_id)

    async def _wake(self, lanes: set[int]) -> None:
        """Wake whoever may claim from these lanes: a worker here at once, others if one asked for it."""
        if self._worker is not None:
            self._worker.nudge(lanes)
        await self._open()
        if self._waking is not None:
            self._waking.wake(lanes)

    async def signal(self, topic: str, payload: Any = None, /, **options: Unpack[SignalOptions]) -> SignalReceipt:
        """Send a signal; see `TaskEngine.signal`."""
        new = new_signal(topic, payload, options)
        await self._open()
        assert self._sender is not None  # made by _open
        return await self._sender.send(new)

    # --- one run -------------------------------------------------------------------------------------------------------------
    async def cancel(self, run_id: str, /, *, reason: str) -> CancelOutcome:
        checked_run_id(run_id)
        checked_text(reason, "reason", REASON_CHARACTERS_MAX)
        runtime = await self._open()
        answer, in_doubt = await runtime.write_again("request_cancel", lambda tx: runtime.store.request_cancel(tx, run_id, reason, runtime.at()))
        if answer is None:
            raise RunNotFoundError(f"there is no run {run_id}", run_id=run_id)
        outcome, worker = answer
        if in_doubt and outcome is CancelOutcome.ALREADY_OVER:
            outcome = _outcome_in_doubt(await self.get(run_id), reason)
        if outcome is CancelOutcome.REQUESTED:
            runtime.spawn(self._tell(worker))
        return outcome

    async def _tell(self, worker: int | None) -> None:
        """Hurry whoever holds a canceled run, or whoever may claim it."""
        runtime = await self._open()
        if self._worker is not None:
            self._worker.woken(frozenset(), frozenset())
        workers = () if worker is None else (worker,)
        await runtime.calls.other(lambda: runtime.backend.wakes.send(workers=workers))

    async def find(self, run_id: str, /) -> RunView | None:
        if not isinstance(run_id, str):
            raise UsageError(f"a run id is text, not {run_id!r}")
        runtime = await self._open()
        try:
            checked_run_id(run_id)
        except RunNotFoundError:
            return None
        return await runtime.read("find_run", lambda tx: runtime.store.find_run(tx, run_id, runtime.at()))

    async def get(self, run_id: str, /) -> RunView:
        view = await self.find(checked_run_id(run_id))
        if view is None:
            raise RunNotFoundError(f"there is no run {run_id}", run_id=run_id)
        return view

    def handle(self, task: TaskRef[I, O], run_id: str, /) -> Run[O]:
        """Return a handle on a run that exists; `task` gives the type of its result."""
        return Run(self, checked_run_id(run_id), partial(decoded_result, task), created=False)

    async def wait_for_end(self, run_id: str, timeout: float | None, /) -> RunView:
        """Wait until the run is over and return its view. What `Run.result()` stands on."""
        await self._open()
        assert self._results is not None  # made by _open
        self._listen()
        view = await self._look_at(run_id)
        if view is None:
            raise RunNotFoundError(f"there is no run {run_id}: it never was, or it was pruned", run_id=run_id)
        while not view.status.is_terminal:
            await self._results.wait(run_id, timeout, lambda: self._why_waiting(run_id))
            view = await self._look_at(run_id)
            if view is None:
                raise ResultPrunedError(f"run {run_id} is over, and what it returned was pruned meanwhile", run_id=run_id)
        return view

    async def _look_at(self, run_id: str) -> RunView | None:
        """Return a run without what explains it, which nobody asks while he waits for its end."""
        runtime = await self._open()
        return await runtime.read("find_run", lambda tx: runtime.store.find_run(tx, checked_run_id(run_id), explains=False))

    async def _why_waiting(self, run_id: str) -> str | None:
        runtime, view = await self._open(), await self.get(run_id)
        wanted = f"{view.kind} v{view.version}"

        def has_worker(tx: Transaction) -> bool:
            rows = runtime.store.list_workers(tx, only_alive=True, counts_runs=False, now=runtime.at())
            return any(f'"{wanted}"' in row.tasks and f'"{view.queue}"' in row.tasks for row in rows)

        if await runtime.read("list_workers", has_worker):
            return None
        return f"no living worker has {wanted} in queue {view.queue}; start one with `outlast worker`, or engine.start()"

    # --- executing -------------------------------------------------------------------------------------------------------------
    async def start(self, *, queues: Sequence[str] = ("default",), concurrency: int = 50) -> None:
        if isinstance(concurrency, bool) or not isinstance(concurrency, int) or not 1 <= concurrency <= CONCURRENCY_MAX:
            raise UsageError(f"concurrency is {concurrency!r}: write a number from 1 to {CONCURRENCY_MAX}")
        if isinstance(queues, str) or not queues:
            raise UsageError(f"queues is {queues!r}: write a sequence of names, such as ('default',)")
        if not self._settings.tasks:
            raise UsageError("this engine has no tasks to execute: give them to connect(tasks=...)")
        names = tuple(dict.fromkeys(checked_text(queue, "queue", NAME_CHARACTERS_MAX) for queue in queues))
        async with self._changing:
            if self._worker is not None:
                raise UsageError("this engine has been started: stop it first")
            runtime = await self._open()
            services = await self._services.enter()
            try:
                worker = Worker(runtime, queues=names, concurrency=concurrency, services=services)
                await worker.start()
            except BaseException:
                await self._services.leave()
                raise
            self._worker = worker
            self._listen()

    def _listen(self) -> None:
        if not self._is_listening:
            self._is_listening = True
            loop = asyncio.get_running_loop()

            def wake(lanes: frozenset[int], workers: frozenset[int]) -> None:
                try:
                    loop.call_soon_threadsafe(self._woken, lanes, workers)
                except RuntimeError:
                    logger.debug("a wake-up came after the loop was closed")

            self._backend.wakes.listen(wake)

    def _woken(self, lanes: frozenset[int], workers: frozenset[int]) -> None:
        if self._worker is not None:
            self._worker.woken(lanes, workers)
        if self._results is not None and not lanes and not workers:
            self._results.wake()

    async def stop(self, *, timeout: Duration = STOP_TIMEOUT) -> list[str]:
        """Stop executing; see `TaskEngine.stop`. Returns the ids of the runs that were left to the lease."""
        try:
            limit = as_duration(timeout, "timeout")
        except ValueError as error:
            raise UsageError(str(error)) from None
        async with self._changing:
            worker, self._worker = self._worker, None
            if worker is None:
                return []
            try:
                with self._interrupting_after(limit.total_seconds() + _STOP_MARGIN_SECONDS):
                    return await worker.stop(limit)
            finally:
                await self._services.leave()

    async def run(self, *, queues: Sequence[str] = ("default",), concurrency: int = 50, stop_timeout: Duration = STOP_TIMEOUT) -> list[str]:
        """Start, wait for SIGTERM or SIGINT, stop; return the ids of runs that were left. A second signal ends the process at once."""
        loop, told = asyncio.get_running_loop(), asyncio.Event()

        def on_signal() -> None:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
                signal.signal(number, signal.SIG_DFL)
            told.set()

        await self.start(queues=queues, concurrency=concurrency)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, on_signal)
        try:
            await told.wait()
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
            left = await self.stop(timeout=stop_timeout)
        return left

    async def settle_time(self) -> None:
        """The clock was moved by hand: make a timer pass and let bodies look at their timers. For tests that skip time."""
        runtime = await self._open()
        runtime.time.correct(self._settings.now() or self._settings.clock.now())
        if self._worker is not None:
            lanes = await self._worker.claimer.delivery.wake()
            await self._worker.claimer.delivery.end_all_overdue(self._worker.lanes)
            self._worker.time_moved()
            self._worker.nudge(lanes)
