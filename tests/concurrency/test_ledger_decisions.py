"""Effects without an engine: what was not done and is tried again, and what people decide."""

import asyncio

import pytest

from outlast import EffectFailedError, OperationUnsureError, UsageError, connect_ledger, effect
from outlast.effect import NotDone, Unsure
from outlast.ledger.calling import Calling

from .ledger_world import Provider, found, happens, leave_behind, paying, two_ledgers


def test_what_was_not_done_is_tried_again(database_url):
    """An error that was declared, or `NotDone`, is a failed attempt, and another follows by the policy."""
    provider = Provider()
    errors = [ConnectionRefusedError("port 80"), NotDone("the slot is taken")]

    def fail(attempt):
        if errors:
            raise errors.pop(0)

    provider.before = fail
    pays = paying(provider, reconciled=False)

    async def main() -> None:
        async with connect_ledger(database_url) as ledger:
            assert await ledger.run(pays, 5, key="key") == 6
            assert [attempt.outcome for attempt in (await found(ledger)).attempts] == ["not_done", "not_done", "done"]
        assert [number for _, number, _ in provider.done] == [3]

    asyncio.run(main())


def test_a_failure_is_told_with_its_cause_and_a_later_call_tries_again(database_url):
    """When the attempts are used up it is `failed`; who calls anew has fresh ones."""
    provider = Provider()
    refused = [True]

    def fail(attempt):
        if refused:
            raise ConnectionRefusedError("port 80")

    provider.before = fail
    pays = paying(provider)

    async def main() -> None:
        async with connect_ledger(database_url) as ledger:
            with pytest.raises(EffectFailedError) as failed:
                await ledger.run(pays, 5, key="key")
            assert (failed.value.step, failed.value.attempts, failed.value.is_a(ConnectionRefusedError)) == ("pay", 3, True)
            view = await found(ledger)
            assert (view.status, str(view.error)) == ("failed", "ConnectionRefusedError: port 80")
            refused.clear()
            assert await ledger.run(pays, 5, key="key") == 6
            assert [attempt.number for attempt in (await found(ledger)).attempts] == [1, 2, 3, 4]

    asyncio.run(main())


def test_who_waited_shares_the_failure(database_url, monkeypatch):
    """Callers at once of something that fails do not try it one after the other."""
    provider, refused, waiting = Provider(), asyncio.Event(), set()
    wait = Calling._wait

    async def noted(self, *arguments):
        waiting.add(self)
        await wait(self, *arguments)

    monkeypatch.setattr(Calling, "_wait", noted)

    async def fail(attempt):
        await refused.wait()
        raise ConnectionRefusedError("port 80")

    provider.before = fail
    pays = paying(provider)

    async def main() -> None:
        async with two_ledgers(database_url) as (first, second):
            callers = [asyncio.create_task(ledger.run(pays, 5, key="key")) for ledger in (first, second) * 3]
            await happens("all the others wait", lambda: len(waiting) == 5)
            refused.set()
            errors = await asyncio.gather(*callers, return_exceptions=True)
            assert [type(error) for error in errors] == [EffectFailedError] * 6
            assert len((await found(first)).attempts) == 3

    asyncio.run(main())


# --- people decide ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("verdict", "reason"), [(Unsure("no search there"), "no search there"), (None, "it has no reconciler")])
def test_a_person_is_asked_when_nobody_can_tell(database_url, verdict, reason):
    """The error names the question; until it is answered every call raises the same, and nothing is done."""
    provider = Provider()
    provider.verdicts = [verdict]
    pays = paying(provider, reconciled=verdict is not None)

    async def main() -> None:
        await leave_behind(database_url, pays)
        async with two_ledgers(database_url) as (first, second):
            with pytest.raises(OperationUnsureError, match="nobody can tell whether effect pay with key 'key' was done: answer decision") as unsure:
                await first.run(pays, 5, key="key")
            with pytest.raises(OperationUnsureError) as again:
                await second.run(pays, 5, key="key")
            assert again.value.decision == unsure.value.decision
            view = await found(first)
            assert (view.status, view.decision) == ("asked", unsure.value.decision)
            decided = await second.decide(unsure.value.decision, "done", result=60, by="ann", note="it is on the bill")
            assert (decided.run, decided.answer, decided.answered_by) == (None, "done", "ann")
            assert reason in decided.question
            assert await first.run(pays, 5, key="key") == 60
            assert await second.run(pays, 5, key="key") == 60
        assert provider.done == []

    asyncio.run(main())


async def asked(ledger, pays) -> str:
    """Return the id of the question that the ledger puts."""
    with pytest.raises(OperationUnsureError) as unsure:
        await ledger.run(pays, 5, key="key")
    return unsure.value.decision


