"""Crafted evidence: a small trial in which everything holds, written by hand, for tests that change one thing in it."""

from __future__ import annotations

import copy
from typing import Any

from .evidence import Change, Evidence

RUN, OTHER, WORKER, NEXT = "run-1", "run-2", 11, 12
KEYS = ("add", "add:1", "compute")
_RUN = {"id": RUN, "kind": "chain", "version": 1, "generation": 0, "recoveries": 0, "cancel_requested_at": None, "finished_at": None}
_WORKER = {"id": WORKER, "name": "worker0-1", "is_alive": 1, "beat": 1, "lease_until": 12.0, "end": None}


class Story:
    """Builds evidence: each call is one committed change or one line, in order."""

    def __init__(self) -> None:
        self.evidence = Evidence(
            facts=dict(FACTS), tables={name: [] for name in ("run", "run_body", "run_key", "step", "step_failure", "wait", "activity", "worker")}
        )
        self._rows: dict[tuple[str, Any], dict[str, Any]] = {}

    def change(self, place: str, key: Any, at: float, row: dict[str, Any] | None = None, **changes: Any) -> None:
        old = self._rows.get((place, key))
        new = {**(old or row or {}), **changes}
        self._rows[place, key] = new
        self.evidence.changes.append(Change(len(self.evidence.changes) + 1, at, place, copy.deepcopy(old), copy.deepcopy(new)))

    def worker_line(self, file: str, event: str, at: float, **facts: Any) -> None:
        self.evidence.worker_lines.append({"file": file, "event": event, "at": at, "pid": 100, **facts})

    def client_line(self, event: str, at: float, call: str, **facts: Any) -> None:
        self.evidence.client_lines.append({"file": "client0-1", "event": event, "at": at, "call": call, **facts})

    def fault_line(self, event: str, at: float, **facts: Any) -> None:
        self.evidence.fault_lines.append({"file": "faults", "event": event, "at": at, **facts})

    def step(self, key: str, at: float, token: int, file: str = "worker0-1") -> None:
        """A step that begins, ends, is recorded and handed over."""
        facts = {"run": RUN, "key": key, "token": token, "attempt": 1, "by": f"by-{key}-{token}"}
        name, _, number = key.partition(":")
        self.worker_line(file, "step_begun", at, **facts)
        self.worker_line(file, "step_ended", at + 0.2, **facts, value=4)
        record = {"run": RUN, "generation": 0, "path": "", "name": name, "number": int(number or 0), "kind": "step", "outcome": "result"}
        self.change("step", key, at + 0.3, {**record, "token": token, "attempts": 1, "result": {"value": 4, "by": facts["by"]}})
        self.worker_line(file, "handed", at + 0.4, run=RUN, key=key, value=4, by=facts["by"])

    def finish(self) -> Evidence:
        """Put the last state of every row into the tables."""
        for (place, _), row in self._rows.items():
            self.evidence.tables[place].append(row)
        return self.evidence


FACTS = {
    "database": "postgres",
    "lease": 2.0,
    "seconds": 1.0,
    "settle_seconds": 20,
    "machine_seconds": 4.0,
    "recovery_seconds": 1.0,
    "healed_at": 30.0,
    "over_at": 60.0,
    "idle": [{"queries_a_second": 1.5, "cpu_share": 0.01, "counted_by": "the worker"}],
    "self_check": [],
}


def healthy() -> Evidence:
    """One run of `chain`: claimed, its worker killed after the first step, taken over, ended; a second run, canceled before it ran; calls."""
    story = Story()
    story.change("worker", WORKER, 9.0, dict(_WORKER))
    story.change("worker", NEXT, 9.0, {**_WORKER, "id": NEXT, "name": "worker1-1", "lease_until": 99.0})
    for file in ("worker0-1", "worker1-1"):
        story.worker_line(file, "declares", 9.0, tasks=[["chain", 1]])
    story.client_line("invoke", 10.0, "client0-1-1", op="enqueue", kind="chain", version=1, key="k", input={"nonce": "n1", "number": 1})
    story.change("run", RUN, 10.1, {**_RUN, "status": "pending", "token": 0, "worker": None, "due_at": 10.1})
    story.client_line("ok", 10.2, "client0-1-1", value={"run": RUN, "created": True})
    story.change("run", RUN, 10.3, status="running", token=1, worker=WORKER, due_at=None)
    story.worker_line("worker0-1", "run_started", 10.3, run=RUN, kind="chain", token=1)
    story.worker_line("worker0-1", "body_begun", 10.3, run=RUN, kind="chain", version=1, nonce="n1")
    story.step("add", 10.4, 1)
    story.change("worker", WORKER, 10.9, beat=2, lease_until=12.9)
    _takeover(story)
    _second_run(story)
    story.client_line("invoke", 40.0, "client0-1-9", op="get", run=RUN)
    story.client_line("ok", 40.1, "client0-1-9", value={"status": "succeeded"})
    return story.finish()


def _takeover(story: Story) -> None:
    story.worker_line("worker0-1", "step_begun", 10.9, run=RUN, key="add:1", token=1, attempt=1, by="by-cut-off")
    story.fault_line("fault", 11.0, fault="kill_executor", slot="worker0", landed=True, child=100)
    story.fault_line("exited", 11.0, name="worker0-1", slot="worker0", child=100, code=-9)
    story.change("worker", WORKER, 13.0, is_alive=0, end="dead")
    story.change("run", RUN, 13.1, recoveries=1)
    story.change("run", RUN, 13.1, status="pending", worker=None, due_at=13.1)
    story.change("run", RUN, 13.2, status="running", token=2, worker=NEXT, due_at=None)
    story.worker_line("worker1-1", "run_started", 13.2, run=RUN, kind="chain", token=2)
    story.worker_line("worker1-1", "body_begun", 13.2, run=RUN, kind="chain", version=1, nonce="n1")
    story.step("add:1", 13.3, 2, "worker1-1")
    story.step("compute", 14.0, 2, "worker1-1")
    story.change("run", RUN, 14.6, status="succeeded", worker=None, finished_at=14.6)
    story.worker_line("worker1-1", "run_ended", 14.7, run=RUN, kind="chain", status="succeeded")
    output = [[key, 4, f"by-{key}-{1 if key == 'add' else 2}"] for key in KEYS]
    body = {"run": RUN, "input": {"nonce": "n1", "number": 1}, "output": output, "error": None, "idempotency_key": "k"}
    story.evidence.tables["run_body"].append(body)
    story.evidence.tables["run_key"].append({"kind": "chain", "key": "k", "run": RUN, "ended_status": "succeeded"})


def _second_run(story: Story) -> None:
    story.client_line("invoke", 20.0, "client0-1-2", op="enqueue_many", kind="chain", version=1, keys=None, inputs=[{"nonce": "n2", "number": 2}])
    story.change("run", OTHER, 20.1, {**_RUN, "id": OTHER, "status": "waiting", "token": 0, "worker": None, "due_at": 25.0})
    story.client_line("ok", 20.2, "client0-1-2", value={"runs": [OTHER], "created": [True]})
    story.client_line("invoke", 21.0, "client0-1-3", op="cancel", run=OTHER)
    story.change("run", OTHER, 21.1, cancel_requested_at=21.1)
    story.change("run", OTHER, 21.1, status="canceled", due_at=None, finished_at=21.1)
    story.client_line("ok", 21.2, "client0-1-3", value={"outcome": "canceled"})
    body = {"run": OTHER, "input": {"nonce": "n2", "number": 2}, "output": None, "error": None, "idempotency_key": None}
    story.evidence.tables["run_body"].append(body)
