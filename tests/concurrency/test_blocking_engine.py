"""`engine.blocking` from plain threads: with a loop of its own, beside a running engine, interrupted, forked and closed."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from outlast import (
    BlockingContext,
    BlockingRun,
    CancelOutcome,
    Context,
    FinalError,
    RunFailedError,
    RunNotFoundError,
    RunStatus,
    UnknownTaskError,
    UsageError,
    connect,
    task,
    task_ref,
)
from outlast.native.engine import NativeEngine
from outlast.scope import inside_body

PATIENCE = 60.0


def double(number: int) -> int:
    return 2 * number


@task
async def doubled(ctx: Context, number: int) -> int:
    return await ctx.step(double, number)


@task
def plainly(ctx: BlockingContext, number: int) -> int:
    return ctx.step(double, number)


@task
async def sleeping(ctx: Context) -> None:
    await ctx.sleep("1d")


@task
async def fail(ctx: Context) -> None:
    raise FinalError("no use")


TASKS = (doubled, plainly, sleeping, fail)


@pytest.fixture
def engine(database_url: str) -> Iterator[NativeEngine]:
    """An engine that has not been opened, and is closed at the end if a test left it open."""
    engine = connect(database_url, tasks=TASKS)
    yield engine
    if engine.blocking._portal.has_own_loop:
        engine.blocking.close()
    assert "outlast-loop" not in {thread.name for thread in threading.enumerate()}


def wait_until(what: str, holds) -> None:
    ends_at = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < ends_at, f"never came true: {what}"
        threading.Event().wait(0.01)


def test_a_plain_program_enqueues_and_executes(engine: NativeEngine):
    """Without any loop of the program's own, every part of the surface answers."""
    with engine.blocking as blocking:
        assert blocking is engine.blocking
        blocking.start(concurrency=4)
        run = blocking.enqueue(doubled, 4, idempotency_key="four")
        assert isinstance(run, BlockingRun)
        assert run.created
        assert run.result(timeout=PATIENCE) == 8
        assert not blocking.enqueue(doubled, 4, idempotency_key="four").created
        assert [run.result(timeout=PATIENCE) for run in blocking.enqueue_many(plainly, [1, 2, 3])] == [2, 4, 6]
        assert blocking.handle(doubled, run.id).result() == 8
        assert blocking.get(run.id) == run.view()
        assert blocking.find("00000000-0000-7000-8000-000000000000") is None
        parked = blocking.enqueue(sleeping)
        wait_until("it sleeps", lambda: parked.view().status is RunStatus.WAITING)
        assert parked.cancel(reason="enough") is CancelOutcome.REQUESTED
        assert {worker.is_alive for worker in blocking.inspector.list_workers()} == {True}
        assert [one.key for one in blocking.inspector.get_history(run.id)] == ["double"]
        assert blocking.stop() == []


def test_errors_are_those_of_the_async_engine(engine: NativeEngine):
    """What a caller gets wrong, and how a run ended, is raised in the calling thread."""

    @task
    async def unknown(ctx: Context) -> None: ...

    with engine.blocking as blocking:
        with pytest.raises(UnknownTaskError):
            blocking.enqueue(unknown)
        with pytest.raises(RunNotFoundError):
            blocking.get("00000000-0000-7000-8000-000000000000")
        nobody = blocking.enqueue(task_ref("nobody"))
        with pytest.raises(TimeoutError, match="was not over"):
            nobody.result(timeout=0.05)
        blocking.start()
        failed = blocking.enqueue(fail)
        with pytest.raises(RunFailedError, match="no use"):
            failed.result(timeout=PATIENCE)
        assert blocking.operator.retry(failed.id, actor="test", reason="again").status is RunStatus.PENDING


def test_many_threads_use_one_blocking_engine(engine: NativeEngine):
    """First use at once makes one loop; every call gets its own answer."""
    barrier = threading.Barrier(8)

    def use(number: int) -> int:
        barrier.wait(PATIENCE)
        return engine.blocking.enqueue(doubled, number).result(timeout=PATIENCE)

    def start() -> None:
        barrier.wait(PATIENCE)
        engine.blocking.start()

    with engine.blocking, ThreadPoolExecutor(8) as threads:
        started = threads.submit(start)
        assert list(threads.map(use, range(7))) == [2 * number for number in range(7)]
        started.result()
        assert [thread.name for thread in threading.enumerate()].count("outlast-loop") == 1


def test_a_thread_beside_a_running_engine_uses_its_loop(engine: NativeEngine):
    """No second loop is made, and leaving `with` does not close what the application runs."""

    def use() -> int:
        with engine.blocking as blocking:
            return blocking.enqueue(doubled, 4).result(timeout=PATIENCE)

    async def main() -> None:
        async with engine:
            await engine.start()
            assert await asyncio.to_thread(use) == 8
            assert "outlast-loop" not in {thread.name for thread in threading.enumerate()}
            assert await (await engine.enqueue(doubled, 5)).result(timeout=PATIENCE) == 10

    asyncio.run(main())
    with pytest.raises(UsageError, match="this engine is closed"):
        engine.blocking.enqueue(doubled, 4)


