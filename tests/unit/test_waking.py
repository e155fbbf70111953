"""Wake-ups after enqueues: one look at a time, nothing that came meanwhile is forgotten, and whoever asked is woken."""

import asyncio
from types import SimpleNamespace

from outlast.errors import UnavailableError
from outlast.native.waking import Waking


class Runtime:
    """As much of a runtime as wake-ups need; what `read` answers is set by the test, an exception is raised."""

    def __init__(self, answers):
        self.answers = list(answers)
        self.looked, self.sent = [], []
        self.under_way = self.most_under_way = 0
        self.calls = SimpleNamespace(other=self._other)
        self.store = SimpleNamespace(has_idle_worker=lambda tx, lanes: self.looked.append(set(lanes)))
        self.backend = SimpleNamespace(wakes=SimpleNamespace(send=lambda lanes: self.sent.append(set(lanes))))

    def spawn(self, work):
        return asyncio.get_running_loop().create_task(work)

    async def read(self, name, function):
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        function(None)
        for _ in range(5):  # turns of the loop: another look would have time to begin
            await asyncio.sleep(0)
        self.under_way -= 1
        answer = self.answers.pop(0) if self.answers else False
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def _other(self, function):
        return function()


def test_many_callers_are_one_look_and_what_comes_meanwhile_another():
    """Fifty wakes at once are looked up together; a lane that comes during the look is in the next, and never two look at once."""

    async def main():
        runtime = Runtime([True, False])
        waking = Waking(runtime)
        for lane in range(50):
            waking.wake({lane})
        await asyncio.sleep(0)  # the look is under way
        waking.wake({99})
        await waking.drain(60)
        assert runtime.looked == [set(range(50)), {99}]
        assert runtime.sent == [set(range(50))]
        assert runtime.most_under_way == 1

    asyncio.run(main())


def test_a_look_that_fails_ends_no_later_one():
    """When the database does not answer, that wake-up is left to the polls and the next one is sent."""

    async def main():
        runtime = Runtime([UnavailableError(), True])
        waking = Waking(runtime)
        waking.wake({1})
        await waking.drain(60)
        waking.wake({2})
        await waking.drain(60)
        assert runtime.sent == [{2}]

    asyncio.run(main())
