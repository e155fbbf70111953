"""A directed scenario: the moves of workers and callers that a guard of the store must refuse, one run for each guard, without any chance.

It is played over the real store in a process of its own, which may have a planted bug, and is noted as in a trial: what a
worker is told, it logs, and goes on as it would. Whether all of it was right the checker says.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from outlast import connect, ids
from outlast.connect import backends
from outlast.database.transaction import RefusedError
from outlast.errors import LeaseLostError
from outlast.native.history import Outcome, Record, RecordKind, Wait
from outlast.native.settings import Settings
from outlast.native.store import Checkpoint, ClaimedRun, LaneName, NewWorker, RunCheckpoint, StepCheckpoint
from outlast.native.transitions import recovery_of
from outlast.run import RunStatus
from outlast.step_key import StepKey

from .client import Client
from .journal import Journal
from .load import KEYS, TASKS, Order, chain, nap
from .planted import plant_from_environment


class Actor:
    """A worker, played by hand."""

    def __init__(self, backend: Any, journal: Journal, name: str, lane_kinds: Sequence[tuple[str, int]]) -> None:
        self.backend = backend
        self.journal = journal
        self.id = ids.worker_id()
        self._seqs = itertools.count()
        self._marks = itertools.count()
        self._name = name
        journal.add("declares", tasks=[list(kind) for kind in lane_kinds])
        names = [LaneName("default", kind, version) for kind, version in lane_kinds]
        with backend.database.transaction() as tx:
            lanes = backend.store.ensure_lanes(tx, names)
            backend.store.record_worker(tx, NewWorker(self.id, name, "a process", timedelta(seconds=30), tuple(lanes.values()), "{}"))
        journal.add("worker_started", worker=self.id)

    def claim(self, run_id: str) -> ClaimedRun | None:
        with self.backend.database.transaction() as tx:
            self.backend.store.fence(tx, self.id)
            claimed = self.backend.store.claim_runs(tx, self.id, [run_id], 1)
        claims: list[ClaimedRun] = claimed()
        for claim in claims:
            self.journal.add("run_started", run=claim.id, kind=claim.kind, token=claim.token)
        return claims[0] if claims else None

    def begin(self, claim: ClaimedRun, key: str) -> dict[str, Any]:
        facts = {"run": claim.id, "key": key, "token": claim.token, "attempt": 1, "by": f"{self._name}-{next(self._marks)}"}
        self.journal.add("step_begun", **facts)
        return facts

    def record(self, claim: ClaimedRun, facts: dict[str, Any], value: int = 4) -> bool:
        """Write a step's result as its claim; return whether it was kept, and log that the body was handed it."""
        name, _, number = facts["key"].partition(":")
        key = StepKey((), name, int(number or 0))
        now = datetime.now(UTC)
        record = Record(key, next(self._seqs), RecordKind.STEP, Outcome.RESULT, "", 1, now, json.dumps({"value": value, "by": facts["by"]}), None, now)
        self.journal.add("step_ended", **facts, value=value)
        is_kept = self.commit(StepCheckpoint(claim.hold, claim.generation, record))
        if is_kept:
            self.journal.add("handed", run=claim.id, key=facts["key"], value=value, by=facts["by"])
        return is_kept

    def commit(self, checkpoint: Checkpoint) -> bool:
        """Write one checkpoint after the fence; return whether it was kept, and log a refusal."""
        try:
            with self.backend.database.transaction() as tx:
                self.backend.store.fence(tx, self.id)
                refused = self.backend.store.commit_checkpoints(tx, [checkpoint])
            is_kept = not refused()
        except (LeaseLostError, RefusedError):
            is_kept = False
        if not is_kept:
            self.journal.add("write_refused", run=checkpoint.hold.run_id, token=checkpoint.hold.token)
        return is_kept

    def let_go(self, claim: ClaimedRun, status: RunStatus, **options: Any) -> bool:
        checkpoint = RunCheckpoint(claim.hold, claim.generation, status, idempotency_key=claim.idempotency_key, **options)
        is_kept = self.commit(checkpoint)
        if is_kept:
            self.journal.add("run_ended" if status.is_terminal else "run_parked", run=claim.id, status=status)
        return is_kept

    def finish(self, claim: ClaimedRun) -> None:
        """Do what is left of a run and end it, as long as it is not refused."""
        with self.backend.database.reading() as tx:
            steps = self.backend.store.list_steps(tx, claim.id)
        marks = {step.key: json.loads(step.result) for step in steps if step.result}
        for key in KEYS[claim.kind, claim.version](json.loads(claim.input)["number"]) or ():
            if key not in marks:
                facts = self.begin(claim, key)
                if not self.record(claim, facts):
                    return
                marks[key] = {"value": 4, "by": facts["by"]}
        output = [[key, mark["value"], mark["by"]] for key, mark in marks.items()]
        self.let_go(claim, RunStatus.SUCCEEDED, output=json.dumps(output))


