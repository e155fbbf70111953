"""Replay: what a call finds, in which order the body gets records, and when code does not fit its history."""

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from outlast.errors import HistoryMismatchError
from outlast.failure import Failure
from outlast.native.history import FailedAttempt, History, LastProgress, Outcome, Record, RecordKind, Wait
from outlast.native.replay import NOT_STARTED, Found, Replay
from outlast.step_key import StepKey

NOW = datetime(2024, 5, 1, tzinfo=UTC)
STEP, SLEEP, TIMEOUT = RecordKind.STEP, RecordKind.SLEEP, RecordKind.TIMEOUT


def key(text: str) -> StepKey:
    """Read the text form of a key: `0.1/locate:1`."""
    path, _, name = text.rpartition("/")
    name, _, number = name.partition(":")
    return StepKey(tuple(map(int, path.split("."))) if path else (), name, int(number or 0))


def record(text: str, seq: int, *, kind: RecordKind = STEP, outcome: Outcome = Outcome.RESULT, digest: str = "") -> Record:
    return Record(key(text), seq, kind, outcome, digest, 1, NOW, result="null")


def replay_of(*records: Record, **others) -> Replay:
    return Replay(History(records, **others))


def ask(replay: Replay, *texts: str, kind: RecordKind = STEP, digest: str = "", is_inserted: bool = False) -> list[Found]:
    return [replay.ask(key(text), kind, digest, is_inserted=is_inserted) for text in texts]


def handed(replay: Replay) -> list[str]:
    """Take all that can be handed over now."""
    taken = []
    while (one := replay.next_record()) is not None:
        taken.append(str(one.key))
    return taken


# --- what a call finds ------------------------------------------------------------------------------------------------
def test_without_history_a_call_is_performed_at_once():
    """A call finds nothing where nothing is recorded, and nothing is waited for."""
    assert ask(Replay(History()), "a", "b") == [Found.NOTHING, Found.NOTHING]


def test_recorded_call_finds_its_record():
    """A call that is recorded is not performed, and the body gets the record itself."""
    recorded = record("a", 0)
    replay = replay_of(recorded)
    assert ask(replay, "a") == [Found.RECORD]
    assert replay.next_record() is recorded
    assert replay.next_record() is None


def test_new_call_waits_while_something_recorded_is_open():
    """A call without a record is not performed before the body was handed all that it awaits: until then other branches may show a change."""
    replay = replay_of(record("0/a", 0))
    assert ask(replay, "0/a", "1/b") == [Found.RECORD, Found.NOTHING_YET]
    assert handed(replay) == ["0/a"]
    assert ask(replay, "0/c") == [Found.NOTHING]


def test_new_call_waits_while_something_recorded_was_not_asked_for():
    """As long as records of other branches are unasked, a call is deferred and not begun."""
    assert ask(replay_of(record("0/a", 0)), "1/b") == [Found.NOTHING_YET]


def test_new_call_waits_while_a_live_record_is_not_handed_over():
    """A record that has just become durable is handed over before something new begins."""
    replay = Replay(History())
    ask(replay, "0/a")
    replay.land(record("0/a", replay.join_flush()))
    assert ask(replay, "1/b") == [Found.NOTHING_YET]


def test_given_up_call_is_neither_performed_nor_handed_over():
    """A call that the body withdrew from is found as given up, at every replay."""
    replay = replay_of(record("0/a", 0, outcome=Outcome.GIVEN_UP), record("b", 1))
    assert ask(replay, "0/a", "b") == [Found.GIVEN_UP, Found.RECORD]
    assert handed(replay) == ["b"]
    replay.check_end()


# --- order ------------------------------------------------------------------------------------------------------------
def test_records_are_handed_over_by_seq_and_not_as_asked():
    """Among the awaited records the body gets the one with the lowest seq, so that a race is won by the same branch again."""
    replay = replay_of(record("2/a", 0), record("0/a", 1), record("1/a", 2))
    ask(replay, "0/a", "1/a", "2/a")
    assert handed(replay) == ["2/a", "0/a", "1/a"]


def test_record_asked_for_later_goes_first_if_its_seq_is_lower():
    """The order is decided at each standstill anew, among what is awaited then."""
    replay = replay_of(record("0/a", 0), record("0/b", 1), record("1/a", 2))
    ask(replay, "0/a", "1/a")
    assert replay.next_record().key == key("0/a")
    ask(replay, "0/b")
    assert handed(replay) == ["0/b", "1/a"]


