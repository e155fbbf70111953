"""TaskRef: a task by name, with the types of what travels."""

from dataclasses import dataclass

import pytest

from outlast.errors import PayloadError, UsageError
from outlast.task_ref import task_ref


@dataclass
class Order:
    number: int


def test_reference_has_name_version_and_types():
    """What is enqueued by reference is checked as if the body were here."""
    reference = task_ref("import_asset", 2, Order, list[int])
    assert (reference.name, reference.version) == ("import_asset", 2)
    assert repr(reference) == "<task import_asset v2>"
    assert reference.input.encode(Order(1), "input") == '{"number":1}'
    assert reference.output.decode("[1,2]", "result") == [1, 2]
    with pytest.raises(PayloadError, match="input"):
        reference.input.encode("a", "input")


def test_without_types_there_is_no_input_and_no_output():
    """None means none, and another value is refused."""
    reference = task_ref("tick")
    assert (reference.version, reference.input.encode(None, "input")) == (1, "null")
    with pytest.raises(PayloadError):
        reference.input.encode(3, "input")


@pytest.mark.parametrize("name", ["", " a", "a\n", "x" * 201, 3, None])
def test_wrong_name_is_refused(name):
    """As for a task."""
    with pytest.raises(UsageError, match="task name"):
        task_ref(name)


@pytest.mark.parametrize("version", [0, 2**31, "2", True])
def test_wrong_version_is_refused(version):
    """As for a task."""
    with pytest.raises(UsageError, match="version of a is"):
        task_ref("a", version)
