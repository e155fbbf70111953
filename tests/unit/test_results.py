"""Waiters for the end of a run: told by events and by one repeated question, and never for longer than they asked."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from outlast.errors import UnavailableError
from outlast.events import Events
from outlast.native import results
from outlast.native.results import Results


class Bench:
    """Results over a database whose ended runs a test names."""

    def __init__(self) -> None:
        self.events = Events()
        self.ended: set[str] = set()
        self.asked: list[set[str]] = []
        self.is_down = False
        self.store = self
        self.results = Results(self)  # type: ignore[arg-type]  # it plays the runtime and the store

    async def read(self, name: str, function: Callable[[Any], Any]) -> Any:
        await asyncio.sleep(0)
        return function(None)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        return asyncio.get_running_loop().create_task(work)

    def find_ended(self, tx: Any, run_ids: list[str]) -> set[str]:
        if self.is_down:
            raise UnavailableError
        self.asked.append(set(run_ids))
        return self.ended & set(run_ids)

    async def wait(self, run_id: str, timeout: float | None = 20, why: Any = None) -> None:
        async def explain() -> Any:
            if isinstance(why, Exception):
                raise why
            return why

        await self.results.wait(run_id, timeout, explain)


def played(scenario: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
    async def play() -> None:
        bench = Bench()
        await scenario(bench)
        assert not bench.results._waiting
        async with asyncio.timeout(20):
            while bench.results._asking is not None:  # noqa: ASYNC110 - it ends by itself when nobody waits
                await asyncio.sleep(0.01)

    asyncio.run(play())


def test_all_waiters_are_asked_for_in_one_question() -> None:
    """Twenty waiters for ten runs cost one question, and all of them are told."""

    async def scenario(bench: Bench) -> None:
        bench.ended = {str(number) for number in range(10)}
        await asyncio.gather(*(bench.wait(str(number % 10)) for number in range(20)))
        assert bench.asked == [bench.ended]

    played(scenario)


def test_an_end_in_this_process_is_told_without_a_question() -> None:
    """The event of a run wakes its waiters and nobody else's."""

    async def scenario(bench: Bench) -> None:
        bench.is_down = True
        mine, other = asyncio.create_task(bench.wait("mine")), asyncio.create_task(bench.wait("other", timeout=0.2))
        await asyncio.sleep(0)
        bench.events.emit("run_ended", run="mine", kind="k", status="succeeded")
        await mine
        with pytest.raises(TimeoutError, match=r"run other was not over after 0\.2 s"):
            await other

    played(scenario)


def test_an_outage_is_waited_out() -> None:
    """A question that fails is asked again, and the waiter hears only of the end."""

    async def scenario(bench: Bench) -> None:
        bench.is_down, bench.ended = True, {"a"}
        waiting = asyncio.create_task(bench.wait("a"))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        bench.is_down = False
        await waiting

    played(scenario)


@pytest.mark.parametrize(("why", "said"), [("no living worker has it", "no living worker"), (UnavailableError(), "does not say why"), (None, "")])
def test_a_long_wait_says_why_and_goes_on(why: Any, said: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """After a while the log says why nothing may be happening; that the reason cannot be found ends no wait."""
    monkeypatch.setattr(results, "_LIVE_WORKER_MISSED_AFTER", 0.05)
    caplog.set_level(logging.WARNING, "outlast")

    async def scenario(bench: Bench) -> None:
        waiting = asyncio.create_task(bench.wait("a", why=why))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        bench.ended = {"a"}
        await waiting

    played(scenario)
    assert (said in caplog.text) if said else not caplog.records


def test_a_waiter_that_is_canceled_leaves_nothing() -> None:
    """Another waiter for the same run is told all the same."""

    async def scenario(bench: Bench) -> None:
        leaving, staying = asyncio.create_task(bench.wait("a")), asyncio.create_task(bench.wait("a"))
        await asyncio.sleep(0.05)
        leaving.cancel()
        bench.ended = {"a"}
        bench.results.wake()
        await staying
        assert leaving.cancelled()

    played(scenario)
