"""Effects without an engine: attempts of which nobody knows the end, callers who are gone or frozen, and results that come late."""

import asyncio
import logging
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path

import pytest

from outlast import OperationInProgressError, connect_ledger, effect
from outlast.effect import Done, NotDone
from outlast.errors import StepStuckError

from .ledger_world import PATIENCE, Provider, end_lease, found, happens, leave_behind, paying, two_ledgers

CHILD = Path(__file__).with_name("ledger_child.py")
SOURCE = Path(__file__).parents[2] / "src"


def test_an_attempt_of_a_caller_who_is_gone_is_reconciled(database_url):
    """Only when its lease is over, and nothing is done if it was done."""
    provider = Provider()
    provider.verdicts = [Done(6)]
    pays = paying(provider)

    async def main() -> None:
        left = await leave_behind(database_url, pays, lease=timedelta(hours=1))
        async with connect_ledger(database_url) as ledger:
            with pytest.raises(OperationInProgressError):
                await ledger.run(pays, 5, key="key", wait=0)
            assert provider.asked == []
            await end_lease(database_url, left)
            assert await ledger.run(pays, 5, key="key") == 6
            view = await found(ledger)
            assert (view.status, view.result, [attempt.outcome for attempt in view.attempts]) == ("done", "6", ["done"])
        assert (provider.done, provider.asked) == ([], [1])

    asyncio.run(main())


def test_not_done_is_believed_when_nothing_is_under_way_any_more(database_url):
    """The reconciler is asked again after time-out and settle, and only then another attempt begins."""
    provider = Provider()
    provider.verdicts = [NotDone()]
    pays = paying(provider, timeout="500ms", settle="700ms")

    async def main() -> None:
        await leave_behind(database_url, pays)
        async with connect_ledger(database_url) as ledger:
            assert await ledger.run(pays, 5, key="key") == 6
            first, second = (await found(ledger)).attempts
            assert (first.outcome, second.outcome) == ("not_done", "done")
            assert second.started_at - first.started_at >= timedelta(milliseconds=1200)
        assert len(provider.asked) >= 2
        assert [number for _, number, _ in provider.done] == [2]

    asyncio.run(main())


def test_what_was_done_after_the_first_not_done_is_found(database_url):
    """A request that was still on its way is served before the second question: it is not done twice."""
    provider = Provider()
    provider.verdicts = [NotDone(), Done(6)]
    pays = paying(provider, timeout="300ms", settle="300ms")

    async def main() -> None:
        await leave_behind(database_url, pays)
        async with connect_ledger(database_url) as ledger:
            assert await ledger.run(pays, 5, key="key") == 6
        assert (provider.done, provider.asked) == ([], [1, 1])

    asyncio.run(main())


def test_what_was_revoked_is_believed_at_once(database_url):
    """The reconciler has seen to it that the attempt cannot take effect: nobody waits for its time-out of an hour."""
    provider = Provider()
    provider.verdicts = [NotDone(revoked=True)]
    pays = paying(provider, timeout="1h")

    async def main() -> None:
        await leave_behind(database_url, pays)
        async with asyncio.timeout(PATIENCE), connect_ledger(database_url) as ledger:
            assert await ledger.run(pays, 5, key="key") == 6
        assert ([number for _, number, _ in provider.done], provider.asked) == ([2], [1])

    asyncio.run(main())


def test_an_error_is_reconciled_before_anything_else(database_url):
    """Whatever `perform` raises, unless it was declared: the same call asks, and goes on by the verdict."""
    provider = Provider()
    provider.verdicts = [NotDone(revoked=True), Done(60)]

    def fail(attempt):
        raise OSError("the connection broke")

    provider.before = fail
    pays = paying(provider)

    async def main() -> None:
        async with connect_ledger(database_url) as ledger:
            assert await ledger.run(pays, 5, key="key") == 60
            view = await found(ledger)
            assert [(attempt.outcome, str(attempt.error)) for attempt in view.attempts] == [
                ("not_done", "OSError: the connection broke"),
                ("done", "OSError: the connection broke"),
            ]
        assert (provider.done, provider.asked) == ([], [1, 2])

    asyncio.run(main())


def test_a_time_out_is_an_attempt_of_which_nobody_knows(database_url):
    """The coroutine is interrupted, and the reconciler is asked."""
    provider = Provider()
    provider.before = lambda attempt: asyncio.Event().wait()
    provider.verdicts = [Done(6)]
    pays = paying(provider, timeout="100ms")

    async def main() -> None:
        async with connect_ledger(database_url) as ledger:
            assert await ledger.run(pays, 5, key="key") == 6
            (attempt,) = (await found(ledger)).attempts
            assert attempt.error is not None
            assert attempt.error.message == "an attempt of effect pay took longer than 0:00:00.100000"
        assert provider.asked == [1]

    asyncio.run(main())


