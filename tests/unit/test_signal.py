"""What signals and questions may be: bad input names the field and the remedy."""

from typing import Any

import pytest

from outlast import ids
from outlast.errors import UsageError
from outlast.limits import SIGNAL_BYTES_MAX, TIMER_IN_MEMORY_MAX, TOPIC_CHARACTERS_MAX, UNTIL_EVERY_MIN
from outlast.signal import checked_question, encoded_payload, topic_of_run


@pytest.mark.parametrize(
    "options", [None, 5, (word for word in "ab"), [["a"]], "ab", [], ["a", "a"]], ids=["none", "number", "generator", "nested", "text", "empty", "twice"]
)
def test_bad_options_are_named(options: Any):
    """Whatever stands where the options belong, the error names them."""
    with pytest.raises(UsageError, match="options"):
        checked_question("go?", options)


def test_a_payload_is_measured_in_bytes():
    """Characters of three bytes count as three."""
    assert len(encoded_payload("a" * (SIGNAL_BYTES_MAX - 2))) == SIGNAL_BYTES_MAX
    with pytest.raises(UsageError, match="the payload has"):
        encoded_payload("\u20ac" * (SIGNAL_BYTES_MAX // 3 + 1))


def test_a_topic_of_a_run_leaves_room_for_its_id():
    """The longest name fits with the id before it; one more is refused with the number that fits."""
    run_id = ids.run_id()
    longest = TOPIC_CHARACTERS_MAX - len(run_id) - 1
    assert len(topic_of_run(run_id, "n" * longest)) == TOPIC_CHARACTERS_MAX
    with pytest.raises(UsageError, match=f"write at most {longest}, for the run's id"):
        topic_of_run(run_id, "n" * (longest + 1))


def test_a_condition_is_not_asked_more_often_than_a_run_can_park():
    """A pause that never parks would keep its slot for as long as the condition is not so."""
    assert UNTIL_EVERY_MIN > TIMER_IN_MEMORY_MAX
