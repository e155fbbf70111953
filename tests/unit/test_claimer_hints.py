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


def test_an_idle_worker_looks_for_the_oldest_only_when_not_everything_fits(tmp_path: Path) -> None:
    """One look is enough for a run that comes alone; of more than there are slots it still has to know who has waited longest."""

    async def use() -> None:
        url = f"sqlite:///{tmp_path / 'x.db'}"
        async with connect(url, tasks=[nothing]) as engine:
            looks: list[str] = []
            idle = asyncio.Event()

            def note(event: Event) -> None:
                looks.append(event.facts["call"]) if event.name == "before_store" else None
                if event.name == "after_store" and event.facts["call"] == "look":
                    loop.call_soon_threadsafe(idle.set)

            loop = asyncio.get_running_loop()
            engine.events.subscribe(note)
            await engine.start(concurrency=2)
            for count, probes in ((1, 1), (4, 2)):
                await asyncio.wait_for(idle.wait(), 30)
                looks.clear()
                runs = await engine.enqueue_many(nothing, [None] * count)
                await runs[0].result(timeout=30)
                assert looks[: looks.index("claim_runs")].count("probe_lanes") == probes
                for run in runs:
                    await run.result(timeout=30)
                idle.clear()

    asyncio.run(use())
