"""Portal: the way from plain threads to the event loop that an engine lives on.

An engine that was opened on a loop of the application's is reached there. One that was not is opened on a loop of the
portal's own, in a background thread that begins with the first call and ends with `close`. A call waits in the calling
thread; interrupted there, it is canceled on the loop and the engine stays usable. It must never be used on a thread
where a loop runs: the call would block what it waits for.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
import queue
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

from outlast.branch import NO_BODY
from outlast.errors import UsageError
from outlast.limits import PORTAL_END

R = TypeVar("R")
logger = logging.getLogger("outlast")

_LOOK_SECONDS = 1.0  # how often a waiting call looks whether its loop is still there
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Portal:
    """Calls of one engine from plain threads. Safe to use from any number of them."""

    def __init__(self, engine_loop: Callable[[], asyncio.AbstractEventLoop | None]) -> None:
        self._engine_loop = engine_loop
        self._own: _LoopThread | None = None
        self._changing = threading.Lock()
        self._is_closed = False

    def call(self, make: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """Run what `make` returns on the engine's loop and return its result, or raise what it raises.

        Raises `UsageError` where a loop runs in the calling thread, after a fork, and when the engine was closed.
        """
        return self._run(self._loop(make), make)

    @property
    def has_own_loop(self) -> bool:
        """True while the engine lives on the portal's own loop."""
        return self._own is not None

    def close(self, make: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Close the engine with what `make` returns, and end the own loop and its thread. It may be called twice.

        In a child that was forked after the opening it does nothing: what was opened is the parent's.
        """
        if self._is_closed or (self._own is not None and self._own.process != os.getpid()):
            return
        self._run(self._loop(make), make)
        with self._changing:
            self._is_closed = True
            own, self._own = self._own, None
        if own is not None:
            own.end()

    def _loop(self, make: Callable[..., object]) -> asyncio.AbstractEventLoop:
        if _running_loop() is not None:
            raise UsageError(
                f"engine.blocking was used in the thread of a running event loop, which it would block: await the engine's own {_method(make)} there"
            )
        if self._own is not None and self._own.process != os.getpid():
            raise UsageError("the process was forked after the engine was opened: connect again in the child")
        with self._changing:
            if self._is_closed:
                raise UsageError("this engine is closed: make another with connect(...)")
            loop = self._engine_loop()
            if loop is None:
                if self._own is None:
                    self._own = _LoopThread()
                loop = self._own.loop
            if loop.is_closed():
                raise UsageError("the event loop that this engine was opened on has ended: make another engine with connect(...)")
            return loop

    def _run(self, loop: asyncio.AbstractEventLoop, make: Callable[[], Coroutine[Any, Any, R]]) -> R:
        work = make()
        try:  # in a context that names no body and no step: what is called is the engine's work, whoever calls
            future = NO_BODY.copy().run(asyncio.run_coroutine_threadsafe, work, loop)
        except BaseException:
            work.close()
            raise
        try:
            while not concurrent.futures.wait([future], timeout=_LOOK_SECONDS).done:
                if loop.is_closed():
                    raise UsageError("the engine's event loop ended while this call waited; what it asked for may have been done")
        except BaseException:  # Ctrl-C too
            future.cancel()
            raise
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise UsageError("the engine was closed while this call waited; what it asked for may have been done") from None


class _LoopThread:
    """An event loop in a thread of its own. The thread is a daemon: a program that ends without `close` ends, as by a crash."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.loop = asyncio.new_event_loop()
        self._executor = ThreadPoolExecutor(thread_name_prefix="outlast-portal")
        self.loop.set_default_executor(self._executor)
        self._thread = threading.Thread(target=self._run, name="outlast-loop", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        loop = self.loop
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
            tasks = asyncio.all_tasks(loop)
            for task in tasks:
                task.cancel()
            if tasks:
                loop.run_until_complete(asyncio.wait(tasks, timeout=PORTAL_END.total_seconds() / 2))
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            self._executor.shutdown(wait=False)
            asyncio.set_event_loop(None)
            loop.close()

    def end(self) -> None:
        """End what is left on the loop, and the thread; wait for it for a bounded time."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(PORTAL_END.total_seconds())
        if self._thread.is_alive():
            logger.warning("the engine's own loop has not ended within %s; its thread is left behind", PORTAL_END)


@contextmanager
def signals_awaited() -> Iterator[Callable[[], object]]:
    """Give a function that waits for SIGTERM or SIGINT; a second signal ends the process at once. For the main thread only."""
    if threading.current_thread() is not threading.main_thread():
        raise UsageError("run() waits for signals, which Python gives to the main thread only: use start() and stop() in other threads")
    told: queue.SimpleQueue[int] = queue.SimpleQueue()  # an Event's own lock may be held by the very code that a handler interrupts

    def on_signal(number: int, frame: FrameType | None) -> None:
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        told.put(number)

    before = {number: signal.signal(number, on_signal) for number in _SIGNALS}
    try:
        yield told.get
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _method(make: Callable[..., object]) -> str:
    """Return which method of the blocking surface made the call: the function that its lambda was written in."""
    parts = getattr(make, "__qualname__", "").split(".")
    return f"{parts[-3]}()" if len(parts) >= 3 and parts[-1] == "<lambda>" else "method"
