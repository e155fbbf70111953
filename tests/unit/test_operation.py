"""The pure part of the ledger: the table of changes, what is next, and when "not done" is believed."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from outlast.errors import UsageError
from outlast.ledger.operation import (
    ALLOWED,
    OUTCOMES,
    AttemptOutcome,
    Await,
    Begin,
    Change,
    InProgress,
    Operation,
    OperationAttempt,
    OperationName,
    OperationStatus,
    Owner,
    Plan,
    Reconcile,
    Return,
    believable_at,
    is_leased,
    is_same,
    next_move,
)
from outlast.limits import OPERATION_NAME_BYTES_MAX

S = OperationStatus
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
CALLER = Owner("run", 0, "add_torrent", 3, 7)
OTHERS = [
    msgspec.structs.replace(CALLER, run="another"),
    msgspec.structs.replace(CALLER, generation=1),
    msgspec.structs.replace(CALLER, step="add_torrent:1"),
    msgspec.structs.replace(CALLER, token=2),
]
TIMEOUT, SETTLE = timedelta(seconds=60), timedelta(seconds=10)
ATTEMPT = OperationAttempt(2, 40, "run", 3, 7, NOW, TIMEOUT, SETTLE, None)


def seconds(count: float) -> datetime:
    """Return the instant so long after the attempt began."""
    return NOW + timedelta(seconds=count)


def operation(status: OperationStatus, owner: Owner = CALLER, **changes: object) -> Operation:
    """Return an operation in a state, with an attempt and a question."""
    facts = {"attempt": ATTEMPT, "decision": "question", "result": '"done"' if status is S.DONE else None, **changes}
    return Operation(OperationName("add_torrent", "key"), status, "", "digest", owner, NOW, NOW, NOW, **facts)  # type: ignore[arg-type]


def test_every_change_has_its_place_in_the_table():
    """No change is left out, and each leads somewhere."""
    assert set(ALLOWED) == set(Change)
    assert all(found and becomes in S for found, becomes in ALLOWED.values())


def test_every_status_is_reached_from_planned():
    """By the changes of the table alone."""
    reached = {S.PLANNED}
    for _ in S:
        reached |= {becomes for found, becomes in ALLOWED.values() if found & reached}
    assert reached == set(S)


def test_nothing_leads_out_of_done():
    """What is done is done for ever."""
    assert not [change for change, (found, _) in ALLOWED.items() if S.DONE in found]


def test_an_end_is_reached_from_everywhere():
    """No state is a trap: from each one it may be done in the end."""
    ending = {S.DONE}
    for _ in S:
        ending |= {status for found, becomes in ALLOWED.values() if becomes in ending for status in found}
    assert ending == set(S)


def test_an_attempt_begins_from_planned_only():
    """An attempt of which nobody knows the end, and one that somebody is asked about, are never followed by another."""
    assert [(change, found) for change, (found, becomes) in ALLOWED.items() if becomes is S.ATTEMPTING] == [(Change.BEGIN, frozenset({S.PLANNED}))]


def test_what_may_have_been_done_becomes_planned_by_a_word_only():
    """From an attempt to the next one leads a reconciler, an error that was declared, or a person."""
    leading = {change for change, (found, becomes) in ALLOWED.items() if becomes is S.PLANNED and found & {S.ATTEMPTING, S.UNKNOWN, S.ASKED}}
    assert leading == {Change.NOT_DONE, Change.ANSWER_AGAIN}


def test_outcomes_fit_what_becomes_of_the_operation():
    """A change that leads to done says done of the attempt, and one that allows another says that it was not."""
    expected = {S.DONE: AttemptOutcome.DONE, S.PLANNED: AttemptOutcome.NOT_DONE, S.FAILED: AttemptOutcome.NOT_DONE}
    assert all(OUTCOMES[change] is expected.get(ALLOWED[change][1], AttemptOutcome.UNKNOWN) for change in OUTCOMES)
    without = {Change.BEGIN, Change.GIVE_UP, Change.REVIVE, Change.RESUME, Change.ASK_AGAIN}
    assert set(OUTCOMES) == set(Change) - without


@pytest.mark.parametrize("is_owner_active", [True, False])
@pytest.mark.parametrize("owner", [CALLER, *OTHERS])
def test_what_is_done_is_returned(owner, is_owner_active):
    """Whoever owns it, and whether he acts or not: nothing is done."""
    assert next_move(operation(S.DONE, owner), CALLER, is_owner_active=is_owner_active) == Return('"done"')


def test_what_is_done_without_a_text_is_null():
    """An effect that returns nothing is done all the same."""
    assert next_move(operation(S.DONE, result=None), CALLER, is_owner_active=False) == Return("null")


@pytest.mark.parametrize("is_owner_active", [True, False])
@pytest.mark.parametrize("owner", [CALLER, *OTHERS])
def test_what_is_asked_waits_for_the_answer(owner, is_owner_active):
    """For whoever comes."""
    assert next_move(operation(S.ASKED, owner), CALLER, is_owner_active=is_owner_active) == Await("question")


@pytest.mark.parametrize("is_owner_active", [True, False])
@pytest.mark.parametrize("owner", [CALLER, *OTHERS])
def test_what_failed_is_nobodys(owner, is_owner_active):
    """Whoever failed at it, and whatever he does by now: who comes tries again."""
    assert next_move(operation(S.FAILED, owner), CALLER, is_owner_active=is_owner_active) == Begin(is_revived=True)


@pytest.mark.parametrize("status", [S.PLANNED, S.ATTEMPTING, S.UNKNOWN])
@pytest.mark.parametrize("owner", OTHERS)
def test_whoever_acts_is_not_disturbed(status, owner):
    """Another current claim has it: the caller does nothing."""
    assert next_move(operation(status, owner), CALLER, is_owner_active=True) == InProgress(owner.run)


@pytest.mark.parametrize(("owner", "is_owner_active"), [(CALLER, True), (CALLER, False), *((other, False) for other in OTHERS)])
@pytest.mark.parametrize(
    ("status", "move"),
    [(S.PLANNED, Begin()), (S.ATTEMPTING, Reconcile(ATTEMPT)), (S.UNKNOWN, Reconcile(ATTEMPT))],
)
def test_who_may_act_goes_on(status, move, owner, is_owner_active):
    """The owner himself, or anybody where the owner acts no more: an attempt without a known end is reconciled before all else."""
    assert next_move(operation(status, owner), CALLER, is_owner_active=is_owner_active) == move


@pytest.mark.parametrize(
    ("status", "owner", "lease", "expected"),
    [
        (S.ATTEMPTING, "", 1, True),
        (S.UNKNOWN, "", 1, True),
        (S.PLANNED, "", 1, True),
        (S.ATTEMPTING, "", 0, False),
        (S.ATTEMPTING, "", None, False),
        (S.ATTEMPTING, "run", 1, False),
        (S.ASKED, "", 1, False),
        (S.FAILED, "", 1, False),
        (S.DONE, "", 1, False),
    ],
)
def test_a_caller_without_an_engine_acts_while_its_lease_lasts(status, owner, lease, expected):
    """As long as there may be something to do for it, and to the instant."""
    attempt = msgspec.structs.replace(ATTEMPT, lease_until=None if lease is None else seconds(lease))
    assert is_leased(operation(status, msgspec.structs.replace(CALLER, run=owner), attempt=attempt)) == expected


def test_what_was_never_attempted_has_no_lease():
    """A plan alone holds nobody up."""
    assert not is_leased(operation(S.PLANNED, msgspec.structs.replace(CALLER, run=""), attempt=None))


@pytest.mark.parametrize("other", OTHERS)
def test_a_claim_is_the_same_by_what_fences_it(other):
    """Run, generation, step and token; its worker is only told."""
    assert not is_same(CALLER, other)
    assert is_same(CALLER, msgspec.structs.replace(CALLER, worker=None))


@pytest.mark.parametrize(
    ("died_at", "expected"),
    [(None, 70), (seconds(5), 15), (seconds(0), 10), (seconds(-5), 10), (seconds(60), 70), (seconds(500), 70)],
)
def test_not_done_is_believed_once_nothing_is_under_way(died_at, expected):
    """From the time-out or the proven death on, whichever is earlier, and never before the attempt began; `settle` comes on top."""
    assert believable_at(ATTEMPT, died_at) == seconds(expected)


@pytest.mark.parametrize(("effect", "key", "part"), [("e", "\U0002a000" * 650, "the key"), ("\u732b" * 600, "\u732b" * 267, "the effect's name")])
def test_a_name_that_no_index_takes_is_refused(effect, key, part):
    """Counted in UTF-8, name and key together; what to shorten is named, and at the limit it is taken."""
    plan = Plan(OperationName(effect, key[: len(key) - 1]), "", "", CALLER)
    assert len((plan.name.effect + plan.name.key).encode()) <= OPERATION_NAME_BYTES_MAX
    with pytest.raises(UsageError, match=f"bytes in UTF-8 and the key .* at most 2,600 are allowed, so shorten {part}"):
        Plan(OperationName(effect, key), "", "", CALLER)
