"""What a type checker must know of tasks, references, runs and engines, and what it must report."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from typing_extensions import assert_type

from outlast import CancelOutcome, Context, RetryPolicy, Run, RunStatus, RunView, StepAttempt, Task, TaskEngine, TaskRef, connect, task, task_ref, this_step


@dataclass
class Order:
    number: int


@dataclass
class Express(Order):
    hours: int


class Services:
    name: str = ""


@task
async def bare(ctx: Context[Services], order: Order) -> str:
    return f"{ctx.services.name}{order.number}"


@task("named", version=2, retry=RetryPolicy(maximum_attempts=3, final=(ValueError,)))
async def named(ctx: Context[Services], order: Order) -> int:
    return order.number


@task
async def lonely(ctx: Context) -> list[str]:
    return [ctx.run_id]


@task()
async def silent(ctx: Context[Services]) -> None:
    ctx.log.info("%s", ctx.services.name)


def declarations() -> None:
    assert_type(bare, Task[Order, str])
    assert_type(named, Task[Order, int])
    assert_type(lonely, Task[None, list[str]])
    assert_type(silent, Task[None, None])
    task("later", versions=2)  # expect-error
    task("later", version="2")  # expect-error
    task("later", retry=3)  # expect-error


@task  # expect-error
def blocking(ctx: Context[Services], order: Order) -> int:
    return order.number


@task  # expect-error
async def crowded(ctx: Context[Services], order: Order, more: int) -> int:
    return order.number + more


async def engines(engine: TaskEngine) -> None:
    assert_type(await engine.enqueue(bare, Order(1)), Run[str])
    assert_type(await engine.enqueue(named, Express(1, 2), idempotency_key="a", delay="5m", tags=("x",), headers={"a": "b"}), Run[int])
    assert_type(await engine.enqueue(lonely), Run[list[str]])
    assert_type(await engine.enqueue(silent, priority=-3, deadline=datetime.now(UTC), available_at=datetime.now(UTC)), Run[None])
    await engine.enqueue(bare)  # expect-error
    await engine.enqueue(bare, "a")  # expect-error
    await engine.enqueue(lonely, Order(1))  # expect-error
    await engine.enqueue(bare, Order(1), key="a")  # expect-error
    await engine.enqueue(bare, input=Order(1))  # expect-error
    await engine.enqueue("bare", Order(1))  # expect-error
    engine.enqueue(bare, Order(1))  # expect-error
    assert_type(await engine.find("id"), RunView | None)
    assert_type(await engine.cancel("id", reason="no"), CancelOutcome)
    await engine.cancel("id")  # expect-error
    assert_type((await engine.get("id")).status, RunStatus)


async def references(engine: TaskEngine) -> None:
    assert_type(task_ref("import_asset"), TaskRef[None, None])
    assert_type(task_ref("import_asset", 2, Order, str), TaskRef[Order, str])
    assert_type(task_ref("import_asset", input=Order), TaskRef[Order, None])
    assert_type(task_ref("import_asset", output=str), TaskRef[None, str])
    assert_type(task_ref("import_asset", 2, None, str), TaskRef[None, str])
    assert_type(task_ref("import_asset", version=3, input=list[int], output=dict[str, int]), TaskRef[list[int], dict[str, int]])
    remote = task_ref("import_asset", 2, Order, str)
    assert_type(await engine.enqueue(remote, Order(1)), Run[str])
    await engine.enqueue(remote, 1)  # expect-error
    await engine.enqueue(remote)  # expect-error
    task_ref("import_asset", "2")  # expect-error
    accepted: TaskRef[Order, str] = bare
    refused: TaskRef[Order, int] = bare  # expect-error
    print(accepted, refused)


async def runs(run: Run[list[str]]) -> None:
    assert_type(await run.result(), list[str])
    assert_type(await run.result(timeout=60), list[str])
    assert_type(await run.view(), RunView)
    assert_type(run.created, bool)
    assert_type(run.id, str)
    run.result()  # expect-error
    await run.result(60)  # expect-error
    await run.cancel()  # expect-error


def policies() -> None:
    RetryPolicy(maximum_attempts=3, initial_delay="1s", maximum_delay=timedelta(minutes=1), factor=2, jitter=0.1, final=(ValueError, OSError))
    RetryPolicy(initial_delay=0.5)
    RetryPolicy(attempts=3)  # expect-error
    RetryPolicy(maximum_attempts="3")  # expect-error
    RetryPolicy(final=(3,))  # expect-error
    RetryPolicy(final=ValueError)  # expect-error


def steps() -> None:
    assert_type(this_step(), StepAttempt[Any])
    assert_type(this_step(Services), StepAttempt[Services])
    assert_type(this_step(Services).services, Services)
    assert_type(this_step(Services).services.name, str)
    this_step(Services).services.nome  # expect-error
    this_step(Services).progress("half")  # expect-error
    this_step(3)  # expect-error


async def contexts(ctx: Context[Services], plain: Context) -> None:
    assert_type(ctx.services, Services)
    assert_type(plain.services, Any)
    assert_type(ctx.now(), datetime)
    assert_type(ctx.uuid(), UUID)
    assert_type(ctx.random(), float)
    assert_type(ctx.headers, dict[str, str])
    await ctx.sleep("3s")
    await ctx.sleep_until(ctx.now())
    ctx.services.nome  # expect-error
    await ctx.sleep_until("tomorrow")  # expect-error
    await ctx.sleep(None)  # expect-error


async def connected() -> None:
    engine = connect("sqlite:///outlast.db", tasks=(bare, lonely))
    assert_type(await engine.enqueue(lonely), Run[list[str]])
    assert_type(await engine.enqueue(bare, Order(1), delay="5m"), Run[str])
    await engine.enqueue(bare)  # expect-error
    await engine.enqueue(bare, 3)  # expect-error
    await engine.enqueue(lonely, idempotency_keys="a")  # expect-error
    assert_type(await engine.enqueue_many(bare, [Order(1)]), list[Run[str]])
    await engine.enqueue_many(bare, ["a"])  # expect-error