def test_a_caller_who_is_canceled_leaves_no_lease(database_url):
    """The next one asks at once what became of it."""
    provider, began = Provider(), asyncio.Event()

    async def begin(attempt):
        began.set()
        await asyncio.Event().wait()

    provider.before = begin
    provider.verdicts = [Done(6)]
    pays = paying(provider)

    async def main() -> None:
        async with two_ledgers(database_url, lease="1h") as (first, second):
            acting = asyncio.create_task(first.run(pays, 5, key="key"))
            await began.wait()
            acting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await acting
            assert await second.run(pays, 5, key="key", wait=0) == 6
        assert provider.asked == [1]

    asyncio.run(main())


def test_a_process_that_is_killed_in_the_middle_has_done_it_once(database_url, tmp_path):
    """What it did is in the world and not in the ledger: who comes next finds it, and does not do it again."""
    file = tmp_path / "world"
    child = subprocess.Popen([sys.executable, str(CHILD), database_url, str(file)], stdout=subprocess.PIPE, text=True, env={"PYTHONPATH": str(SOURCE)})
    assert child.stdout is not None
    with child, child.stdout:
        assert child.stdout.readline() == "done\n"
        child.kill()

    @effect(name="pay", timeout="60s")
    async def pay(attempt, amount: int) -> int:
        file.write_text(file.read_text() + "once more\n")
        return amount

    @pay.reconcile
    def is_paid(attempt, amount: int) -> Done[int] | NotDone:
        served = [line.split() for line in file.read_text().splitlines()]
        return Done(amount) if [attempt.key, str(attempt.number), str(attempt.token)] in served else NotDone()

    async def main() -> None:
        async with connect_ledger(database_url) as ledger:
            assert await ledger.run(pay, 5, key="key") == 5
            assert [attempt.outcome for attempt in (await found(ledger)).attempts] == ["done"]

    asyncio.run(main())
    assert len(file.read_text().splitlines()) == 1


# --- what comes late ----------------------------------------------------------------------------------------------------------
def test_a_thread_that_ends_late_is_believed_while_its_attempt_is_current(database_url):
    """The call ends after twice the time-out; nothing begins beside the thread, and its result is recorded when it comes."""
    provider, served = Provider(), threading.Event()
    provider.before = lambda attempt: served.wait(PATIENCE)
    pays = paying(provider, plain=True, timeout="100ms")

    async def main() -> None:
        async with connect_ledger(database_url) as ledger:
            with pytest.raises(StepStuckError):
                await ledger.run(pays, 5, key="key")
            with pytest.raises(OperationInProgressError):
                await ledger.run(pays, 5, key="key", wait="100ms")
            served.set()
            assert await ledger.run(pays, 5, key="key") == 6
            assert [attempt.outcome for attempt in (await found(ledger)).attempts] == ["done"]
        assert (len(provider.done), provider.asked) == (1, [])

    asyncio.run(main())


def test_a_thread_that_ends_within_its_second_time_out_is_heard(database_url):
    """It was told at the first one, and what it says by then counts."""
    provider = Provider()
    told = []

    def wait_until_told(attempt):
        while not attempt.canceled:
            threading.Event().wait(0.01)
        told.append(attempt.number)

    provider.before = wait_until_told
    pays = paying(provider, plain=True, timeout="4s")

    async def main() -> None:
        async with connect_ledger(database_url) as ledger:
            assert await ledger.run(pays, 5, key="key") == 6
        assert told == [1]

    asyncio.run(main())


def test_what_a_frozen_caller_comes_with_is_refused(database_url, monkeypatch, caplog):
    """Another one has taken over and done it: the late result is kept beside its attempt, said in the log, and changes nothing."""
    monkeypatch.setattr("outlast.ledger.lease.LEDGER_RENEWALS_PER_LEASE", 0.001)  # a caller who does not renew
    provider, awake = Provider(), asyncio.Event()
    provider.verdicts = [NotDone(revoked=True)]
    provider.before = lambda attempt: awake.wait() if attempt.number == 1 else None
    pays = paying(provider, timeout="1h")

    async def main() -> None:
        async with two_ledgers(database_url, lease="1s") as (first, second):
            frozen = asyncio.create_task(first.run(pays, 5, key="key"))
            await happens("the attempt began", lambda: second.find(pays, "key"))
            assert await second.run(pays, 5, key="key") == 6
            done = await found(second)
            awake.set()
            assert await frozen == 6
            view = await found(second)
            assert (view.result, view.changed_at, [attempt.outcome for attempt in view.attempts]) == (done.result, done.changed_at, ["not_done", "done"])
            assert [attempt.late for attempt in view.attempts] == ["6", None]

    with caplog.at_level(logging.WARNING, "outlast"):
        asyncio.run(main())
    assert "attempt 1 of effect pay (key key) ended late: its result is refused, and kept beside the attempt" in caplog.text
