"""A server that goes silent behind a living connection: a stop ends in its time all the same, and says what it left."""

import asyncio
from collections.abc import Iterator

import pytest

from outlast import Context, connect, step, task

from .tcp_proxy import TcpProxy


@pytest.fixture
def proxy(postgres_url: str) -> Iterator[TcpProxy]:
    proxy = TcpProxy(postgres_url)
    yield proxy
    proxy.close()


@step
async def forever() -> None:
    await asyncio.Event().wait()


@task
async def stays(ctx: Context) -> None:
    await ctx.step(forever)


def test_a_stop_ends_although_the_server_is_silent(proxy):
    """With a black hole instead of a server, `close` gives up the calls that it waits for, and returns."""

    async def main() -> None:
        engine = connect(proxy.url, tasks=(stays,))
        begun = asyncio.Event()
        engine.events.subscribe(lambda event: begun.set() if event.name == "step_attempt_started" else None)
        await engine.start()
        await engine.enqueue(stays)
        await asyncio.wait_for(begun.wait(), 60)
        proxy.passing.clear()
        try:
            await asyncio.wait_for(engine.close(timeout=2), 60)  # far from both: a stop that waits for the server never ends
        finally:
            proxy.passing.set()

    asyncio.run(main())
