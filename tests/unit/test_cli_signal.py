"""The command that sends signals: what it asks the engine for and what it prints. The engine is a stand-in that notes what it is asked."""

import json
import sys
from types import SimpleNamespace

import pytest

from outlast.errors import RunNotFoundError, SignalConflictError
from outlast.run import StepView
from outlast.signal import SignalReceipt

from .test_cli_commands import NOW, Ports, outlast

RUN = "01a23217-6b69-7ecf-bc96-74d90c5f44bd"


class SendingPorts(Ports):
    """The same stand-in with signals."""

    def __init__(self):
        super().__init__()
        self.receipt = SignalReceipt("s1", 3)

    async def signal(self, topic, payload=None, **options):
        self.note("signal", topic, payload, **options)
        return self.receipt


@pytest.fixture
def ports(monkeypatch):
    """The application that `--app app_of_test:engine` names."""
    ports = SendingPorts()
    monkeypatch.setitem(sys.modules, "app_of_test", SimpleNamespace(engine=ports))
    return ports


def test_a_signal_is_sent_as_it_was_written(ports):
    """Topic, payload, key and time to live reach the engine; without them a bare signal with the engine's own time to live is sent."""
    done = outlast("signal", "paid", "--payload", '{"order": 7}', "--key", "k", "--ttl", "1h")
    assert ports.calls[0] == ("signal", "paid", {"order": 7}, {"idempotency_key": "k", "ttl": 3600.0})
    assert done.output == "s1  (3 runs waited for it)\n"
    outlast("signal", "paid")
    assert ports.calls[2] == ("signal", "paid", None, {"idempotency_key": None})


def test_a_payload_may_come_from_standard_input(ports):
    """So that a long one needs no quotes."""
    outlast("signal", "paid", "--payload", "-", input='["a", null]')
    assert ports.calls[0][:3] == ("signal", "paid", ["a", None])


@pytest.mark.parametrize(
    ("receipt", "told"),
    [
        (SignalReceipt("s1", 0), "s1  (no run waits for it just now; it is kept for those that will)"),
        (SignalReceipt("s1", 1), "s1  (1 run waited for it)"),
        (SignalReceipt("s1", 1_000), "s1  (at least 1,000 runs waited for it)"),
        (SignalReceipt("s1", 1, created=False), "s1  (the key was there: this is its signal)"),
    ],
)
def test_what_became_of_it_is_told(ports, receipt, told):
    """Who waited, as far as it was counted, or that it was there before; a program gets the same as fields."""
    ports.receipt = receipt
    assert outlast("signal", "paid").output == f"{told}\n"
    assert json.loads(outlast("signal", "paid", "--json").output) == {"id": receipt.id, "waiting": receipt.waiting, "created": receipt.created}


def test_a_signal_for_one_run_goes_to_its_own_topic(ports):
    """The run is looked up first, because nobody would ever see a signal for a run that is not there."""
    outlast("signal", "go", "--run", RUN)
    assert [call[:2] for call in ports.calls[:2]] == [("get", RUN), ("signal", f"{ports.run.id}/go")]
    ports.error = RunNotFoundError("there is no run", run_id=RUN)
    done = outlast("signal", "go", "--run", RUN)
    assert (done.exit_code, done.output) == (1, "Error: there is no run\n")


def test_wrong_use_says_what_to_write(ports):
    """A payload that is no JSON, a time that is none, and a key that is taken: nothing was sent, and the exit code is 2."""
    for arguments, told in ((("--payload", "seven"), "--payload is no JSON"), (("--ttl", "soon"), "--ttl is 'soon'")):
        done = outlast("signal", "paid", *arguments)
        assert (done.exit_code, told in done.output) == (2, True), done.output
    assert not [call for call in ports.calls if call[0] == "signal"]
    ports.error = SignalConflictError("paid", "k", "s0")
    done = outlast("signal", "paid", "--key", "k")
    assert (done.exit_code, "belongs to signal s0" in done.output) == (2, True)


def test_a_wait_is_shown_with_its_topic(ports):
    """In a run's history, with the instant at which it ends without a signal."""
    ports.history = (
        StepView("wait_for", "wait", "waiting", 0, None, None, topic="paid"),
        StepView("wait_for#1", "wait", "waiting", 0, None, None, topic="refused", due_at=NOW),
    )
    shown = outlast("show", "r1").output
    assert "waits for topic paid\n" in shown
    assert "waits for topic refused, until 2026-01-01 00:00:00Z" in shown
