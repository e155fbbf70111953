"""Effects without an engine: whose word it is that nothing was done, and threads that go on after nobody waits for them."""

import asyncio
import threading
from contextlib import contextmanager

import pytest

from outlast import OperationUnsureError, connect_ledger
from outlast.effect import Done, NotDone
from outlast.errors import StepStuckError, UnavailableError
from outlast.ledger.operation import OperationName

from .ledger_world import PATIENCE, Provider, found, happens, paying, two_ledgers


class Slow:
    """A plain function that begins, and goes on until it may end; `error` is what it ends with."""

    def __init__(self, error: Exception | None = None) -> None:
        self.began, self.may_end = threading.Event(), threading.Event()
        self._error = error

    def __call__(self, attempt) -> None:
        if attempt.number > 1:
            return
        self.began.set()
        assert self.may_end.wait(PATIENCE)
        if self._error is not None:
            raise self._error


async def lingers(ledger) -> bool:
    """Tell whether the ledger says that the thread of the first attempt goes on."""
    name = OperationName("pay", "key")
    attempts = await ledger._threads.read(lambda tx: ledger._store.list_attempts(tx, [name])[name])
    return attempts[0].lingers


async def abandoned(ledger, pays, slow: Slow, way: str) -> None:
    """Let a call end whose thread goes on: it is stuck, or its caller is canceled."""
    calling = asyncio.create_task(ledger.run(pays, 5, key="key"))
    await happens("the thread began", slow.began.is_set)
    if way == "canceled":
        calling.cancel()
    with pytest.raises(asyncio.CancelledError if way == "canceled" else StepStuckError):
        await calling


# --- whose word it is ---------------------------------------------------------------------------------------------------------
def test_a_reconciler_is_believed_for_the_moment_before_it_looked(database_url):
    """It looks while the request is on its way, and answers when "not done" would be believed: it is asked once more, and finds it done."""
    provider, began, asked = Provider(), [], []

    async def fail(attempt):
        began.append(asyncio.get_running_loop().time())
        await asyncio.sleep(1.2)
        raise OSError("the connection broke")

    provider.before = fail
    pays = paying(provider, reconciled=False, timeout="2s", settle=0)

    @pays.reconcile
    async def look(attempt, amount: int) -> Done[int] | NotDone:
        asked.append(attempt.number)
        if len(asked) > 1:
            return Done(60)
        await asyncio.sleep(began[0] + 2.2 - asyncio.get_running_loop().time())
        return NotDone()

    async def main() -> None:
        async with connect_ledger(database_url) as ledger:
            assert await ledger.run(pays, 5, key="key") == 60
            assert [attempt.outcome for attempt in (await found(ledger)).attempts] == ["done"]

    asyncio.run(main())
    assert len(began) == 1


@pytest.mark.parametrize("plain", [False, True], ids=["coroutine", "function"])
def test_a_result_that_cannot_be_kept_is_not_taken_for_not_done(database_url, plain):
    """Even where every error was declared: `perform` returned, and the reconciler is asked."""
    provider = Provider()
    provider.serve = lambda attempt, amount: provider.done.append(attempt.number) or "no number"  # type: ignore[method-assign]
    provider.verdicts = [Done(60)]
    pays = paying(provider, plain=plain, not_done=Exception)

    async def main() -> None:
        async with connect_ledger(database_url) as ledger:
            assert await ledger.run(pays, 5, key="key") == 60
        assert (provider.done, provider.asked) == ([1], [1])

    asyncio.run(main())


def test_a_time_out_is_not_taken_for_not_done(database_url):
    """Even where every error was declared: it is the library's word, and the reconciler is asked."""
    provider = Provider()
    provider.before = lambda attempt: asyncio.Event().wait()
    provider.verdicts = [Done(60)]
    pays = paying(provider, timeout="100ms", not_done=Exception)

    async def main() -> None:
        async with connect_ledger(database_url) as ledger:
            assert await ledger.run(pays, 5, key="key") == 60
            assert len((await found(ledger)).attempts) == 1

    asyncio.run(main())