def test_a_loop_that_has_ended_is_named(engine: NativeEngine):
    """An engine whose loop ended without closing it is of no use any more, and a call says so instead of waiting for ever."""
    asyncio.run(engine.find("no run"))
    with pytest.raises(UsageError, match="the event loop that this engine was opened on has ended"):
        engine.blocking.enqueue(doubled, 4)
    asyncio.run(engine.close())


def test_a_step_and_a_def_body_may_use_it(engine: NativeEngine):
    """What is called there is the engine's work: it becomes no branch of the body and takes no number of its calls."""

    def enqueue_in_step(number: int) -> str:
        return worker.enqueue(doubled, number).id

    async def look() -> bool:
        return inside_body()

    @task
    def parent(ctx: BlockingContext) -> list[str]:
        assert inside_body()
        assert not worker._portal.call(look)
        first = worker.enqueue(doubled, 1).id
        return [first, ctx.step(enqueue_in_step, 2), str(ctx.step(double, 3))]

    with connect(engine.url, tasks=[parent, doubled]).blocking as worker:
        worker.start()
        run = worker.enqueue(parent)
        *enqueued, six = run.result(timeout=PATIENCE)
        assert six == "6"
        assert [worker.get(one).kind for one in enqueued] == ["doubled", "doubled"]
        assert [one.key for one in worker.inspector.get_history(run.id)] == ["enqueue_in_step", "double"]


@pytest.mark.parametrize("is_opened", [True, False])
def test_on_the_loop_it_says_what_to_await(engine: NativeEngine, is_opened: bool):
    """There a call would wait for itself; it is refused before anything was begun, and the engine is as it was."""

    async def main() -> None:
        async with engine:
            if is_opened:
                await engine.find("no run")
            with pytest.raises(UsageError, match=r"await the engine's own enqueue\(\) there"):
                engine.blocking.enqueue(doubled, 4)
            await engine.enqueue(doubled, 4)

    asyncio.run(main())


def test_an_engine_lives_on_one_loop(engine: NativeEngine):
    """Once it was opened for plain threads, another loop's coroutines are told so instead of meeting locks of a loop that is not theirs."""
    with engine.blocking as blocking:
        blocking.find("no run")
        with pytest.raises(UsageError, match="opened on another event loop"):
            asyncio.run(engine.find("no run"))
        assert blocking.find("no run") is None


def test_ctrl_c_in_a_call_leaves_the_engine_usable(engine: NativeEngine):
    """The wait ends at once, the run is not touched, and the next call is answered."""
    with engine.blocking as blocking:
        blocking.start()
        run = blocking.enqueue(sleeping)
        wait_until("it sleeps", lambda: run.view().status is RunStatus.WAITING)
        before = signal.signal(signal.SIGINT, signal.default_int_handler)

        def interrupt() -> None:
            wait_until("a waiter is there", lambda: engine._results is not None and engine._results._waiting)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

        interrupter = threading.Thread(target=interrupt)
        interrupter.start()
        try:
            with pytest.raises(KeyboardInterrupt):
                run.result()
        finally:
            interrupter.join()
            signal.signal(signal.SIGINT, before)
        wait_until("nobody waits any more", lambda: not engine._results._waiting)
        assert run.view().status is RunStatus.WAITING
        assert blocking.enqueue(doubled, 4).result(timeout=PATIENCE) == 8


def test_closing_twice_and_using_it_afterwards(engine: NativeEngine):
    """The second close does nothing, and every later call says that the engine is closed, the async ones too."""
    blocking = engine.blocking
    blocking.start()
    blocking.close()
    blocking.close()
    with pytest.raises(UsageError, match="this engine is closed"):
        blocking.enqueue(doubled, 4)
    with pytest.raises(UsageError, match="this engine is closed"):
        asyncio.run(engine.find("no run"))


def test_an_engine_that_was_never_used_is_closed_too(engine: NativeEngine):
    """`with` around nothing opens nothing."""
    with engine.blocking:
        pass
    assert not engine.blocking._portal.has_own_loop
    engine.blocking.close()
    with pytest.raises(UsageError, match="this engine is closed"):
        engine.blocking.find("no run")


def test_a_close_ends_the_calls_that_wait(engine: NativeEngine):
    """A thread that waits for a result when another closes the engine is told, in bounded time."""
    blocking = engine.blocking
    run = blocking.enqueue(doubled, 4)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(run.result)
        wait_until("a waiter is there", lambda: engine._results is not None and engine._results._waiting)
        blocking.close(timeout=1)
        with pytest.raises(UsageError, match="closed"):
            waiting.result(timeout=PATIENCE)


def test_a_forked_child_is_refused(engine: NativeEngine):
    """The loop's thread is the parent's: the child is told to connect again, its close touches nothing, and the parent goes on."""
    with engine.blocking as blocking:
        run = blocking.enqueue(doubled, 4)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                blocking.enqueue(doubled, 5)
            except UsageError as error:
                blocking.close()
                code = 0 if "connect again in the child" in str(error) else 2
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        blocking.start()
        assert run.result(timeout=PATIENCE) == 8


def test_run_belongs_to_the_main_thread(engine: NativeEngine):
    """Elsewhere no signal would ever end it."""
    with engine.blocking as blocking, ThreadPoolExecutor(1) as threads, pytest.raises(UsageError, match="main thread only"):
        threads.submit(blocking.run).result(timeout=PATIENCE)
