"""A hint that anything may have changed costs an idle worker one look, and never keeps it from claiming what it has seen."""

import asyncio
from pathlib import Path

from outlast import Context, connect, task
from outlast.events import Event


@task
async def nothing(ctx: Context) -> None:
    pass


def test_hints_without_end_do_not_starve_the_claim(tmp_path: Path) -> None:
    """While a hint comes with every look, as beside a busy neighbour, runs that another engine enqueues are claimed and end."""

    async def use() -> None:
        url = f"sqlite:///{tmp_path / 'x.db'}"
        async with connect(url, tasks=[nothing]) as worker, connect(url, tasks=[nothing]) as client:
            await worker.start()

            loop = asyncio.get_running_loop()

            def hint(event: Event) -> None:
                if event.name == "before_store" and event.facts["call"] == "look":
                    loop.call_soon_threadsafe(worker._worker.woken, frozenset(), frozenset())

            worker.events.subscribe(hint)
            for _ in range(3):
                run = await client.enqueue(nothing)
                assert await run.result(timeout=30) is None

    asyncio.run(use())
