"""What a type checker must know of `ctx.step`: results and arguments of every form of function, and what it must report."""

import asyncio
import functools
from dataclasses import dataclass
from datetime import timedelta

from typing_extensions import assert_type

from outlast import NETWORK, Context, RetryPolicy, step


@dataclass
class Order:
    number: int


def size(path: str, unit: int = 1) -> int:
    return len(path) * unit


async def locate(download_id: str, *, deep: bool = False) -> Order:
    return Order(len(download_id) + deep)


@step
async def fetch(url: str) -> bytes:
    return url.encode()


@step(name="count", retry=NETWORK, timeout="30s")
def count(items: list[int]) -> int:
    return len(items)


class Catalogue:
    def register(self, order: Order) -> str:
        return str(order.number)

    async def find(self, name: str) -> Order | None:
        return Order(len(name))

    @step
    async def remove(self, name: str) -> bool:
        return bool(name)

    @step(retry=RetryPolicy(maximum_attempts=7), timeout=timedelta(seconds=3))
    def rename(self, old: str, new: str) -> float:
        return len(old) / len(new)


async def functions(ctx: Context[Catalogue]) -> None:
    assert_type(await ctx.step(size, "a"), int)
    assert_type(await ctx.step(size, "a", unit=2), int)
    assert_type(await ctx.step(locate, "a"), Order)
    assert_type(await ctx.step(locate, "a", deep=True), Order)
    assert_type(await ctx.step(functools.partial(size, "a")), int)
    await ctx.step(size)  # expect-error
    await ctx.step(size, 1)  # expect-error
    await ctx.step(size, "a", 1, 2)  # expect-error
    await ctx.step(size, "a", units=2)  # expect-error
    await ctx.step(locate, "a", deep="yes")  # expect-error
    await ctx.step(size("a"))  # expect-error
    await ctx.step(locate("a"))  # expect-error


async def declared(ctx: Context[Catalogue]) -> None:
    assert_type(await ctx.step(fetch, "a"), bytes)
    assert_type(await ctx.step(count, [1]), int)
    assert_type(await ctx.step(fetch.with_options(name="again", retry=NETWORK, timeout="1m", inserted=True), "a"), bytes)
    assert_type(await ctx.step(step(size).with_options(name="measure"), "a", unit=3), int)
    assert_type(count([1]), int)
    assert_type(await fetch("a"), bytes)
    await ctx.step(fetch, 1)  # expect-error
    await ctx.step(count, ["a"])  # expect-error
    await ctx.step(fetch.with_options(timeout="1m"), 1)  # expect-error
    fetch.with_options(attempts=3)  # expect-error
    step(name=3)  # expect-error
    step(retry=3)  # expect-error


async def methods(ctx: Context[Catalogue]) -> None:
    catalogue = ctx.services
    assert_type(catalogue, Catalogue)
    assert_type(await ctx.step(catalogue.register, Order(1)), str)
    assert_type(await ctx.step(catalogue.find, "a"), Order | None)
    assert_type(await ctx.step(catalogue.remove, "a"), bool)
    assert_type(await ctx.step(catalogue.rename, "a", new="b"), float)
    assert_type(await ctx.step(catalogue.rename.with_options(name="move"), "a", "b"), float)
    await ctx.step(catalogue.register, "a")  # expect-error
    await ctx.step(catalogue.remove, 1)  # expect-error
    await ctx.step(catalogue.rename, "a")  # expect-error
    await ctx.step(catalogue.rename, "a", newer="b")  # expect-error


async def concurrency(ctx: Context[Catalogue]) -> None:
    first = asyncio.create_task(ctx.step(size, "a"))
    assert_type(first, "asyncio.Task[int]")
    assert_type(await first, int)
    assert_type(await asyncio.gather(ctx.step(size, "a"), ctx.step(locate, "b"), ctx.step(fetch, "c")), tuple[int, Order, bytes])
    async with asyncio.TaskGroup() as group:
        found = group.create_task(ctx.step(ctx.services.find, "a"))
    assert_type(found.result(), Order | None)
    assert_type(await asyncio.wait_for(ctx.step(count, [1]), 5), int)
    async with ctx.timeout("7d"):
        assert_type(await ctx.step(count, [1]), int)


async def forgotten(ctx: Context[Catalogue]) -> None:
    ctx.step(size, "a")  # expect-error
    ctx.step(fetch, "a")  # expect-error
    ctx.step(ctx.services.remove, "a")  # expect-error
    ctx.sleep("3s")  # expect-error
    number: int = ctx.step(size, "a")  # expect-error
    print(number)
