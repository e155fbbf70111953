"""A worker process of the load: it says in its journal what its engine says, and can be given a planted bug by the environment."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from pathlib import Path

from outlast import connect
from outlast.events import Event

from .journal import Journal, end_with_parent
from .load import TASKS, Witness
from .planted import plant_from_environment

HEARD = {
    "worker_started",
    "worker_stopped",
    "worker_ended",
    "lease_lost",
    "run_started",
    "run_parked",
    "run_ended",
    "run_recovered",
    "run_told",
    "write_refused",
    "commit_unknown",
    "store_unavailable",
    "store_available",
}


async def execute(options: argparse.Namespace) -> None:
    journal = Journal(options.journal)
    tasks = [declared for declared in TASKS if f"{declared.name}:{declared.version}" != options.without]
    journal.add("declares", tasks=[[declared.name, declared.version] for declared in tasks])
    heard = HEARD | ({"before_store"} if options.counts else set())

    def note(event: Event) -> None:
        if event.name in heard:
            journal.add(event.name, **event.facts)

    witness = Witness(journal, options.journal.parent)
    async with connect(options.url, tasks=tasks, services=witness, lease=options.lease, name=options.name) as engine:
        engine.events.subscribe(note)
        await engine.run(concurrency=options.concurrency, stop_timeout=5)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("journal", type=Path)
    parser.add_argument("--name", required=True)
    parser.add_argument("--lease", default="2s")
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--without", default="", help="kind:version that this worker does not have")
    parser.add_argument("--counts", action="store_true", help="note every transaction")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(message)s")
    end_with_parent()
    plant_from_environment()
    asyncio.run(execute(options))


if __name__ == "__main__":
    main()