def test_durable_record_waits_for_every_lower_seq_in_flight():
    """A record is held back while a lower one is on its way: a replay could not hand them over in the other order."""
    replay = Replay(History())
    ask(replay, "0/a", "1/a")
    first, second = replay.join_flush(), replay.join_flush()
    assert replay.has_in_flight
    replay.land(record("1/a", second))
    assert handed(replay) == []
    assert replay.has_ready
    replay.land(record("0/a", first))
    assert handed(replay) == ["0/a", "1/a"]
    assert not replay.has_in_flight
    assert not replay.has_ready


def test_record_is_not_held_back_by_a_higher_seq_in_flight():
    """Only lower numbers hold a record back."""
    replay = Replay(History())
    ask(replay, "0/a", "1/a")
    first, _ = replay.join_flush(), replay.join_flush()
    replay.land(record("0/a", first))
    assert handed(replay) == ["0/a"]


def test_landing_in_any_order_hands_over_in_the_order_of_seq():
    """However flushes end, the body gets records in the order in which they joined."""
    replay = Replay(History())
    ask(replay, *(f"{branch}/a" for branch in range(5)))
    for seq in [replay.join_flush() for _ in range(5)][::-1]:
        replay.land(record(f"{seq}/a", seq))
    assert handed(replay) == [f"{branch}/a" for branch in range(5)]


def test_given_up_record_in_flight_holds_back_and_is_not_handed_over():
    """A withdrawal has a place in the order, and lets what follows pass once it is durable."""
    replay = Replay(History())
    ask(replay, "0/a", "1/a")
    gone, kept = replay.join_flush(), replay.join_flush()
    replay.land(record("1/a", kept))
    assert handed(replay) == []
    replay.land(record("0/a", gone, outcome=Outcome.GIVEN_UP))
    assert handed(replay) == ["1/a"]


def test_withdrawn_call_is_not_handed_over():
    """What the body stopped to await does not reach it, whether recorded before or landing after."""
    replay = replay_of(record("0/a", 0), record("1/a", 1))
    ask(replay, "0/a", "1/a", "2/a")
    replay.withdraw(key("0/a"))
    replay.withdraw(key("2/a"))
    replay.land(record("2/a", replay.join_flush()))
    assert handed(replay) == ["1/a"]


def test_new_seq_follows_every_recorded_and_every_retired_one():
    """A number is never given twice in a generation, not even that of a retired record."""
    assert Replay(History()).join_flush() == 0
    assert replay_of(record("a", 0), record("b", 4)).join_flush() == 5
    assert replay_of(record("a", 0), retired_seq=7).join_flush() == 8
    assert replay_of(record("a", 9), retired_seq=7).join_flush() == 10


# --- changed code -----------------------------------------------------------------------------------------------------
def test_insertion_before_a_recorded_call_is_refused():
    """A call without a record, in front of one of the same path that has one, is changed code; the message names both."""
    replay = replay_of(record("a", 0), record("b", 1))
    ask(replay, "a")
    with pytest.raises(HistoryMismatchError) as caught:
        ask(replay, "new")
    assert (caught.value.expected, caught.value.got) == ("b at this point", "new")


def test_insertion_in_a_path_does_not_look_at_other_paths():
    """Branches grow independently: only records of the call's own path bind it."""
    replay = replay_of(record("0/a", 0), record("1/a", 1), record("1/b", 2))
    ask(replay, "0/a", "1/a")
    assert ask(replay, "0/b") == [Found.NOTHING_YET]
    with pytest.raises(HistoryMismatchError):
        ask(replay, "1/c")


def test_insertion_names_the_first_record_that_it_passed_over():
    """Of several unasked records the message names the one with the lowest seq."""
    with pytest.raises(HistoryMismatchError, match="first at this point"):
        ask(replay_of(record("second", 5), record("first", 2)), "new")


def test_declared_insertion_passes():
    """A call marked with `inserted=True` may stand in front of recorded ones, and is deferred like any other."""
    replay = replay_of(record("a", 0))
    assert ask(replay, "new", is_inserted=True) == [Found.NOTHING_YET]
    assert ask(replay, "a") == [Found.RECORD]
    replay.check_end()


