"""What a type checker must know of `def` bodies and of `engine.blocking`, and what it must report."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from typing_extensions import assert_type

from outlast import (
    BlockingContext,
    BlockingEngine,
    BlockingRun,
    CancelOutcome,
    Context,
    RunPage,
    RunStatus,
    RunView,
    Task,
    TaskEngine,
    connect,
    step,
    task,
    task_ref,
)


@dataclass
class Order:
    number: int


class Services:
    name: str = ""


@step
async def fetch(url: str) -> bytes:
    return url.encode()


def size(path: str, unit: int = 1) -> int:
    return len(path) * unit


@task
def bare(ctx: BlockingContext[Services], order: Order) -> str:
    return f"{ctx.services.name}{order.number}"


@task("named", version=2)
def named(ctx: BlockingContext[Services], order: Order) -> int:
    return order.number


@task
def lonely(ctx: BlockingContext) -> list[str]:
    return [ctx.run_id]


@task()
def silent(ctx: BlockingContext) -> None:
    ctx.log.info("%s", ctx.kind)


@task
async def awaited(ctx: Context[Services], order: Order) -> str:
    return f"{ctx.services.name}{order.number}"


def declarations() -> None:
    assert_type(bare, Task[Order, str])
    assert_type(named, Task[Order, int])
    assert_type(lonely, Task[None, list[str]])
    assert_type(silent, Task[None, None])


@task  # expect-error
def wrong_context(ctx: Context[Services], order: Order) -> int:
    return order.number


@task  # expect-error
def crowded(ctx: BlockingContext[Services], order: Order, more: int) -> int:
    return order.number + more


def contexts(ctx: BlockingContext[Services]) -> None:
    assert_type(ctx.step(size, "a"), int)
    assert_type(ctx.step(size, "a", unit=2), int)
    assert_type(ctx.step(fetch, "a"), bytes)
    assert_type(ctx.services, Services)
    assert_type(ctx.now(), datetime)
    assert_type(ctx.uuid(), UUID)
    assert_type(ctx.random(), float)
    ctx.sleep("3s")
    ctx.sleep_until(ctx.now())
    with ctx.timeout("1h"):
        ctx.sleep(1)
    ctx.step(size)  # expect-error
    ctx.step(size, 1)  # expect-error
    ctx.step(fetch, 1)  # expect-error
    ctx.sleep(None)  # expect-error
    ctx.services.nome  # expect-error


async def awaits(ctx: BlockingContext[Services]) -> None:
    await ctx.step(size, "a")  # expect-error
    async with ctx.timeout("1h"):  # expect-error
        pass


def engines() -> None:
    with connect("sqlite:///outlast.db", tasks=[bare, awaited]).blocking as engine:
        assert_type(engine, BlockingEngine)
        assert_type(engine.enqueue(bare, Order(1)), BlockingRun[str])
        assert_type(engine.enqueue(awaited, Order(1), delay="5m", tags=("x",)), BlockingRun[str])
        assert_type(engine.enqueue(lonely, idempotency_key="a"), BlockingRun[list[str]])
        assert_type(engine.enqueue(task_ref("elsewhere", 2, Order, str), Order(1)), BlockingRun[str])
        assert_type(engine.enqueue_many(bare, [Order(1)]), list[BlockingRun[str]])
        assert_type(engine.handle(bare, "id"), BlockingRun[str])
        assert_type(engine.get("id").status, RunStatus)
        assert_type(engine.find("id"), RunView | None)
        assert_type(engine.cancel("id", reason="no"), CancelOutcome)
        assert_type(engine.stop(timeout="5s"), list[str])
        assert_type(engine.run(concurrency=3), list[str])
        assert_type(engine.inspector.list_runs(limit=3), RunPage)
        assert_type(engine.operator.retry("id", actor="me", reason="again"), RunView)
        engine.enqueue(bare)  # expect-error
        engine.enqueue(bare, 3)  # expect-error
        engine.enqueue(lonely, Order(1))  # expect-error
        engine.enqueue(bare, Order(1), key="a")  # expect-error
        engine.enqueue_many(bare, ["a"])  # expect-error
        engine.cancel("id")  # expect-error
        engine.operator.retry("id")  # expect-error


async def mixed(engine: BlockingEngine) -> None:
    await engine.enqueue(bare, Order(1))  # expect-error
    port: TaskEngine = engine  # expect-error
    print(port)


def runs(run: BlockingRun[list[str]]) -> None:
    assert_type(run.result(), list[str])
    assert_type(run.result(timeout=60), list[str])
    assert_type(run.view(), RunView)
    assert_type(run.created, bool)
    assert_type(run.id, str)
    run.result(60)  # expect-error
    run.cancel()  # expect-error
