"""Enqueues gathered into groups, over a store that refuses, breaks and waits exactly when a test says so."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from outlast.database.transaction import Refusal, RefusedError
from outlast.errors import CommitUnknownError, OutlastError, UnavailableError
from outlast.limits import GROUP_BYTES_MAX, GROUP_RECORDS_MAX
from outlast.native.enqueuer import Enqueuer
from outlast.native.store import Accepted, NewRun

Rule = Callable[[list[str]], None]
SHORTLY = timedelta(milliseconds=300)


def run(name: str, key: str | None = None, input: str = "null") -> NewRun:
    return NewRun(name, 1, "ship", 1, 0, None, None, 1, input, "digest", key, "[]", "{}")


class Bench:
    """An enqueuer over a script. Each transaction waits until `gate` is open, then does what `rule` says."""

    def __init__(self) -> None:
        self.groups: list[list[str]] = []
        self.rule: Rule = lambda group: None
        self.gate = asyncio.Event()
        self.gate.set()
        self.calls = self
        self.store = self
        self.backend = SimpleNamespace(wakes=SimpleNamespace(send_after=self.send_after))
        self.sends = True
        self.told: list[set[int]] = []
        self.tasks: list[asyncio.Task[Any]] = []
        self.enqueuer = Enqueuer(self, self)  # type: ignore[arg-type]  # it plays the runtime, the calls, the store and the wake-ups

    def at(self) -> None:
        return None

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        self.tasks.append(asyncio.get_running_loop().create_task(work))
        return self.tasks[-1]

    async def overlap(self, name: str, function: Callable[[Any], Any]) -> Any:
        await asyncio.sleep(0)
        await self.gate.wait()
        return function(None)()

    def record_runs(self, tx: Any, runs: list[NewRun], now: Any) -> Callable[[], list[Accepted]]:
        self.groups.append([each.id for each in runs])
        self.rule(self.groups[-1])
        return lambda: [Accepted(each.id, True, each.input_digest) for each in runs]

    def send_after(self, tx: Any, lanes: set[int]) -> bool:
        return self.sends

    def wake(self, lanes: set[int]) -> None:
        self.told.append(lanes)

    def accept(self, *runs: NewRun, timeout: timedelta = timedelta(seconds=10)) -> asyncio.Task[list[Accepted]]:
        return asyncio.get_running_loop().create_task(self.enqueuer.accept(list(runs), timeout))


def played(scenario: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
    complaints: list[Any] = []

    async def play() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, complaint: complaints.append(complaint))
        await asyncio.wait_for(scenario(Bench()), 20)
        gc.collect()
        await asyncio.sleep(0)

    asyncio.run(play())
    gc.collect()
    assert complaints == []


def test_what_comes_while_a_transaction_is_under_way_is_the_next_one() -> None:
    """Two transactions for any number of callers at once."""

    async def scenario(bench: Bench) -> None:
        bench.gate.clear()
        first = bench.accept(run("first"))
        await asyncio.sleep(0.01)
        rest = [bench.accept(run(str(number))) for number in range(20)]
        await asyncio.sleep(0.01)
        bench.gate.set()
        await asyncio.gather(first, *rest)
        assert bench.groups == [["first"], [str(number) for number in range(20)]]

    played(scenario)


def test_groups_are_bounded_and_never_have_a_key_twice() -> None:
    """The second call with a key waits for the next transaction; so does what would make one too large."""

    async def scenario(bench: Bench) -> None:
        await bench.accept(run("a", "k"), run("b", "k"), run("c"), run("d", "other"))
        assert bench.groups == [["a", "c", "d"], ["b"]]
        bench.groups.clear()
        await bench.accept(*(run(str(number)) for number in range(GROUP_RECORDS_MAX + 1)))
        assert [len(group) for group in bench.groups] == [GROUP_RECORDS_MAX, 1]
        bench.groups.clear()
        await bench.accept(*(run(str(number), input="x" * (GROUP_BYTES_MAX // 2)) for number in range(3)))
        assert [len(group) for group in bench.groups] == [2, 1]

    played(scenario)


@pytest.mark.parametrize("error", [RefusedError(Refusal.DATA, "no"), TypeError("it cannot be encoded")])
def test_a_bad_run_fails_alone(error: Exception) -> None:
    """Its caller gets what was wrong, and nothing else is lost or reported as forgotten."""

    async def scenario(bench: Bench) -> None:
        def rule(group: list[str]) -> None:
            if "bad" in group:
                raise error

        bench.rule = rule
        calls = [bench.accept(run(name)) for name in ("a", "b", "bad", "c")]
        many = bench.accept(run("bad"), run("bad"), run("d"))
        answers = await asyncio.gather(*calls, many, return_exceptions=True)
        assert [type(answer) for answer in answers] == [list, list, type(error), list, type(error)]

    played(scenario)


def test_a_run_that_somebody_holds_up_holds_up_nobody() -> None:
    """It waits apart from the groups, and is accepted when it can be."""

    async def scenario(bench: Bench) -> None:
        is_free = asyncio.Event()

        def rule(group: list[str]) -> None:
            if "held" in group and not is_free.is_set():
                raise RefusedError(Refusal.BUSY, "somebody has the key")

        bench.rule = rule
        held = bench.accept(run("held", "k"))
        await asyncio.sleep(0.05)
        await asyncio.wait_for(bench.accept(run("a"), run("b")), 5)
        assert not held.done()
        is_free.set()
        (answer,) = await held
        assert answer.run_id == "held"

    played(scenario)


@pytest.mark.parametrize("refusal", [Refusal.BUSY, Refusal.FULL, Refusal.READ_ONLY, None])
def test_a_database_that_takes_nothing_is_unavailable_in_time(refusal: Refusal | None) -> None:
    """Each caller hears it at its own time, and nothing of theirs is tried afterwards."""

    async def scenario(bench: Bench) -> None:
        def rule(group: list[str]) -> None:
            raise UnavailableError if refusal is None else RefusedError(refusal, "not now")

        bench.rule = rule
        patient, impatient = bench.accept(run("patient")), bench.accept(run("impatient"), timeout=SHORTLY)
        with pytest.raises(UnavailableError) as caught:
            await asyncio.wait_for(impatient, 2)
        assert not isinstance(caught.value, CommitUnknownError)
        assert not patient.done()
        bench.rule = lambda group: None
        await patient
        assert bench.groups[-1] == ["patient"]

    played(scenario)


def test_a_doubtful_commit_is_never_called_unwritten() -> None:
    """When the database is gone after a commit whose answer was lost, the caller is told that it is not known."""

    async def scenario(bench: Bench) -> None:
        def rule(group: list[str]) -> None:
            raise CommitUnknownError if len(bench.groups) == 1 else UnavailableError

        bench.rule = rule
        with pytest.raises(CommitUnknownError):
            await bench.accept(run("a"), timeout=SHORTLY)

    played(scenario)


def test_a_transaction_that_hangs_is_not_called_unwritten_either() -> None:
    """It may yet be committed."""

    async def scenario(bench: Bench) -> None:
        bench.gate.clear()
        with pytest.raises(CommitUnknownError):
            await bench.accept(run("a"), timeout=SHORTLY)
        bench.gate.set()
        await bench.accept(run("b"))

    played(scenario)


def test_a_closed_engine_leaves_no_caller_waiting() -> None:
    """Whoever waits is told, and whether its run may be there."""

    async def scenario(bench: Bench) -> None:
        bench.gate.clear()
        flying = bench.accept(run("flying"))
        await asyncio.sleep(0.01)
        waiting = bench.accept(run("waiting"))
        await asyncio.sleep(0.01)
        for task in bench.tasks:
            task.cancel()
        answers = await asyncio.wait_for(asyncio.gather(flying, waiting, return_exceptions=True), 5)
        assert [type(answer) for answer in answers] == [CommitUnknownError, UnavailableError]
        assert all(isinstance(answer, OutlastError) and "closed" in str(answer) for answer in answers)

    played(scenario)


def test_wake_ups_that_cannot_go_with_the_commit_are_sent_after_it() -> None:
    """Each group's lanes are told once, and only when its runs are there."""

    async def scenario(bench: Bench) -> None:
        await bench.accept(run("a"))
        assert bench.told == []
        bench.sends = False
        bench.rule = lambda group: bench.told.append(set())  # while it is written
        await bench.accept(run("b"), run("c"))
        assert bench.told == [set(), {1}]

    played(scenario)


def test_a_full_group_is_put_together_while_another_is_written() -> None:
    """Two transactions at most are under way, and the second only for what is more than one takes."""

    async def scenario(bench: Bench) -> None:
        bench.gate.clear()
        many = bench.accept(*(run(str(number)) for number in range(3 * GROUP_RECORDS_MAX)))
        await asyncio.sleep(0.01)
        assert (len(bench.tasks), bench.groups) == (2, [])
        bench.gate.set()
        answers = await many
        assert [answer.run_id for answer in answers] == [str(number) for number in range(3 * GROUP_RECORDS_MAX)]
        assert [len(group) for group in bench.groups] == [GROUP_RECORDS_MAX] * 3
        await bench.accept(run("after"))
        assert len(bench.tasks) == 3

    played(scenario)
