"""A worker of a recipe in a process of its own: `python FILE ORDER`, ORDER as JSON. It may be told to kill itself at a call, or to hold it.

The recipe's own files are on its path, as the page shows them; nothing of them is changed but the one function at which the
process is to be killed. It prints the run's result as JSON. A call is held until a file `go` is in the recipe's folder.
"""

import asyncio
import dataclasses
import importlib
import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine

from outlast import connect
from outlast.task import Task

SERVICES = {
    "charging": lambda module, world: module.Payments(world),
    "pricing": lambda module, world: create_engine(world),
    "publishing": lambda module, world: module.Bucket(world),
    "reporting": lambda module, world: Path(world),
}


def stop_at(place: str, moment: str, folder: Path) -> None:
    """Have the process killed before or after its first call of `module:name`; or have that call held before it is made."""
    module_name, _, path = place.partition(":")
    owner: Any = importlib.import_module(module_name)
    *outer, name = path.split(".")
    for part in outer:
        owner = getattr(owner, part)
    original = getattr(owner, name)

    def watched(*args: Any, **kwargs: Any) -> Any:
        if moment == "held":
            hold(folder)
        if moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        value = original(*args, **kwargs)
        if moment == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return value

    setattr(owner, name, watched)


def hold(folder: Path) -> None:
    """Say so in a file, and wait for another one."""
    (folder / "held").touch()
    patience = threading.Event()
    while not (folder / "go").exists():
        patience.wait(0.05)


def plain(value: Any) -> Any:
    return dataclasses.asdict(value) if dataclasses.is_dataclass(value) else value  # type: ignore[arg-type]  # an instance


async def main(order: dict[str, Any]) -> None:
    recipe = importlib.import_module(order["module"])
    task: Task[Any, Any] = getattr(importlib.import_module(order.get("task_module", order["module"])), order["task"])
    given = order["input"]
    if order["input_type"]:
        given = getattr(recipe, order["input_type"])(**given)
    services = SERVICES[order["module"]](recipe, order["world"])
    async with connect(order["url"], tasks=[task], services=services, lease=order.get("lease", "30s")) as engine:
        await engine.start()
        run = await engine.enqueue(task, given, idempotency_key="once")
        sys.stdout.write(json.dumps(plain(await run.result(timeout=100))))


if __name__ == "__main__":
    ordered = json.loads(sys.argv[1])
    sys.path.insert(0, ordered["folder"])
    importlib.import_module(ordered["module"])
    if ordered.get("stop"):
        stop_at(*ordered["stop"], Path(ordered["folder"]))
    asyncio.run(main(ordered))
