"""Carriers: attempts share a task as long as none waits, and no attempt can tell, or can reach another through it."""

import asyncio
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

from outlast.native.attempt import Attempt
from outlast.native.carrier import Carriers

MARK: ContextVar[str] = ContextVar("mark", default="none")
Work = Callable[[], Awaitable[Any]]


def carried(*works: Work, stopped: int | None = None, turns: int = 5) -> list[Any]:
    """Begin attempts in one turn; return what each came to: a result, an error, or None where it never ended."""
    ends: list[Any] = [None] * len(works)

    async def perform(attempt: Attempt) -> None:
        number = attempt.call.number  # type: ignore[attr-defined]  # a double
        try:
            ends[number] = await works[number]()
        except asyncio.CancelledError as error:
            ends[number] = error

    async def play() -> None:
        def perform_it(attempt: Attempt) -> Coroutine[Any, Any, None]:
            return perform(attempt)

        carriers = Carriers(perform_it)
        for number in range(len(works)):
            call: Any = SimpleNamespace(number=number, is_stopped=False)
            carriers.begin(Attempt(call, None, lambda: None))  # type: ignore[arg-type]  # no attempt here asks for its driver
            call.is_stopped = number == stopped
        for _ in range(turns):
            await asyncio.sleep(0.001)

    asyncio.run(play())
    return ends


async def current() -> Any:
    return asyncio.current_task()


async def current_around_a_wait() -> Any:
    before = asyncio.current_task()
    await asyncio.sleep(0)
    return before is asyncio.current_task(), before


async def mark() -> str:
    before = MARK.get()
    MARK.set("left behind")
    return before


def test_each_attempt_begins_in_a_context_of_its_own() -> None:
    """What a step sets in a context variable is gone with it, although the next one runs in the same task."""
    assert carried(mark, mark, mark) == ["none", "none", "none"]


def test_what_waits_keeps_the_task_and_the_others_go_on() -> None:
    """The one that waits has the same task before and after, which is nobody else's."""
    (is_same, own), quick, (is_same_too, other), last = carried(current_around_a_wait, current, current_around_a_wait, current)
    assert is_same
    assert is_same_too
    assert own not in (quick, other, last)
    assert other != last


def test_attempts_that_wait_begin_together() -> None:
    """They do not begin one after the other in as many turns of the loop, the first time and from then on."""
    begun: list[int] = []
    turn = 0

    async def wait() -> None:
        begun.append(turn)
        await asyncio.sleep(0.02)

    async def count() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    async def play() -> None:
        async def perform(attempt: Attempt) -> None:
            await wait()

        counting = asyncio.create_task(count())
        carriers = Carriers(perform)
        for _ in range(2):
            for _ in range(50):
                carriers.begin(Attempt(SimpleNamespace(is_stopped=False), None, lambda: None))  # type: ignore[arg-type]  # doubles
            await asyncio.sleep(0.03)
        counting.cancel()

    asyncio.run(play())
    assert begun[49] - begun[0] <= 1
    assert begun[50] == begun[99]
    assert len(begun) == 100


def test_a_timeout_ends_the_attempt_that_set_it_and_no_other() -> None:
    """`asyncio.timeout` finds its task in the first slice and cancels it in a later one."""

    async def bounded() -> str:
        try:
            async with asyncio.timeout(0.001):
                await asyncio.sleep(60)
        except TimeoutError:
            return "timed out"
        return "never"

    async def patient() -> str:
        await asyncio.sleep(0.01)
        return "waited"

    assert carried(bounded, patient, bounded, patient, turns=40) == ["timed out", "waited", "timed out", "waited"]


def test_a_task_that_was_canceled_carries_nothing_more() -> None:
    """A step that cancels its own task and returns at once harms nobody."""

    async def cancel_self() -> str:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return "returned"

    ends = carried(cancel_self, current_around_a_wait, current_around_a_wait)
    assert ends[0] == "returned"
    assert ends[1][0]
    assert ends[2][0]


def test_a_task_that_somebody_kept_carries_nothing_more() -> None:
    """A reference that a step left somewhere, strong or weak, reaches no other step."""
    kept: list[Any] = []

    async def keep() -> None:
        kept.append(asyncio.current_task())

    async def keep_weakly() -> None:
        kept.append(weakref.ref(asyncio.current_task()))

    async def cancel_kept() -> str:
        for each in kept:
            task = each() if isinstance(each, weakref.ref) else each
            if task is not None:
                task.cancel()
        await asyncio.sleep(0)
        return "went on"

    assert carried(keep, keep_weakly, cancel_kept)[2] == "went on"


def test_a_call_that_was_stopped_first_never_begins() -> None:
    """Its place in the queue is passed over, and those behind it begin."""
    ends = carried(current, current, current, stopped=1)
    assert ends[1] is None
    assert ends[0] is not None
    assert ends[2] is not None


def test_what_a_step_leaves_on_its_task_does_not_reach_the_next() -> None:
    """A cancel that was taken back, a name and a callback stay with the step that made them."""
    called: list[str] = []

    async def cancel_and_take_it_back() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        task.uncancel()

    async def name_it() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.set_name("mine")

    async def listen() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.add_done_callback(lambda _: called.append("ended"))

    async def look() -> tuple[bool, int]:
        await asyncio.sleep(0.002)
        task = asyncio.current_task()
        assert task is not None
        return task.get_name() == "mine", len(called)

    assert carried(cancel_and_take_it_back, look)[1] == (False, 0)
    assert carried(name_it, look)[1] == (False, 0)
    assert carried(listen, look)[1] == (False, 1), "its own task has ended while the next step waits"