def test_appending_is_free():
    """A call behind everything recorded of its path is no change."""
    replay = replay_of(record("a", 0))
    ask(replay, "a")
    handed(replay)
    assert ask(replay, "new") == [Found.NOTHING]


def test_durable_timeout_without_record_is_no_insertion():
    """While it is open a time-out has no record, and what is recorded lies inside its block."""
    replay = replay_of(record("a", 0))
    assert ask(replay, "timeout", kind=TIMEOUT) == [Found.NOTHING_YET]
    assert ask(replay, "a") == [Found.RECORD]
    with pytest.raises(HistoryMismatchError):
        ask(replay_of(record("a", 0)), "sleep", kind=SLEEP)


def test_swapped_calls_that_are_both_recorded_get_their_own_records():
    """Nothing is performed and each value is the right one, so the other order harms nothing."""
    replay = replay_of(record("a", 0), record("b", 1))
    order = []
    for name in ("b", "a"):
        assert ask(replay, name) == [Found.RECORD]
        order += handed(replay)
    assert order == ["b", "a"]
    replay.check_end()


@pytest.mark.parametrize("recorded", list(RecordKind))
@pytest.mark.parametrize("asked", list(RecordKind))
def test_another_kind_under_the_same_key_is_refused(recorded, asked):
    """A sleep is not a step of that name."""
    replay = replay_of(record("x", 0, kind=recorded))
    if recorded is asked:
        assert ask(replay, "x", kind=asked) == [Found.RECORD]
        return
    with pytest.raises(HistoryMismatchError, match=f"x as a {recorded}.*x as a {asked}"):
        ask(replay, "x", kind=asked)


def test_other_arguments_of_a_step_whose_name_occurs_once_are_a_warning():
    """The recorded result is used, and the run says so."""
    replay = replay_of(record("a", 0, digest="old"), record("b", 1))
    assert ask(replay, "a", digest="new") == [Found.RECORD]
    assert len(replay.warnings) == 1
    assert "step a was recorded with other arguments" in replay.warnings[0]


@pytest.mark.parametrize("other", ["a:1", "0/a", "3.1/a"])
def test_other_arguments_of_a_name_that_occurs_twice_are_refused(other):
    """With a second call of the name on any path nobody can tell which of the two the record is of."""
    replay = replay_of(record("a", 0, digest="old"), record(other, 1, digest="old"))
    with pytest.raises(HistoryMismatchError, match="a with other arguments .digest old.*a with digest new"):
        ask(replay, "a", digest="new")


def test_a_name_that_occurred_twice_stays_so_after_its_records_were_asked_for():
    """How often a name occurs is a fact of the generation, not of what is left of it."""
    replay = replay_of(record("a", 0, digest="x"), record("a:1", 1, digest="y"))
    ask(replay, "a", digest="x")
    with pytest.raises(HistoryMismatchError):
        ask(replay, "a:1", digest="z")


def test_equal_arguments_are_no_warning():
    """The same digest is the ordinary case."""
    replay = replay_of(record("a", 0, digest="x"), record("a:1", 1))
    assert ask(replay, "a", digest="x") + ask(replay, "a:1") == [Found.RECORD, Found.RECORD]
    assert replay.warnings == []


def test_arguments_of_a_given_up_call_do_not_matter():
    """It has no result that could be the wrong one."""
    replay = replay_of(record("a", 0, outcome=Outcome.GIVEN_UP, digest="x"), record("a:1", 1))
    assert ask(replay, "a", digest="y") == [Found.GIVEN_UP]
    assert replay.warnings == []


def test_end_with_something_unasked_is_refused():
    """A body that ends before everything recorded was asked for has changed."""
    replay = replay_of(record("a", 0), record("0/b", 1), record("c", 2))
    ask(replay, "a")
    with pytest.raises(HistoryMismatchError, match="0/b, which is recorded.*the end of the body"):
        replay.check_end()
    ask(replay, "0/b", "c")
    replay.check_end()


def test_end_with_an_unasked_given_up_call_is_refused():
    """A withdrawal is a record like any other."""
    with pytest.raises(HistoryMismatchError):
        replay_of(record("a", 0, outcome=Outcome.GIVEN_UP)).check_end()


