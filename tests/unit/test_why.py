"""Why a run does not move: what the suites of the stores do not reach, each sentence by itself."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from outlast.failure import Failure
from outlast.inspector import BoundedCount
from outlast.native.why import Circumstances, why
from outlast.run import RunStatus, StepView

from .test_cli_output import a_run

SOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
PENDING = a_run(status=RunStatus.PENDING, queue="mail", cancel_reason=None)
RUNNING = a_run(status=RunStatus.RUNNING, worker="host:7", cancel_reason=None)
WAITING = a_run(status=RunStatus.WAITING, due_at=SOON, started_at=SOON, cancel_reason=None, error=None)
COPY = StepView("copy", "step", "in_progress", 1, SOON, None)


@pytest.mark.parametrize(
    ("view", "current", "around", "sentence"),
    [
        (PENDING, None, Circumstances(), "waiting for a worker"),
        (PENDING, None, Circumstances(ahead=BoundedCount(1000, True)), "waiting for a worker, behind 1000+ others of its lane"),
        (PENDING, None, Circumstances(losses=2), "waiting for a worker that executes no other suspect: its worker was lost 2 times in a row"),
        (PENDING, None, Circumstances(is_queue_paused=True, unserved="no worker lives", losses=9), "queue mail is paused"),
        (PENDING, None, Circumstances(unserved="no worker has import", losses=9), "stranded: no worker has import"),
        (replace(PENDING, cancel_reason="wrong"), None, Circumstances(unserved="no worker lives"), "stranded: no worker lives; then it is canceled: wrong"),
        (RUNNING, COPY, Circumstances(), "step copy in progress on host:7"),
        (RUNNING, COPY, Circumstances(losses=3), "step copy in progress on host:7; a suspect, for its worker was lost 3 times in a row"),
        (RUNNING, COPY, Circumstances(is_holder_late=True), "step copy in progress on host:7, which is silent; another worker takes it over"),
        (replace(RUNNING, worker=None), None, Circumstances(is_holder_alive=False), "running on a worker, which is gone; another worker takes it over"),
        (replace(RUNNING, cancel_reason="wrong"), None, Circumstances(), "running on host:7; told to cancel: wrong"),
        (WAITING, None, Circumstances(), "waiting until 2026-01-01T12:00:00+00:00"),
        (WAITING, None, Circumstances(is_due=True), "waiting until 2026-01-01T12:00:00+00:00"),
        (WAITING, None, Circumstances(is_due=True, unserved="no worker lives"), "stranded: no worker lives"),
        (WAITING, None, Circumstances(unserved="no worker lives"), "waiting until 2026-01-01T12:00:00+00:00"),
        (WAITING, None, Circumstances(losses=4), "backing off until 2026-01-01T12:00:00+00:00: its worker was lost 4 times in a row"),
        (
            replace(WAITING, error=Failure("builtins.OSError", "broken")),
            None,
            Circumstances(),
            "to be run again at 2026-01-01T12:00:00+00:00 after OSError: broken",
        ),
        (replace(WAITING, due_at=None), None, Circumstances(), "waiting"),
    ],
)
def test_a_sentence_names_what_holds_a_run_up(view, current, around, sentence):
    """Each circumstance has its own words, and what matters most comes first."""
    assert why(view, current, around) == sentence
