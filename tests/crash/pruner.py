"""A program of its own that prunes in small transactions, and is killed in the middle of the one that it is told.

Run as `python pruner.py URL PLACE NUMBER`: PLACE is `before`, `within` or `after` the deletion of that number.
"""

import asyncio
import os
import signal
import sys

from outlast import connect
from outlast.native import pruning

pruning.PRUNE_PAGE = 4


async def prune(url: str, place: str, number: int) -> None:
    async with connect(url) as engine:
        store, passed = engine._backend.store, []
        add = store.add_to_action

        def die(at: str) -> None:
            if (at, len(passed)) == (place, number):
                os.kill(os.getpid(), signal.SIGKILL)

        def within(*arguments: object) -> None:
            add(*arguments)
            die("within")

        def heard(event: object) -> None:
            if event.facts.get("call") == "delete_runs":  # type: ignore[attr-defined]
                if event.name == "before_store":  # type: ignore[attr-defined]
                    passed.append(event)
                    die("before")
                elif event.name == "after_store":  # type: ignore[attr-defined]
                    die("after")

        store.add_to_action = within  # type: ignore[method-assign]
        engine.events.subscribe(heard)
        report = await engine.operator.prune(0, actor="ann", reason="old")
        sys.stdout.write(f"{report.runs}\n")


asyncio.run(prune(sys.argv[1], sys.argv[2], int(sys.argv[3])))