# --- behind a retired record -------------------------------------------------------------------------------------------
def test_records_behind_a_retired_one_are_used_if_asked_for_and_never_missed():
    """Code that has seen another outcome made them: they bind neither an insertion nor the end."""
    replay = replay_of(record("a", 0), record("tidy", 3), record("report", 4), retired_seq=2)
    assert ask(replay, "a") == [Found.RECORD]
    assert ask(replay, "failed_before") == [Found.NOTHING_YET]
    assert ask(replay, "report") == [Found.RECORD]
    assert handed(replay) == ["a", "report"]
    replay.check_end()


def test_records_before_a_retired_one_bind_as_ever():
    """A retry is no licence to change what came before."""
    with pytest.raises(HistoryMismatchError):
        ask(replay_of(record("a", 0), retired_seq=2), "new")
    with pytest.raises(HistoryMismatchError):
        replay_of(record("a", 0), retired_seq=2).check_end()


# --- replaying or live ---------------------------------------------------------------------------------------------------
def test_is_replaying_until_the_last_record_was_handed_over():
    """What a body logs before that was logged by an earlier execution."""
    replay = replay_of(record("a", 0), record("b", 1))
    assert replay.is_replaying
    ask(replay, "a")
    handed(replay)
    assert replay.is_replaying
    ask(replay, "b")
    assert replay.is_replaying
    handed(replay)
    assert not replay.is_replaying


def test_live_records_that_wait_their_turn_are_no_replay():
    """With two results durable at once, what the first branch logs is logged: no later execution would do it."""
    replay = Replay(History())
    ask(replay, "0/a", "1/a")
    for branch in (0, 1):
        replay.land(record(f"{branch}/a", replay.join_flush()))
    replay.next_record()
    assert replay.has_ready
    assert not replay.is_replaying


def test_records_that_nobody_has_to_ask_for_are_no_replay():
    """After a retry the body is live once it has passed what binds it, whether or not it asks for the rest."""
    replay = replay_of(record("a", 0), record("leftover", 3), retired_seq=2)
    ask(replay, "a")
    handed(replay)
    assert not replay.is_replaying


# --- open calls ----------------------------------------------------------------------------------------------------------
def failed(text: str, attempt: int, *, is_retired: bool = False) -> FailedAttempt:
    return FailedAttempt(key(text), attempt, Failure("builtins.OSError", ""), NOW, NOW, None if is_retired else NOW, is_retired)


def test_open_call_counts_what_its_policy_counts():
    """Retired attempts keep their numbers and do not count against the policy."""
    replay = replay_of(failures=(failed("a", 1, is_retired=True), failed("a", 2, is_retired=True), failed("a", 3), failed("b", 1)))
    assert (replay.open_call(key("a")).attempts, replay.open_call(key("a")).last_attempt) == (1, 3)
    assert (replay.open_call(key("b")).attempts, replay.open_call(key("b")).last_attempt) == (1, 1)
    assert replay.open_call(key("c")) is NOT_STARTED
    assert (NOT_STARTED.attempts, NOT_STARTED.last_attempt) == (0, 0)


def test_open_call_has_the_wait_and_the_progress_of_its_key():
    """What a parked wait and the latest attempt left is found by key."""
    wait, progress = Wait(key("0/sleep"), SLEEP, NOW), LastProgress(key("a"), 3, 10, "disc 1")
    replay = replay_of(waits=(wait,), progress=(progress,))
    assert replay.open_call(key("0/sleep")).wait is wait
    assert replay.open_call(key("a")).progress is progress
    assert replay.open_call(key("sleep")) is NOT_STARTED


def test_recorded_call_is_not_open():
    """What is left of the attempts of a finished step concerns nobody."""
    assert replay_of(record("a", 0), failures=(failed("a", 1),)).open_call(key("a")) is NOT_STARTED


def test_two_executions_of_one_history_take_the_same_way():
    """What was handed over live is what a replay of the records hands over, in the same order."""
    live = Replay(History())
    ask(live, "0/a", "1/a", "2/a")
    numbers = {name: live.join_flush() for name in ("2/a", "0/a", "1/a")}
    records = [record(name, numbers[name]) for name in ("1/a", "0/a", "2/a")]
    order = []
    for one in records:
        live.land(one)
        order += handed(live)
    again = replay_of(*sorted(map(replace, records), key=lambda one: one.seq))
    ask(again, "0/a", "1/a", "2/a")
    assert handed(again) == order == ["2/a", "0/a", "1/a"]