@pytest.mark.parametrize("error", [TimeoutError("own"), StepStuckError("another step", 1, None), SystemExit("no")], ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("plain", [False, True], ids=["coroutine", "function"])
def test_what_the_function_raises_is_its_word_whatever_it_is(database_url, plain, error):
    """A class that was declared says that nothing was done, though the library has one like it."""
    provider = Provider()
    errors = [error]

    def fail(attempt):
        if errors:
            raise errors.pop()

    provider.before = fail
    pays = paying(provider, plain=plain, reconciled=False, not_done=(Exception, SystemExit))

    async def main() -> None:
        async with connect_ledger(database_url) as ledger:
            assert await ledger.run(pays, 5, key="key") == 6
            assert [attempt.outcome for attempt in (await found(ledger)).attempts] == ["not_done", "done"]

    asyncio.run(main())


# --- threads that go on -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("way", ["stuck", "canceled"])
def test_nothing_begins_beside_a_thread_that_goes_on(database_url, way):
    """Not in another process either, and whatever was declared: a person is asked and told why, and the mark is gone when the thread ends."""
    provider, slow = Provider(), Slow()
    provider.before = slow
    provider.verdicts = [NotDone()]
    pays = paying(provider, plain=True, timeout="200ms", settle=0, not_done=Exception)

    async def main() -> None:
        async with two_ledgers(database_url) as (first, second):
            await abandoned(first, pays, slow, way)
            assert await lingers(second)
            with pytest.raises(OperationUnsureError) as unsure:
                await second.run(pays, 5, key="key")
            assert (provider.done, await lingers(second)) == ([], True)
            slow.may_end.set()
            await happens("the ledger knows that the thread has ended", lambda: _not(lingers(second)))
            assert (await found(second)).attempts[0].late == "6"
            decided = await second.decide(unsure.value.decision, "done", result=6, by="ann")
            assert "a thread of the attempt still runs" in decided.question
            assert await second.run(pays, 5, key="key") == 6
        assert len(provider.done) == 1

    asyncio.run(main())


@pytest.mark.parametrize("way", ["stuck", "canceled"])
def test_a_thread_that_ends_with_an_error_has_ended(database_url, way):
    """The mark is taken away, and a reconciler is believed again."""
    provider, slow = Provider(), Slow(OSError("no route"))
    provider.before = slow
    provider.verdicts = [NotDone()]
    pays = paying(provider, plain=True, timeout="200ms", settle=0)

    async def main() -> None:
        async with two_ledgers(database_url) as (first, second):
            await abandoned(first, pays, slow, way)
            assert await lingers(second)
            slow.may_end.set()
            await happens("the ledger knows that the thread has ended", lambda: _not(lingers(second)))
            assert await second.run(pays, 5, key="key") == 6
        assert [number for _, number, _ in provider.done] == [2]

    asyncio.run(main())


def test_what_was_revoked_is_believed_beside_a_thread(database_url):
    """The reconciler has seen to it that the thread cannot do it any more."""
    provider, slow = Provider(), Slow()
    provider.before = slow
    provider.verdicts = [NotDone(revoked=True)]
    pays = paying(provider, plain=True, timeout="1h")

    async def main() -> None:
        async with two_ledgers(database_url) as (first, second):
            await abandoned(first, pays, slow, "canceled")
            assert await second.run(pays, 5, key="key") == 6
            slow.may_end.set()
            await happens("the ledger knows that the thread has ended", lambda: _not(lingers(second)))

    asyncio.run(main())


class FailingDatabase:
    """A database that does not answer the next `failures` writes."""

    def __init__(self, database) -> None:
        self._database = database
        self.failures = 0

    def __getattr__(self, name):
        return getattr(self._database, name)

    @contextmanager
    def transaction(self):
        if self.failures:
            self.failures -= 1
            raise UnavailableError("the database does not answer")
        with self._database.transaction() as tx:
            yield tx


@pytest.mark.parametrize("way", ["stuck", "canceled"])
def test_the_mark_is_insisted_on(database_url, way):
    """A database that does not answer for a moment learns of the thread all the same, and of its end."""
    provider, slow = Provider(), Slow(OSError("no route"))
    provider.before = slow
    pays = paying(provider, plain=True, timeout="200ms")

    async def main() -> None:
        ledger = connect_ledger(database_url)
        database = ledger._database = FailingDatabase(ledger._database)
        async with ledger:
            calling = asyncio.create_task(ledger.run(pays, 5, key="key"))
            await happens("the thread began", slow.began.is_set)
            database.failures = 3
            if way == "canceled":
                calling.cancel()
            with pytest.raises(asyncio.CancelledError if way == "canceled" else StepStuckError):
                await calling
            assert (database.failures, await lingers(ledger)) == (0, True)
            database.failures = 3
            slow.may_end.set()
            await happens("the ledger knows that the thread has ended", lambda: _not(lingers(ledger)))

    asyncio.run(main())


async def _not(answer) -> bool:
    return not await answer
