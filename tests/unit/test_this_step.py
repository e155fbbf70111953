"""`this_step()`: what a running step knows of itself."""

import asyncio
import contextvars
import logging
import threading

import pytest

from outlast.errors import CancelRequested, UsageError
from outlast.run import Progress
from outlast.scope import STEP
from outlast.this_step import StepAttempt, this_step


class Services:
    """What an application has."""


def attempt_of(reports=None, services=None):
    return StepAttempt(
        run_id="id",
        key="0/copy:1",
        attempt=2,
        fencing_token=7,
        services=lambda: services,
        log=lambda: logging.getLogger("test"),
        last_progress=Progress(3, 10, "disc 1"),
        on_progress=lambda attempt, progress: reports.append((attempt, progress)),
    )


def inside(attempt, function):
    """Run a function as a step's attempt."""

    def run():
        STEP.set(lambda: attempt)
        return function()

    return contextvars.copy_context().run(run)


def test_outside_of_a_step_it_is_refused_with_what_to_do():
    """A plain call of a step's function has no attempt; the message says what to use instead."""
    with pytest.raises(UsageError, match="this_step.. works inside a step that a task runs; in a body use ctx"):
        this_step()


def test_inside_it_is_the_attempt_with_its_facts():
    """Attempt, token and what the previous attempt reported are there, typed or not."""
    attempt = attempt_of()
    assert inside(attempt, this_step) is attempt
    assert inside(attempt, lambda: this_step(Services)) is attempt
    assert (attempt.run_id, attempt.key, attempt.attempt, attempt.fencing_token) == ("id", "0/copy:1", 2, 7)
    assert attempt.last_progress == Progress(3, 10, "disc 1")


def test_services_are_asked_for_when_they_are_used():
    """The factory's product is reached through the attempt, not copied into it."""
    services = Services()
    assert attempt_of(services=services).services is services


def test_progress_reaches_the_listener_from_any_thread():
    """A step may report from a thread of its own."""
    reports = []
    attempt = attempt_of(reports)
    attempt.progress(1)
    thread = threading.Thread(target=lambda: attempt.progress(2, 10, note="half"))
    thread.start()
    thread.join()
    assert reports == [(attempt, Progress(1, None, "")), (attempt, Progress(2, 10, "half"))]


@pytest.mark.parametrize(("done", "total"), [("half", None), (None, None), (float("nan"), None), (1, float("inf")), (10**400, None), (1, "ten"), (1j, None)])
def test_progress_that_is_no_finite_number_is_refused(done, total):
    """It is named in the step that reports it; stored beside others' reports it would void them all."""
    reports = []
    with pytest.raises(UsageError, match="write a finite number"):
        attempt_of(reports).progress(done, total)
    assert reports == []


def test_a_note_is_kept_as_every_database_takes_it():
    """NUL and lone surrogates are escaped, what is no text is told as text, and a whole document is cut."""
    reports = []
    for note in ("a\0b\udc80", 7, "x" * 5_000):
        attempt_of(reports).progress(1, note=note)
    notes = [progress.note for _, progress in reports]
    assert notes[:2] == ["a\\0b\\udc80", "7"]
    assert len(notes[2]) < 1_100


def test_a_told_attempt_says_so_to_every_thread():
    """A step in a thread ends early by asking."""
    attempt, told, seen = attempt_of(), threading.Event(), []
    attempt.raise_if_canceled()
    assert not attempt.canceled

    def work():
        told.wait(20)
        try:
            attempt.raise_if_canceled()
        except CancelRequested as request:
            seen.append((attempt.canceled, request.reason))

    thread = threading.Thread(target=work)
    thread.start()
    attempt.tell("deploy")
    told.set()
    thread.join()
    assert seen == [(True, "deploy")]


def test_attempts_do_not_see_each_other():
    """Two steps at once in one loop each have their own."""

    async def one(attempt):
        STEP.set(lambda: attempt)
        await asyncio.sleep(0)
        return this_step()

    async def both():
        attempts = [attempt_of(), attempt_of()]
        assert await asyncio.gather(*(asyncio.create_task(one(attempt)) for attempt in attempts)) == attempts

    asyncio.run(both())
