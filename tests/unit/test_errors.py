"""The exceptions: one tree, messages that name the remedy, facts as attributes, and copies that are whole."""

import asyncio
import copy
import inspect
import pickle
from datetime import timedelta

import pytest

from outlast import errors
from outlast.errors import (
    CancelRequested,
    HistoryMismatchError,
    IdempotencyConflictError,
    LeaseLostError,
    OutlastError,
    PayloadError,
    ResultPrunedError,
    RetryLater,
    RunCanceledError,
    RunDeadError,
    RunError,
    RunFailedError,
    StepFailedError,
    StepStuckError,
    UsageError,
)
from outlast.failure import Failure

FAILURE = Failure("builtins.FileNotFoundError", "gone", bases=("builtins.OSError", "builtins.Exception"))
RUN = "0190a6e0-0000-7000-8000-000000000000"

EXAMPLES = [
    (HistoryMismatchError("a", "b"), "the history has a, but the code asked for b", {"expected": "a", "got": "b"}),
    (IdempotencyConflictError("kind", "key", RUN), f"key 'key' of kind belongs to run {RUN}", {"kind": "kind", "key": "key", "run_id": RUN}),
    (PayloadError("wrong", field="input.items[3]"), "wrong", {"field": "input.items[3]"}),
    (RunFailedError(RUN, FAILURE), f"run {RUN} failed: FileNotFoundError: gone", {"run_id": RUN, "error": FAILURE}),
    (RunDeadError(RUN, FAILURE), f"run {RUN} is dead: FileNotFoundError: gone", {"run_id": RUN, "error": FAILURE}),
    (RunCanceledError(RUN, "no"), f"run {RUN} was canceled: no", {"run_id": RUN, "reason": "no"}),
    (ResultPrunedError("pruned", run_id=RUN), "pruned", {"run_id": RUN}),
    (StepFailedError("0/copy:1", 3, FAILURE), "step 0/copy:1 failed after 3 attempts: ", {"step": "0/copy:1", "attempts": 3, "error": FAILURE}),
    (StepStuckError("copy", 1, FAILURE), "step copy failed after 1 attempt: ", {"attempts": 1}),
    (RetryLater("30s"), "try again in 30s", {"delay": timedelta(seconds=30)}),
    (RetryLater(5, "busy"), "busy", {"delay": timedelta(seconds=5)}),
    (CancelRequested("deploy"), "deploy", {"reason": "deploy"}),
]


@pytest.mark.parametrize(("error", "message", "facts"), EXAMPLES, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("copied", [lambda e: e, copy.copy, copy.deepcopy, lambda e: pickle.loads(pickle.dumps(e))], ids=["made", "copy", "deepcopy", "pickle"])
def test_message_and_facts_survive_every_copy(error, message, facts, copied):
    """An error that crosses a process or is copied by a framework is the same error."""
    same = copied(error)
    assert type(same) is type(error)
    assert str(same).startswith(message)
    assert {name: getattr(same, name) for name in facts} == facts


def test_every_error_is_in_the_tree_and_in_the_drawing():
    """One base for what the library raises; the drawing at the top of the file names each of them."""
    classes = [cls for _, cls in inspect.getmembers(errors, inspect.isclass) if cls.__module__ == errors.__name__]
    drawn = errors.__doc__ or ""
    for cls in classes:
        assert cls is CancelRequested or issubclass(cls, OutlastError)
        assert cls.__name__ in drawn
        assert cls.__doc__


def test_docstring_is_the_default_message():
    """An error raised without words says what its class says, remedy included."""
    assert str(LeaseLostError()) == LeaseLostError.__doc__
    assert "task_ref" in str(errors.UnknownTaskError())


def test_branches_are_reactions():
    """What is to be mended in the code is a `UsageError`; what concerns a run is a `RunError`."""
    assert issubclass(HistoryMismatchError, UsageError)
    assert issubclass(StepFailedError, RunError)
    assert not issubclass(LeaseLostError, UsageError | RunError)


def test_cancel_passes_code_that_catches_exceptions():
    """It is control flow: `except Exception` does not see it, asyncio does."""
    assert issubclass(CancelRequested, asyncio.CancelledError)
    assert not issubclass(CancelRequested, Exception)


def test_step_failure_compares_with_classes():
    """A body asks what was raised without having the class that was."""
    error = StepFailedError("copy", 3, FAILURE)
    assert error.is_a(FileNotFoundError)
    assert error.is_a(OSError)
    assert not error.is_a(ValueError)


def test_retry_later_refuses_a_delay_that_is_none():
    """A wrong delay is named where it is written."""
    with pytest.raises(ValueError, match="delay is 'soon'"):
        RetryLater("soon")
