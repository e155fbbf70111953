"""Effects without an engine while commits end in doubt: nothing is done twice, and nothing is told that is not so."""

import asyncio
from contextlib import contextmanager

import pytest

from outlast import EffectFailedError, Ledger, OperationUnsureError, UsageError, connect_ledger
from outlast.effect import Done, Unsure
from outlast.errors import CommitUnknownError

from .ledger_world import Provider, found, leave_behind, paying

WRITES = range(1, 8)
"""Which write of a call ends in doubt; the longest call here makes seven."""


class DoubtfulDatabase:
    """A database whose `number`th commit is answered by a broken connection; `is_kept` says whether it was made."""

    def __init__(self, database, number: int, *, is_kept: bool) -> None:
        self._database = database
        self._number = number
        self._is_kept = is_kept
        self.writes = 0

    def __getattr__(self, name):
        return getattr(self._database, name)

    @contextmanager
    def transaction(self):
        self.writes += 1
        is_doubtful = self.writes == self._number
        with self._database.transaction() as tx:
            yield tx
            if is_doubtful and not self._is_kept:
                raise CommitUnknownError("the connection broke")
        if is_doubtful:
            raise CommitUnknownError("the connection broke")


@pytest.fixture(params=[True, False], ids=["kept", "lost"])
def is_kept(request):
    """Whether the commit in doubt was made."""
    return request.param


def doubtful(url: str, number: int, is_kept: bool) -> Ledger:
    """Return a ledger whose `number`th write ends in doubt."""
    ledger = connect_ledger(url)
    ledger._database = DoubtfulDatabase(ledger._database, number, is_kept=is_kept)
    return ledger


def test_what_is_done_is_done_once(database_url, is_kept):
    """Whichever write is in doubt, the attempt's or the result's: one attempt, served once."""
    provider = Provider()
    provider.verdicts = [Done(6)]
    pays = paying(provider)

    async def main() -> None:
        for number in WRITES:
            key = f"key {number}"
            async with doubtful(database_url, number, is_kept) as ledger:
                assert await ledger.run(pays, 5, key=key) == 6
                assert [attempt.outcome for attempt in (await found(ledger, key)).attempts] == ["done"]
        assert [key for key, _, _ in provider.done] == [f"key {number}" for number in WRITES]
        assert provider.asked == []

    asyncio.run(main())


def test_what_is_not_done_fails_after_its_attempts(database_url, is_kept):
    """No attempt too many, and the failure is told once and not taken for another caller's."""
    provider = Provider()
    served = []

    def fail(attempt):
        served.append((attempt.key, attempt.number))
        raise ConnectionRefusedError("port 80")

    provider.before = fail
    pays = paying(provider)

    async def main() -> None:
        for number in WRITES:
            key = f"key {number}"
            async with doubtful(database_url, number, is_kept) as ledger:
                with pytest.raises(EffectFailedError) as failed:
                    await ledger.run(pays, 5, key=key)
                assert failed.value.is_a(ConnectionRefusedError)
                assert (await found(ledger, key)).status == "failed"
        assert served == [(f"key {number}", attempt) for number in WRITES for attempt in (1, 2, 3)]

    asyncio.run(main())


def test_a_person_is_asked_once(database_url, is_kept):
    """The question that the error names is the one that the operation has."""
    provider = Provider()
    provider.verdicts = [Unsure()]
    pays = paying(provider)

    async def main() -> None:
        for number in (1, 2, 3):
            key = f"key {number}"
            await leave_behind(database_url, pays, key=key)
            async with doubtful(database_url, number, is_kept) as ledger:
                with pytest.raises(OperationUnsureError) as unsure:
                    await ledger.run(pays, 5, key=key)
                assert (await found(ledger, key)).decision == unsure.value.decision
        assert provider.done == []

    asyncio.run(main())


@pytest.mark.parametrize("option", ["fail", "done"])
def test_ones_own_answer_is_no_fault(database_url, is_kept, option):
    """Whoever decides is told that it was decided, whether the commit in doubt was made or not; another one is refused."""
    provider = Provider()
    provider.verdicts = [Unsure()]
    pays = paying(provider)
    given = {"result": 60} if option == "done" else {}

    async def main() -> None:
        await leave_behind(database_url, pays)
        async with connect_ledger(database_url) as ledger:
            with pytest.raises(OperationUnsureError) as unsure:
                await ledger.run(pays, 5, key="key")
        async with doubtful(database_url, 1, is_kept) as ledger:
            decided = await ledger.decide(unsure.value.decision, option, by="ann", note="seen", **given)
            assert (decided.state, decided.answer, decided.answered_by, decided.note) == ("answered", option, "ann", "seen")
        async with doubtful(database_url, 1, is_kept) as ledger:
            with pytest.raises(UsageError, match="is answered: only an open one can be answered"):
                await ledger.decide(unsure.value.decision, option, by="bob", note="seen", **given)

    asyncio.run(main())


@pytest.mark.parametrize("option", ["fail", "again", "done"])
def test_an_answer_is_used_once(database_url, is_kept, option):
    """Failed is not tried again, again is tried once, and done is not tried at all."""
    provider = Provider()
    provider.verdicts = [Unsure()]
    pays = paying(provider)

    async def main() -> None:
        for number in (1, 2, 3):
            key = f"key {number}"
            await leave_behind(database_url, pays, key=key)
            async with connect_ledger(database_url) as ledger:
                with pytest.raises(OperationUnsureError) as unsure:
                    await ledger.run(pays, 5, key=key)
                await ledger.decide(unsure.value.decision, option, by="ann", **({"result": 60} if option == "done" else {}))
            async with doubtful(database_url, number, is_kept) as ledger:
                if option == "fail":
                    with pytest.raises(EffectFailedError, match="ann decided that it was not done"):
                        await ledger.run(pays, 5, key=key)
                else:
                    assert await ledger.run(pays, 5, key=key) == (60 if option == "done" else 6)
        assert [number for _, number, _ in provider.done] == ([2] * 3 if option == "again" else [])

    asyncio.run(main())
