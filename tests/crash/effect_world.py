"""A world of effects: a database whose changes are noted, a provider that is never killed, and workers that are."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from outlast import connect

from .effect_checker import Change, Evidence, check_effects
from .effect_child import Job, buy
from .ledger_rows import Row, note_changes, read_changes, read_rows
from .world import PATIENCE, Child, World

CHILD = Path(__file__).with_name("effect_child.py")
PROVIDER = Path(__file__).with_name("provider.py")


async def migrate(url: str) -> None:
    async with connect(url) as engine:
        await engine.migrate()


class ProviderProcess:
    """The provider's process, as a test sees it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.child = world._start(str(world.folder), "--database", world.url, program=PROVIDER)
        _, orders, self._control = self.child.wait_for("listening").split()
        (world.folder / "provider").write_text(orders)

    def say(self, name: str, *words: str, looks: tuple[str, ...] = ()) -> None:
        """Tell it how to treat the next orders, and the next looks, of a name: one word each."""
        self._post("/say", {"name": name, "words": words, "look_words": looks})

    def release(self, name: str, *tags: str) -> None:
        """Let go what is held of a name under these tags."""
        self._post("/say", {"name": name, "released": tags})

    def refuse(self) -> None:
        """Refuse every connection until `accept`."""
        self._post("/refuse", {})

    def accept(self) -> None:
        self._post("/accept", {})

    def _post(self, path: str, body: dict[str, Any]) -> None:
        request = urllib.request.Request(f"http://127.0.0.1:{self._control}{path}", json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            answer.read()

    def lines(self, event: str = "", **facts: Any) -> list[Row]:
        path = self._world.folder / "provider.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [line for line in lines if line["event"] == (event or line["event"]) and facts.items() <= line.items()]

    def wait_for(self, event: str, *, count: int = 1, **facts: Any) -> Row:
        """Wait until it has noted this for the `count`th time."""
        self._world.wait_until(f"the provider noted {event} {facts or ''} {count} times", lambda: len(self.lines(event, **facts)) >= count)
        return self.lines(event, **facts)[count - 1]


class EffectWorld(World):
    """See the file's description."""

    def __enter__(self) -> EffectWorld:
        asyncio.run(migrate(self.url))
        note_changes(self.url)
        self.provider = ProviderProcess(self)
        return self

    def worker(self, *options: str) -> Child:
        return self._start(self.url, *options, program=CHILD)

    def accept(self, *jobs: Job) -> list[str]:
        """Enqueue one run for each job, from this process, and return their ids."""

        async def enqueue() -> list[str]:
            async with connect(self.url, tasks=(buy,)) as engine:
                return [(await engine.enqueue(buy, job)).id for job in jobs]

        return asyncio.run(enqueue())

    def decide(self, decision: str, answer: str, **given: Any) -> None:
        """Answer a decision from this process, which executes nothing."""

        async def answered() -> None:
            async with connect(self.url, tasks=(buy,)) as engine:
                await engine.operator.decide(decision, answer, actor="a test", **given)

        asyncio.run(answered())

    def cancel(self, run: str) -> None:
        async def canceled() -> None:
            async with connect(self.url, tasks=(buy,)) as engine:
                await engine.cancel(run, reason="to see what comes of it")

        asyncio.run(canceled())

    def retry(self, run: str) -> None:
        async def retried() -> None:
            async with connect(self.url, tasks=(buy,)) as engine:
                await engine.operator.retry(run, actor="a test", reason="to see what comes of it")

        asyncio.run(retried())

    # --- what is there ---------------------------------------------------------------------------------------------------
    def rows(self, table: str) -> list[Row]:
        return read_rows(self.url, table)

    def operation(self) -> Row:
        """Return the only operation, with its attempts by number."""
        (row,) = self.rows("operation")
        return row | {"attempts": sorted(self.rows("operation_attempt"), key=lambda attempt: attempt["number"])}

    def wait_for_decision(self, *, count: int = 1) -> Row:
        """Wait until a decision is open, the `count`th that was ever asked, and return it."""
        self.wait_until(f"decision {count} is open", lambda: len(self.rows("decision")) >= count and self.open_decisions() != [])
        (decision,) = self.open_decisions()
        return decision

    def open_decisions(self) -> list[Row]:
        return [row for row in self.rows("decision") if row["state"] == "open"]

    def wait_for_status(self, run: str, *statuses: str) -> str:
        self.wait_until(f"run {run} is {' or '.join(statuses)}", lambda: self.status(run) in statuses)
        return self.status(run)

    def status(self, run: str) -> str:
        return {str(row["id"]): str(row["status"]) for row in self.rows("run")}[run]

    def output(self, run: str) -> Any:
        return {str(row["run"]): row["output"] for row in self.rows("run_body")}[run]

    def evidence(self) -> Evidence:
        return Evidence([Change(*change) for change in read_changes(self.url)], self.provider.lines())

    def check(self, *, executed: int | None = None) -> None:
        """Hold S25 and S26, and how often the provider executed anything."""
        evidence = self.evidence()
        found = check_effects(evidence)
        assert not found, "\n".join(map(str, found))
        assert evidence.lines("arrived"), "the provider was never asked for anything"
        if executed is not None:
            assert len(evidence.lines("executed")) == executed, evidence.lines("executed")


@contextlib.contextmanager
def effect_world(url: str, folder: Path) -> Iterator[EffectWorld]:
    folder.mkdir(exist_ok=True)
    with EffectWorld(url, folder) as world:
        yield world


def until(instant: float) -> None:
    """Wait until an instant that stands in a row."""
    time.sleep(max(0.0, instant - time.time()))
