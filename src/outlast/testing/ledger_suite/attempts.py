"""What a ledger's store promises about attempts: durable before anything is done, numbered, with tokens that only ever grow."""

from contextlib import suppress
from datetime import datetime, timedelta

import msgspec
import pytest

from outlast.ledger.operation import AttemptOutcome, Change, OperationChange, OperationStatus, Owner

from .world import ERROR, NAME, OWNER, RUN, SETTLE, TIMEOUT, LedgerWorld, LedgerWorldSuite, after, new_name

LEASE = timedelta(seconds=30)
S = OperationStatus


class AttemptsSuite(LedgerWorldSuite):
    """Attempts, their tokens and leases, and what comes late."""

    def test_an_attempt_is_kept_as_it_began(self, world: LedgerWorld) -> None:
        """Number, claim, worker, instant, time-out and settle come back to the microsecond, and it has no outcome."""
        world.plan()
        begun = world.begun(now=after(2))
        assert (begun.number, begun.run, begun.run_token, begun.worker) == (1, RUN, OWNER.token, OWNER.worker)
        assert (begun.started_at, begun.timeout, begun.settle, begun.lease_until) == (after(2), TIMEOUT, SETTLE, None)
        assert (begun.outcome, begun.ended_at, begun.error, begun.late) == (None, None, None, None)
        assert world.operation().attempt == begun
        assert (world.operation().status, world.attempts()) == (S.ATTEMPTING, [begun])

    def test_numbers_grow_and_every_attempt_is_kept(self, world: LedgerWorld) -> None:
        """One after the other; the current one is the last that began."""
        world.plan()
        for number in range(3):
            assert world.begun(number, now=after(number)).number == number + 1
            world.change(Change.NOT_DONE, number + 1, error=ERROR, now=after(number))
        assert [(attempt.number, attempt.outcome) for attempt in world.attempts()] == [(number, AttemptOutcome.NOT_DONE) for number in (1, 2, 3)]
        current = world.operation().attempt
        assert current is not None
        assert current.number == 3

    def test_one_attempt_at_a_time(self, world: LedgerWorld) -> None:
        """While one is under way none begins, with whatever number."""
        world.plan()
        world.begun()
        assert [world.begin(number) for number in (0, 1, 2)] == [None, None, None]
        assert len(world.attempts()) == 1

    def test_tokens_grow_over_attempts_and_operations(self, world: LedgerWorld) -> None:
        """One sequence for the whole store, whoever takes from it."""
        tokens = []
        for number in range(3):
            for key in ("a", "b"):
                name = new_name(key)
                world.plan(name)
                tokens.append(world.begun(number, name=name).token)
                world.change(Change.NOT_DONE, number + 1, name=name)
        assert tokens == sorted(set(tokens))
        assert tokens[0] > 0

    def test_tokens_grow_after_everything_was_deleted(self, world: LedgerWorld) -> None:
        """A token that was handed outside is never handed out again, though nothing here remembers the attempt."""
        world.bring(S.DONE, new_name("gone"), Owner("", 0, "", 5, None))
        gone = world.attempts(new_name("gone"))[0].token
        assert world.delete_old(timedelta(0), after(60)) == 1
        world.plan()
        assert world.begun().token > gone

    def test_an_attempt_that_was_undone_leaves_no_attempt(self, world: LedgerWorld) -> None:
        """Its transaction is rolled back: the operation is planned as before, and the next token is no smaller."""
        world.plan()
        taken = []
        with suppress(ZeroDivisionError), world.writing() as tx:
            taken.append(world.ledger.begin_attempt(tx, OperationChange(NAME, Change.BEGIN, OWNER, 0), TIMEOUT, SETTLE))
            raise ZeroDivisionError
        [undone] = taken
        assert undone is not None
        assert (world.operation().status, world.operation().attempt, world.attempts()) == (S.PLANNED, None, [])
        assert world.begun().token >= undone.token

    def test_another_claim_begins_with_its_own_token(self, world: LedgerWorld) -> None:
        """An attempt says whose claim began it."""
        world.bring(S.ATTEMPTING)
        world.change(Change.NOT_DONE, 1)
        newer = msgspec.structs.replace(OWNER, token=9, worker=None)
        world.own(newer)
        begun = world.begun(1, owner=newer)
        assert (begun.run_token, begun.worker) == (9, None)

    def test_a_lease_is_renewed_by_who_acts(self, world: LedgerWorld) -> None:
        """From its beginning, anew at each renewal, also while he finds out what became of it; a lease of nothing ends it."""
        world.plan()
        assert world.begun(lease=LEASE, now=after(1)).lease_until == after(31)
        assert world.renew(1, LEASE, now=after(10))
        assert self.lease(world) == after(40)
        world.change(Change.DOUBT, 1)
        assert world.renew(1, LEASE, now=after(20))
        assert self.lease(world) == after(50)
        assert world.renew(1, timedelta(0), now=after(25))
        assert self.lease(world) == after(25)

    def test_who_does_not_act_renews_nothing(self, world: LedgerWorld) -> None:
        """Another caller, another attempt, or an attempt that is over is told so."""
        world.plan()
        world.begun(lease=LEASE)
        other = msgspec.structs.replace(OWNER, token=4)
        assert (world.renew(1, LEASE, other, after(9)), world.renew(2, LEASE, now=after(9)), self.lease(world)) == (False, False, after(30))
        world.change(Change.NOT_DONE, 1)
        assert (world.renew(1, LEASE, now=after(9)), self.lease(world)) == (False, after(30))

    @pytest.mark.parametrize("status", [S.DONE, S.ASKED, S.PLANNED])
    def test_what_comes_late_is_kept_and_changes_nothing_else(self, world: LedgerWorld, status: OperationStatus) -> None:
        """A result that was refused is beside its attempt, for a person to see; a second one does not take its place."""
        number = world.bring(S.ATTEMPTING)
        world.change(Change.NOT_DONE, number)
        token = world.attempts()[0].token
        if status is not S.PLANNED:
            world.begun(1)
            world.change(Change.RESULT if status is S.DONE else Change.ASK, 2, result='"second"' if status is S.DONE else None)
        before, [first, *others] = world.operation(), world.attempts()
        assert world.late(1, token, '"late"')
        assert world.late(1, token, '"later"')
        assert (world.operation().status, world.operation().result) == (before.status, before.result)
        assert world.attempts() == [msgspec.structs.replace(first, late='"late"'), *others]

    def test_what_comes_late_names_its_attempt(self, world: LedgerWorld) -> None:
        """With another number or token nothing is kept."""
        world.bring(S.ATTEMPTING)
        [attempt] = world.attempts()
        assert (world.late(2, attempt.token, "1"), world.late(1, attempt.token + 1, "1")) == (False, False)
        assert world.attempts() == [attempt]

    def test_a_thread_that_goes_on_is_seen_until_it_ends(self, world: LedgerWorld) -> None:
        """A new attempt has none; however the operation is read, and whoever owns it, the mark is there until it is taken away."""
        world.bring(S.ATTEMPTING)
        [attempt] = world.attempts()
        assert not attempt.lingers
        world.own(msgspec.structs.replace(OWNER, token=9))
        for lingers in (True, True, False):
            assert world.linger(1, attempt.token, lingers)
            marked, locked = msgspec.structs.replace(attempt, lingers=lingers), world.lock()
            assert locked is not None
            assert (locked.attempt, world.operation().attempt, world.attempts()) == (marked, marked, [marked])
            assert [operation.attempt for operation in world.operations()] == [marked]

    def test_a_thread_ends_whatever_became_of_its_operation(self, world: LedgerWorld) -> None:
        """A later attempt has no mark, and the mark of the earlier one is taken away beside it."""
        world.bring(S.ATTEMPTING)
        [first] = world.attempts()
        world.linger(1, first.token, True)
        world.change(Change.NOT_DONE, 1)
        assert not world.begun(1).lingers
        assert [attempt.lingers for attempt in world.attempts()] == [True, False]
        world.change(Change.RESULT, 2, result="1")
        assert world.linger(1, first.token, False)
        assert [attempt.lingers for attempt in world.attempts()] == [False, False]

    def test_a_mark_names_its_attempt(self, world: LedgerWorld) -> None:
        """With another number or token nothing is marked."""
        world.bring(S.ATTEMPTING)
        [attempt] = world.attempts()
        assert (world.linger(2, attempt.token, True), world.linger(1, attempt.token + 1, True)) == (False, False)
        assert world.attempts() == [attempt]

    def test_attempts_are_listed_for_each_operation(self, world: LedgerWorld) -> None:
        """Those that were asked for, by number; an operation without one has an empty list."""
        first, second, third = new_name("first"), new_name("second"), new_name("third")
        world.bring(S.FAILED, first)
        world.change(Change.REVIVE, 1, name=first)
        world.begun(1, name=first)
        world.plan(second)
        world.bring(S.DONE, third)
        with world.backend.database.reading() as tx:
            listed = world.ledger.list_attempts(tx, [first, second])
            nothing = world.ledger.list_attempts(tx, [])
        assert ({name: [attempt.number for attempt in attempts] for name, attempts in listed.items()}, nothing) == ({first: [1, 2], second: []}, {})

    def lease(self, world: LedgerWorld) -> datetime | None:
        attempt = world.operation().attempt
        assert attempt is not None
        return attempt.lease_until
