"""What an attempt's end says, what a reconciler's word is worth, and what a person's answer means."""

import json
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from outlast import FinalError, PayloadError, RetryLater, RetryPolicy, UsageError
from outlast.decision import DecisionState, DecisionView
from outlast.effect import Done, NotDone, Unsure, effect
from outlast.ledger.asking import NEEDS_RESULT, OPTIONS, Answered, Option, fitting_result, meaning_of, new_question
from outlast.ledger.operation import Change, Operation, OperationAttempt, OperationName, OperationStatus, Owner
from outlast.ledger.verdict import Believed, Doubted, TooSoon, checked_verdict, disbelieved_for, failure_of, is_not_done, retry_in, worth
from outlast.limits import QUESTION_CHARACTERS_MAX
from outlast.payload import digest

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
ATTEMPT = OperationAttempt(2, 40, "run", 3, 7, NOW, timedelta(seconds=60), timedelta(seconds=10), None)


@effect(not_done=(ConnectionRefusedError,), retry=RetryPolicy(maximum_attempts=3, initial_delay="1s", jitter=0, final=(PermissionError,)))
def pay(attempt, amount: int) -> int:
    """Stand for something outside."""
    return amount


def operation(run: str = "run", arguments: str = "[5]") -> Operation:
    """Return an operation with an attempt of which nobody knows the end."""
    owner = Owner(run, 0, "pay", 3, 7)
    return Operation(OperationName("pay", "key"), OperationStatus.UNKNOWN, arguments, "digest", owner, NOW, NOW, NOW, attempt=ATTEMPT)