def test_a_person_says_again(database_url):
    """It was not done: there is another attempt, and the answer is used once."""
    provider = Provider()
    provider.verdicts = [Unsure()]
    pays = paying(provider)

    async def main() -> None:
        await leave_behind(database_url, pays)
        async with connect_ledger(database_url) as ledger:
            decision = await asked(ledger, pays)
            await ledger.decide(decision, "again", by="ann")
            assert await ledger.run(pays, 5, key="key") == 6
            assert [attempt.outcome for attempt in (await found(ledger)).attempts] == ["not_done", "done"]
            with pytest.raises(UsageError, match="is consumed: only an open one can be answered"):
                await ledger.decide(decision, "again", by="bob")

    asyncio.run(main())


def test_a_person_says_fail(database_url):
    """It is not tried again in the call that uses the answer, and the error says who said so."""
    provider = Provider()
    provider.verdicts = [Unsure()]
    pays = paying(provider)

    async def main() -> None:
        await leave_behind(database_url, pays)
        async with connect_ledger(database_url) as ledger:
            await ledger.decide(await asked(ledger, pays), "fail", by="ann", note="too late")
            with pytest.raises(EffectFailedError, match="ann decided that it was not done and is not tried again: too late"):
                await ledger.run(pays, 5, key="key")
            assert (await found(ledger)).status == "failed"
        assert provider.done == []

    asyncio.run(main())


def test_two_people_decide_at_once_and_one_is_told(database_url):
    """One answer counts, the other one is refused."""
    provider = Provider()
    provider.verdicts = [Unsure()]
    pays = paying(provider)

    async def main() -> None:
        await leave_behind(database_url, pays)
        async with two_ledgers(database_url) as (first, second):
            decision = await asked(first, pays)
            answers = await asyncio.gather(first.decide(decision, "again", by="ann"), second.decide(decision, "fail", by="bob"), return_exceptions=True)
            assert sorted(type(answer).__name__ for answer in answers) == ["DecisionView", "UsageError"]

    asyncio.run(main())


def test_a_result_that_does_not_fit_is_asked_for_anew(database_url):
    """Where the process that decides does not know the effect: the next call says what was wrong, and the old question is closed."""
    provider = Provider()
    provider.verdicts = [Unsure()]
    pays = paying(provider)

    async def main() -> None:
        await leave_behind(database_url, pays)
        async with connect_ledger(database_url) as ledger:
            first = await asked(ledger, pays)
            await ledger.decide(first, "done", result="seven", by="ann")
            second = await asked(ledger, pays)
            assert (await found(ledger)).decision == second
            decided = await ledger.decide(second, "done", result=7, by="ann")
            assert "the answer 'done' was given, and its result does not fit: result of step pay" in decided.question
            assert await ledger.run(pays, 5, key="key") == 7
            with pytest.raises(UsageError, match=f"decision {first} is superseded"):
                await ledger.decide(first, "again", by="ann")
        assert provider.done == []

    asyncio.run(main())


@effect(name="pay")
async def pay(attempt, amount: int) -> int:
    """Stand for an effect that the process which decides has imported."""
    return amount


def test_wrong_answers_are_refused(database_url):
    """An option that there is not, a result of another type or none, one too many, nobody who decides, and a question that nobody put."""
    pays = pay

    async def main() -> None:
        await leave_behind(database_url, pays)
        async with connect_ledger(database_url) as ledger:
            decision = await asked(ledger, pays)
            for arguments, result, message in (
                ((decision, "perhaps"), {}, "has no option 'perhaps': write one of done, again, fail"),
                ((decision, "done"), {"result": "seven"}, "result of step pay"),
                ((decision, "done"), {}, "option done needs a result"),
                ((decision, "again"), {"result": 7}, "option again takes none"),
                (("no-such-id", "again"), {}, "there is no decision 'no-such-id'"),
            ):
                with pytest.raises(UsageError, match=message):
                    await ledger.decide(*arguments, **result, by="ann")
            with pytest.raises(UsageError, match="by is empty"):
                await ledger.decide(decision, "again", by="")
            assert (await found(ledger)).decision == decision

    asyncio.run(main())


def test_a_reconciler_that_raises_is_asked_again_and_then_a_person(database_url):
    """As often as the policy says; nothing is done meanwhile."""
    provider = Provider()
    provider.verdicts = [OSError("no route")]
    pays = paying(provider)

    async def main() -> None:
        await leave_behind(database_url, pays)
        async with connect_ledger(database_url) as ledger:
            decision = await asked(ledger, pays)
            decided = await ledger.decide(decision, "again", by="ann")
            assert "its reconciler raised OSError: no route" in decided.question
        assert (provider.asked, provider.done) == ([1, 1, 1], [])

    asyncio.run(main())
