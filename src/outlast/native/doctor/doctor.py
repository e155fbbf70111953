"""The doctor: one examination after the other, each bounded in time, and a finding for whatever went wrong. It never raises."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager
from datetime import timedelta

from outlast.clock import SystemClock
from outlast.database.transaction import RefusedError
from outlast.errors import OutlastError, SchemaError, UnavailableError
from outlast.finding import Check, Finding, not_applicable, ok, problem
from outlast.limits import DOCTOR_CHECK_TIMEOUT, DOCTOR_TIMEOUT

from .examiner import Examination, Examiner, Needs, TaskVersions

_INTERRUPT_AGAIN_SECONDS = 0.5  # what is interrupted may try once more before it gives up
_WITHOUT = {
    Needs.DATABASE: "not looked at, because the database does not answer",
    Needs.SCHEMA: "not looked at, because the tables of outlast are not there",
}


async def examine(
    examiner: Examiner, tasks: TaskVersions = (), *, check_timeout: timedelta = DOCTOR_CHECK_TIMEOUT, timeout: timedelta = DOCTOR_TIMEOUT
) -> list[Finding]:
    """Return what all checks found, in their order. Nothing is changed, and the examiner is closed.

    It takes at most `timeout`: what has not been looked at by then is reported as a problem. A thread that is stuck beyond
    help is left behind; it does not keep the process from ending.
    """
    found: list[Finding] = []
    done: Future[None] = Future()

    def work() -> None:
        _examine_all(examiner, tasks, check_timeout.total_seconds(), found)
        try:
            done.set_result(None)
        except InvalidStateError:
            pass  # nobody waits any more

    threading.Thread(target=work, name="outlast-doctor", daemon=True).start()
    try:
        async with asyncio.timeout(timeout.total_seconds()):
            await asyncio.wrap_future(done)
    except TimeoutError:
        examiner.interrupt()
        late = problem(
            Check.DATABASE, f"not everything could be looked at within {timeout.total_seconds():g} s", "look at the load of the database, and ask again"
        )
        return [*found, late]
    return found


def _examine_all(examiner: Examiner, tasks: TaskVersions, seconds: float, found: list[Finding]) -> None:
    try:
        met, first = _reached(examiner, seconds)
        found.append(first)
        for examination in examiner.examinations(tasks):
            if examination.needs > met:
                found.append(not_applicable(examination.check, _WITHOUT[_missing(examination.needs, met)]))
                continue
            findings, is_reachable = _examined(examiner, examination, seconds)
            found.extend(findings)
            met = met if is_reachable else Needs.NOTHING
    except Exception as error:  # a fault of the doctor's own is told like any other
        found.append(problem(Check.DATABASE, f"the doctor itself failed: {type(error).__name__}: {error}", "report it, with this message"))
    finally:
        examiner.close()


def _missing(needs: Needs, met: Needs) -> Needs:
    return Needs.DATABASE if met < Needs.DATABASE else needs


def _reached(examiner: Examiner, seconds: float) -> tuple[Needs, Finding]:
    clock = SystemClock()
    began_at = clock.monotonic()
    try:
        with _bounded(examiner, seconds):
            has_schema = examiner.reach()
    except OutlastError as error:
        return Needs.NOTHING, problem(Check.DATABASE, f"{examiner.url} cannot be used: {error}", _remedy(error))
    took = f"{examiner.url} answered after {1000 * (clock.monotonic() - began_at):.0f} ms"
    return (Needs.SCHEMA if has_schema else Needs.DATABASE), ok(Check.DATABASE, took)


def _examined(examiner: Examiner, examination: Examination, seconds: float) -> tuple[list[Finding], bool]:
    """Return the findings, and whether the database can still be asked."""
    try:
        with _bounded(examiner, seconds):
            return examination.examine(), True
    except OutlastError as error:
        return [problem(examination.check, f"could not be looked at: {error}", _remedy(error))], not isinstance(error, UnavailableError)


def _remedy(error: OutlastError) -> str:
    if isinstance(error, SchemaError):
        return "run `outlast migrate`"
    if isinstance(error, UnavailableError):
        return "see that the address is right, and that the database is there and answers"
    if isinstance(error, RefusedError):
        return "give the role its privileges, or end what holds the lock: the message says which"
    return "do what the message says"


@contextmanager
def _bounded(examiner: Examiner, seconds: float) -> Iterator[None]:
    """Interrupt the examiner again and again once the block has taken `seconds`."""
    is_over = threading.Event()

    def watch() -> None:
        if is_over.wait(seconds):
            return
        examiner.interrupt()
        while not is_over.wait(_INTERRUPT_AGAIN_SECONDS):
            examiner.interrupt()

    watcher = threading.Thread(target=watch, name="outlast-doctor-watch", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        is_over.set()
        watcher.join()