def answered(option: str, result: str | None = None, note: str = "") -> DecisionView:
    """Return a decision that ann has answered."""
    return DecisionView(
        "id", DecisionState.ANSWERED, "run", "pay", "?", "{}", "digest", OPTIONS, NEEDS_RESULT, pay.place, NOW, option, result, "ann", note, NOW
    )


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (NotDone("no"), True),
        (NotDone(), True),
        (ConnectionRefusedError(), True),
        (ConnectionResetError(), False),
        (OSError(), False),
        (TimeoutError(), False),
        (FinalError("no"), False),
        (RetryLater("1s"), False),
        (KeyboardInterrupt(), False),
        (ExceptionGroup("several", [ConnectionRefusedError()]), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_only_what_was_declared_is_not_done(error, expected):
    """Every other error, a final one too, leaves open whether it was done."""
    assert is_not_done(pay, error) == expected


def test_the_cause_of_not_done_is_what_is_kept():
    """Policies and people ask for what happened; without a cause the word itself is kept."""
    assert failure_of(NotDone(ConnectionRefusedError("port 80"))).is_a(ConnectionRefusedError)
    assert (failure_of(NotDone("the slot is taken")).message, failure_of(NotDone("no")).is_a(NotDone)) == ("the slot is taken", True)
    assert failure_of(NotDone(FinalError("never"))).is_final
    assert failure_of(PayloadError("result: too large")).is_final


@pytest.mark.parametrize(
    ("error", "attempts", "expected"),
    [
        (NotDone("no"), 1, 1),
        (NotDone("no"), 2, 2),
        (NotDone("no"), 3, None),
        (ConnectionRefusedError(), 2, 2),
        (NotDone(PermissionError()), 1, None),
        (NotDone(FinalError("no")), 1, None),
        (NotDone(RetryLater("30s")), 1, 30),
        (NotDone(RetryLater("30s")), 3, None),
    ],
    ids=str,
)
def test_what_was_not_done_is_tried_again_by_the_policy(error, attempts, expected):
    """With its delays, or the one that was asked for, while attempts are left and the error is not final."""
    delay = retry_in(pay, error, failure_of(error), attempts, 0.5)
    assert (None if delay is None else delay.total_seconds()) == expected


@pytest.mark.parametrize("verdict", [Done(5), NotDone("no"), Unsure("?")], ids=lambda verdict: type(verdict).__name__)
def test_the_three_words_are_verdicts(verdict):
    """They are taken as they are."""
    assert checked_verdict(pay, verdict) is verdict


@pytest.mark.parametrize(("written", "kind"), [(NotDone, NotDone), (Unsure, Unsure)])
def test_a_word_without_parentheses_is_understood(written, kind):
    """`return NotDone` is clear."""
    assert isinstance(checked_verdict(pay, written), kind)


@pytest.mark.parametrize("other", [None, True, "done", Done, 5], ids=repr)
def test_anything_else_is_no_verdict(other):
    """A reconciler that forgot to say something has said nothing, least of all that it was not done."""
    with pytest.raises(UsageError, match=r"pay.reconcile returned .*: return Done\(result\), NotDone\(\) or Unsure\(reason\)"):
        checked_verdict(pay, other)


@pytest.mark.parametrize(
    ("later", "died", "revoked", "expected"),
    [(0, None, False, 70), (69, None, False, 1), (70, None, False, 0), (100, None, False, 0), (0, None, True, 0), (6, 5, False, 9), (15, 5, False, 0)],
)
def test_not_done_is_not_believed_before_its_time(later, died, revoked, expected):
    """The rest until nothing of the attempt can be under way; what was revoked cannot be."""
    died_at = None if died is None else NOW + timedelta(seconds=died)
    assert disbelieved_for(NotDone(revoked=revoked), ATTEMPT, NOW + timedelta(seconds=later), died_at) == timedelta(seconds=expected)


@pytest.mark.parametrize(
    ("lingers", "later", "died", "revoked", "expected"),
    [
        (False, 69, None, False, TooSoon(timedelta(seconds=1))),
        (False, 70, None, False, Believed()),
        (True, 69, None, False, TooSoon(timedelta(seconds=1))),
        (True, 70, None, False, Doubted("a thread of the attempt still runs")),
        (True, 10**9, None, False, Doubted("a thread of the attempt still runs")),
        (True, 6, 5, False, TooSoon(timedelta(seconds=9))),
        (True, 15, 5, False, Believed()),
        (True, 0, None, True, Believed()),
    ],
)
def test_not_done_is_not_believed_while_a_thread_goes_on(lingers, later, died, revoked, expected):
    """However long it takes: only the proven death of its worker ends a thread, and what was revoked it cannot do."""
    attempt, died_at = msgspec.structs.replace(ATTEMPT, lingers=lingers), None if died is None else NOW + timedelta(seconds=died)
    assert worth(NotDone(revoked=revoked), attempt, NOW + timedelta(seconds=later), died_at) == expected


def test_a_question_says_all_that_a_person_has_to_know():
    """Which operation and attempt, its arguments as data, and why nobody else can tell; its digest is of just that."""
    question = new_question("id", pay, operation(), ATTEMPT, "the provider has no search")
    assert (question.id, question.run, question.step, question.effect) == ("id", "run", "pay", pay.place)
    assert question.question == "Was pay done? Attempt 2 has no result: the provider has no search"
    about = json.loads(question.about)
    assert (about["key"], about["arguments"], about["attempt"], about["token"]) == ("key", [5], 2, 40)
    assert (question.digest, question.options, question.needs_result) == (digest(question.about), ("done", "again", "fail"), ("done",))


def test_a_question_without_an_engine_belongs_to_no_run():
    """And an effect without arguments has none to show."""
    question = new_question("id", pay, operation(run="", arguments=""), ATTEMPT, "")
    assert (question.run, json.loads(question.about)["arguments"], question.question) == (None, [], "Was pay done? Attempt 2 has no result.")


def test_a_reason_of_any_length_can_be_asked():
    """It is cut to what fits a screen, and NUL and surrogates are escaped."""
    question = new_question("id", pay, operation(), ATTEMPT, "\0\ud800" + "x" * 100_000)
    assert len(question.question) <= QUESTION_CHARACTERS_MAX
    assert "\0" not in question.question + question.about
    json.loads(question.about.encode())


def test_an_answer_means_a_change():
    """Done with the result, another attempt, or failed with who said so and why."""
    assert meaning_of(pay, answered(Option.DONE, " 7 ")) == Answered(Change.ANSWER_DONE, "7")
    assert meaning_of(pay, answered("again")) == Answered(Change.ANSWER_AGAIN)
    failed = meaning_of(pay, answered("fail", note="it is too late"))
    assert failed.change is Change.ANSWER_FAIL
    assert failed.error is not None
    assert failed.error.is_final
    assert failed.error.message == "ann decided that it was not done and is not tried again: it is too late"


@pytest.mark.parametrize("text", ['"seven"', "null", None, "7.5", "[", ""])
def test_a_result_that_does_not_fit_is_no_result(text):
    """What a person gave is checked against the effect's type."""
    with pytest.raises(PayloadError, match="result of step pay"):
        fitting_result(pay, text)


def test_an_answer_that_was_never_offered_is_refused():
    """It is a fault, and no change of the operation."""
    with pytest.raises(UsageError, match="was answered 'perhaps'"):
        meaning_of(pay, answered("perhaps"))
