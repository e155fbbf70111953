"""What a ledger's store promises about changes: those of the table and no others, by the owner's claim and the current attempt only."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from outlast.ledger.operation import ALLOWED, OUTCOMES, AttemptOutcome, Change, OperationStatus, Owner

from .world import ERROR, OWNER, LedgerWorld, LedgerWorldSuite, after, new_name

S = OperationStatus
OTHERS = {
    "older token": msgspec.structs.replace(OWNER, token=OWNER.token - 1),
    "newer token": msgspec.structs.replace(OWNER, token=OWNER.token + 1),
    "another run": msgspec.structs.replace(OWNER, run="another"),
    "no run": msgspec.structs.replace(OWNER, run=""),
    "older generation": msgspec.structs.replace(OWNER, generation=1),
    "another step": msgspec.structs.replace(OWNER, step="add_torrent:1"),
}


class ChangesSuite(LedgerWorldSuite):
    """The one table of changes, as the database keeps it."""

    @pytest.mark.parametrize("change", Change)
    @pytest.mark.parametrize("status", OperationStatus)
    def test_the_table_is_what_the_database_allows(self, world: LedgerWorld, status: OperationStatus, change: Change) -> None:
        """Each change in each state is made or refused as `ALLOWED` says; what is refused leaves no trace."""
        number = world.bring(status)
        before = (world.operation(), world.attempts())
        found, becomes = ALLOWED[change]
        is_made = world.change(change, number, now=after(5))
        assert is_made == (status in found)
        if is_made:
            assert (world.operation().status, world.operation().changed_at) == (becomes, after(5))
        else:
            assert (world.operation(), world.attempts()) == before

    @pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS.keys())
    def test_who_is_not_the_owner_changes_nothing(self, world: LedgerWorld, other: Owner) -> None:
        """In every state everything that the owner could do is refused to anybody else, an older claim of the same run included."""
        for status in OperationStatus:
            name = new_name(f"key of {status}")
            number = world.bring(status, name)
            before = (world.operation(name), world.attempts(name))
            for change in Change:
                assert not world.change(change, number, name=name, owner=other, now=after(5))
            assert not world.count_reconcile(number, other, name)
            assert (world.operation(name), world.attempts(name)) == before

    def test_an_older_attempt_changes_nothing(self, world: LedgerWorld) -> None:
        """What the first attempt says when the second has begun is refused, within one claim too."""
        world.bring(S.ATTEMPTING)
        world.change(Change.NOT_DONE, 1)
        world.begun(1)
        before = (world.operation(), world.attempts())
        for change in Change:
            for number in (0, 1, 3):
                assert not world.change(change, number, result='"late"', now=after(5))
        assert not world.count_reconcile(1)
        assert not world.renew(1, after(60) - after(0))
        assert (world.operation(), world.attempts()) == before

    @pytest.mark.parametrize("change", [Change.RESULT, Change.FOUND_DONE])
    @pytest.mark.parametrize("status", [S.ATTEMPTING, S.UNKNOWN])
    def test_a_result_is_kept_and_never_replaced(self, world: LedgerWorld, status: OperationStatus, change: Change) -> None:
        """The first one stands, whatever comes after it."""
        number = world.bring(status)
        assert world.change(change, number, result='{"id": 1e22}', now=after(1))
        done = (world.operation(), world.attempts())
        assert (done[0].status, done[0].result) == (S.DONE, '{"id": 1e22}')
        for later in Change:
            assert not world.change(later, number, result='"another"', error=ERROR, decision="question", now=after(2))
        world.plan(now=after(3))
        assert (world.operation(), world.attempts()) == done

    @pytest.mark.parametrize("change", OUTCOMES)
    def test_a_change_says_how_the_attempt_ended(self, world: LedgerWorld, change: Change) -> None:
        """The attempt has the outcome of the table, when it ended and its error; the last word stands, and the first instant."""
        status = S.ASKED if change.startswith("answer") else S.ATTEMPTING
        number = world.bring(status)
        assert world.change(change, number, error=ERROR, now=after(7))
        [attempt] = world.attempts()
        assert (attempt.outcome, attempt.error) == (OUTCOMES[change], ERROR)
        assert attempt.ended_at == (after(7) if status is S.ATTEMPTING else after(0))

    def test_what_nobody_knew_is_known_in_the_end(self, world: LedgerWorld) -> None:
        """An attempt that was unknown was not done after all; what it raised first is what is kept of it."""
        number = world.bring(S.ATTEMPTING)
        world.change(Change.DOUBT, number, error=ERROR, now=after(1))
        world.change(Change.NOT_DONE, number, error=replace(ERROR, message="the reconciler's word"), now=after(2))
        [attempt] = world.attempts()
        assert (attempt.outcome, attempt.error, attempt.ended_at) == (AttemptOutcome.NOT_DONE, ERROR, after(1))
        assert (world.operation().status, world.operation().error) == (S.PLANNED, replace(ERROR, message="the reconciler's word"))

    def test_what_is_done_has_no_error(self, world: LedgerWorld) -> None:
        """The error of an earlier attempt stays with that attempt."""
        number = world.bring(S.ATTEMPTING)
        world.change(Change.NOT_DONE, number, error=ERROR)
        world.begun(1)
        world.change(Change.RESULT, 2, result="null")
        assert (world.operation().error, world.operation().result) == (None, "null")
        assert [(attempt.outcome, attempt.error) for attempt in world.attempts()] == [(AttemptOutcome.NOT_DONE, ERROR), (AttemptOutcome.DONE, None)]

    @pytest.mark.parametrize("change", [Change.ANSWER_DONE, Change.ANSWER_AGAIN, Change.ANSWER_FAIL])
    def test_a_question_is_named_until_it_is_answered(self, world: LedgerWorld, change: Change) -> None:
        """`decision` is there while the operation is asked, and only then; another question takes its place."""
        number = world.bring(S.UNKNOWN)
        world.change(Change.ASK, number, decision="first")
        assert world.operation().decision == "first"
        world.change(Change.ASK_AGAIN, number, decision="second")
        assert (world.operation().status, world.operation().decision) == (S.ASKED, "second")
        world.change(change, number)
        assert world.operation().decision is None

    @pytest.mark.parametrize("status", [S.ATTEMPTING, S.UNKNOWN])
    def test_failures_of_the_reconciler_are_counted_in_a_row(self, world: LedgerWorld, status: OperationStatus) -> None:
        """Each one more; whatever else happens to the operation begins anew."""
        number = world.bring(status)
        assert [world.count_reconcile(number) for _ in range(3)] == [True, True, True]
        assert (world.operation().reconciles, world.operation().status) == (3, status)
        changes: list[tuple[Change, dict[str, Any]]] = [(Change.ASK, {"decision": "question"}), (Change.NOT_DONE, {})]
        assert world.change(changes[number % 2][0], number, **changes[number % 2][1])
        assert world.operation().reconciles == 0

    @pytest.mark.parametrize("status", [S.PLANNED, S.ASKED, S.DONE, S.FAILED])
    def test_nothing_is_counted_where_nobody_reconciles(self, world: LedgerWorld, status: OperationStatus) -> None:
        """Only an attempt without a known end is reconciled."""
        number = world.bring(status)
        assert not world.count_reconcile(number)
