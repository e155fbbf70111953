"""Runs as callers see them: the handle asks its engine and keeps nothing."""

import asyncio
from datetime import timedelta

import pytest

from outlast.run import CancelOutcome, Run, RunStatus


class Source:
    """An engine that writes down what it was asked."""

    def __init__(self) -> None:
        self.asked = []

    async def get(self, run_id):
        self.asked.append(("get", run_id))
        return "the view"

    async def cancel(self, run_id, *, reason):
        self.asked.append(("cancel", run_id, reason))
        return CancelOutcome.REQUESTED

    async def wait_for_end(self, run_id, timeout):
        self.asked.append(("wait", run_id, timeout))
        return "the end"


def handle(source):
    return Run(source, "id", lambda view: f"decoded {view}", created=True)


@pytest.mark.parametrize(("timeout", "seconds"), [(None, None), (60, 60.0), ("1m30s", 90.0), (timedelta(minutes=2), 120.0), (0, 0.0)])
def test_result_waits_for_the_end_and_decodes_it(timeout, seconds):
    """The time-out reaches the engine in seconds, and None stays None: to wait for ever is the default."""
    source = Source()
    assert asyncio.run(handle(source).result(timeout=timeout)) == "decoded the end"
    assert source.asked == [("wait", "id", seconds)]


def test_wrong_timeout_is_refused_by_name():
    """Nothing is asked of the engine with a duration that is none."""
    source = Source()
    with pytest.raises(ValueError, match="timeout is 'soon'"):
        asyncio.run(handle(source).result(timeout="soon"))
    assert source.asked == []


def test_view_and_cancel_go_to_the_engine():
    """The handle answers nothing from memory."""
    source = Source()
    run = handle(source)
    assert asyncio.run(run.view()) == "the view"
    assert asyncio.run(run.cancel(reason="no")) is CancelOutcome.REQUESTED
    assert source.asked == [("get", "id"), ("cancel", "id", "no")]
    assert repr(run) == "Run('id')"


def test_terminal_states():
    """Four states are an end."""
    assert {status for status in RunStatus if status.is_terminal} == {"succeeded", "failed", "canceled", "dead"}