class Scenario:
    """Two workers, a caller, and one run for each guard."""

    def __init__(self, engine: Any, backend: Any, folder: Path) -> None:
        self._engine = engine
        self._backend = backend
        self._folder = folder
        self._client = Client(engine, Journal(folder / "client0-1.jsonl"), "client0-1", "directed")
        self._numbers = itertools.count(1)
        self._one, self._other = self._actor(0), self._actor(1)

    def _actor(self, number: int) -> Actor:
        kinds = [(declared.name, declared.version) for declared in TASKS]
        return Actor(self._backend, Journal(self._folder / f"worker{number}-1.jsonl"), f"worker{number}-1", kinds)

    async def play(self) -> None:
        await self.claim_what_is_held()
        await self.write_with_an_old_token()
        await self.write_over_a_record()
        await self.act_after_being_ended()
        await self.succeed_after_a_cancel()
        await self.be_canceled_while_waiting()
        await self.use_a_key_twice()

    async def _enqueue(self, task: Any = chain, key: str | None = None, nonce: str = "") -> str:
        order = Order(nonce or f"directed-{next(self._numbers)}", 1)
        ids_made: list[str] = []

        async def make() -> Any:
            run = await self._engine.enqueue(task, order, idempotency_key=key)
            ids_made.append(run.id)
            return {"run": run.id, "created": run.created}

        await self._client.called("enqueue", make, kind=task.name, version=task.version, key=key, input=asdict(order))
        return ids_made[0]

    async def _claimed(self, actor: Actor, run_id: str) -> ClaimedRun:
        claim = actor.claim(run_id)
        assert claim is not None, f"run {run_id} could not be claimed"
        return claim

    async def claim_what_is_held(self) -> None:
        run_id = await self._enqueue()
        claim = await self._claimed(self._one, run_id)
        stolen = self._other.claim(run_id)
        (self._other if stolen else self._one).finish(stolen or claim)

    async def write_with_an_old_token(self) -> None:
        """One hands the run back; the other claims it; then what the first had begun comes to an end."""
        run_id = await self._enqueue()
        old = await self._claimed(self._one, run_id)
        begun = self._one.begin(old, "add")
        self._one.let_go(old, RunStatus.PENDING)
        new = await self._claimed(self._other, run_id)
        self._one.record(old, begun, value=7)
        self._other.finish(new)

    async def write_over_a_record(self) -> None:
        run_id = await self._enqueue()
        claim = await self._claimed(self._one, run_id)
        self._one.record(claim, self._one.begin(claim, "add"))
        again = {"run": run_id, "key": "add", "token": claim.token, "attempt": 1, "by": "nobody"}
        self._one.record(claim, again, value=9)
        self._one.finish(claim)

    async def act_after_being_ended(self) -> None:
        """A worker cannot be called silent while its lease lasts; once it has ended it neither renews nor writes."""
        ended = self._actor(2)
        run_id = await self._enqueue()
        claim = await self._claimed(ended, run_id)
        begun = ended.begin(claim, "add")
        store, database = self._backend.store, self._backend.database
        with database.transaction() as tx:
            store.end_worker(tx, ended.id, "silent", is_silent=True)
        with database.transaction() as tx:
            store.end_worker(tx, ended.id, "stopped")
        with database.transaction() as tx:
            store.renew_worker(tx, ended.id)
        ended.record(claim, begun)
        with database.transaction() as tx:
            store.recover_runs(tx, [recovery_of(orphan) for orphan in store.list_orphans(tx, 10)])
        self._one.finish(await self._claimed(self._one, run_id))

    async def succeed_after_a_cancel(self) -> None:
        run_id = await self._enqueue()
        claim = await self._claimed(self._one, run_id)
        await self._cancel(run_id)
        if not self._one.let_go(claim, RunStatus.SUCCEEDED, output="[]"):
            self._one.let_go(claim, RunStatus.CANCELED, passes_cancel=True)

    async def be_canceled_while_waiting(self) -> None:
        run_id = await self._enqueue(nap)
        claim = await self._claimed(self._one, run_id)
        self._one.record(claim, self._one.begin(claim, "add"))
        due_at = datetime.now(UTC) + timedelta(hours=1)
        self._one.let_go(claim, RunStatus.WAITING, due_at=due_at, waits=(Wait(StepKey((), "sleep", 0), RecordKind.SLEEP, due_at),))
        await self._cancel(run_id)
        self._one.let_go(await self._claimed(self._one, run_id), RunStatus.CANCELED, passes_cancel=True)

    async def use_a_key_twice(self) -> None:
        first = await self._enqueue(key="a key", nonce="of a key")
        second = await self._enqueue(key="a key", nonce="of a key")
        for run_id in {first, second}:
            self._one.finish(await self._claimed(self._one, run_id))

    async def _cancel(self, run_id: str) -> None:
        async def make() -> Any:
            return {"outcome": await self._engine.cancel(run_id, reason="a test")}

        await self._client.called("cancel", make, run=run_id)


async def play(url: str, folder: Path) -> None:
    backend, pulse = backends(url, Settings({}))
    try:
        async with connect(url, tasks=TASKS) as engine:
            await Scenario(engine, backend, folder).play()
    finally:
        backend.database.close()
        pulse.database.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    plant_from_environment()
    asyncio.run(play(options.url, options.folder))


if __name__ == "__main__":
    main()
