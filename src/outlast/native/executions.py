"""Executions: the registry of what this process executes, and how each execution begins and ends.

It holds every claim by run until what the execution leaves behind is written, or refused for good. A run has at most one
execution in a process, and none while a stopped attempt of an older one still goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import msgspec

from outlast.errors import OutlastError
from outlast.failure import Failure
from outlast.limits import CANCEL_GRACE
from outlast.run import RunStatus
from outlast.stillness import Stillness
from outlast.transaction import OwnDatabase

from .activity import Activities
from .checkpoints import Checkpoints, Landing
from .driver import NativeDriver
from .effecting import Effects
from .ending import Ending, canceled, failed, overdue, released
from .history import EMPTY
from .performer import Performer
from .phase import Phase
from .runtime import Runtime
from .store import ClaimContext, ClaimedRun, Hold
from .telling import tell
from .transacting import Transactions
from .waiting import Waits

logger = logging.getLogger("outlast")

_UNSTORABLE = Failure("outlast.Unstorable", "the run failed, and its error cannot be stored; the worker's log has it")


class Executions:
    """All executions of one worker."""

    def __init__(
        self, runtime: Runtime, *, concurrency: int, services: Any, stillness: Stillness, on_free: Callable[[], None], deliver: Callable[[], Awaitable[None]]
    ) -> None:
        self._runtime = runtime
        self._services = services
        self._database = OwnDatabase(runtime.backend.database.begin)
        self._stillness = stillness
        self._on_free = on_free
        self.concurrency = concurrency
        self.activities = Activities()
        self._waits = Waits(runtime.backend, runtime.calls, runtime.at, deliver, runtime.spawn)
        self.performer = Performer(
            concurrency=concurrency,
            events=runtime.events,
            activities=self.activities,
            services=lambda: services,
            now=runtime.time.now,
            transactions=Transactions(runtime.calls, runtime.store, runtime.backend.keeping),
            waits=self._waits,
            effects=Effects(runtime.backend, runtime.calls, runtime.events, runtime.at, runtime.spawn, runtime.monotonic, runtime.settings.lease),
        )
        self.registry: dict[str, NativeDriver] = {}
        self._bodies: set[NativeDriver] = set()
        self.is_draining = False

    @property
    def free_slots(self) -> int:
        return self.concurrency - len(self._bodies)

    @property
    def bodies(self) -> list[NativeDriver]:
        """Executions whose bodies are not closed yet."""
        return list(self._bodies)

    @property
    def excluded(self) -> set[str]:
        """Runs that this process must not claim now, because something of an older execution still lives in it."""
        return self.registry.keys() | self.performer.lingering_runs

    @property
    def suspects(self) -> int:
        """How many suspects are being executed that have neither recorded nor reported anything."""
        return sum(driver.is_suspect for driver in self._bodies)

    def is_excluded(self, run_id: str) -> bool:
        """The same of one run."""
        return run_id in self.registry or self.performer.has_lingering(run_id)

    # --- beginning -------------------------------------------------------------------------------------------------------
    def begin(self, claim: ClaimedRun, context: ClaimContext | None, checkpoints: Checkpoints) -> None:
        """Begin one run; whatever is wrong with it ends this run and never its neighbours."""
        driver = NativeDriver(
            claim,
            self._runtime.settings.tasks[claim.kind, claim.version],
            history=context.history if context is not None else EMPTY,
            checkpoints=checkpoints,
            performer=self.performer,
            waits=self._waits,
            stillness=self._stillness,
            services=self._services,
            database=self._database,
            now=self._runtime.time.now,
            on_end=self._ended,
            is_loop_ending=self._runtime.is_loop_ending,
        )
        self.registry[claim.id] = driver
        self._bodies.add(driver)
        self._runtime.events.emit("run_started", run=claim.id, kind=claim.kind, token=claim.token)
        ending = ending_at_claim(claim, context)
        if ending is not None:
            driver.end_told(ending)
            return
        try:
            driver.start()
        except Exception as error:
            driver.end_told(failed(claim, error))
            return
        if self.is_draining:
            driver.drain()

    # --- ending ----------------------------------------------------------------------------------------------------------
    def _ended(self, driver: NativeDriver, ending: Ending) -> None:
        """A body is closed: its slot is free, and what it leaves behind is written."""
        self._bodies.discard(driver)
        self._on_free()
        if ending.checkpoint is None:
            self._forget(driver)
        else:
            self._write_end(driver, ending)

    def _write_end(self, driver: NativeDriver, ending: Ending) -> None:
        checkpoint = ending.checkpoint
        assert checkpoint is not None  # the callers see to it
        driver.checkpoints.add(checkpoint, lambda landing, error: self._end_landed(driver, ending, landing, error))

    def _end_landed(self, driver: NativeDriver, ending: Ending, landing: Landing, error: OutlastError | None) -> None:
        checkpoint = ending.checkpoint
        assert checkpoint is not None  # only such endings are written
        if landing is Landing.KEPT:
            name = "run_ended" if checkpoint.status.is_terminal else "run_parked"
            self._runtime.events.emit(name, run=driver.claim.id, kind=driver.claim.kind, status=checkpoint.status, due_at=checkpoint.due_at)
            self._forget(driver)
        elif landing is Landing.REFUSED:
            self._runtime.spawn(self._resolve_refusal(driver))
        elif landing is Landing.BAD and checkpoint.status is not RunStatus.FAILED:
            self._write_end(driver, failed(driver.claim, error or OutlastError("the database cannot store the result")))
        elif landing is Landing.BAD and checkpoint.error != _UNSTORABLE:
            bare = msgspec.structs.replace(checkpoint, error=_UNSTORABLE, warnings=(), failed_key=None, verdict=None)
            self._write_end(driver, Ending(bare, _UNSTORABLE.message))
        else:
            self._forget(driver)

    async def _resolve_refusal(self, driver: NativeDriver) -> None:
        """The end of a run was refused: a newer claim, a cancel, or a deadline; reading tells which."""
        claim, runtime = driver.claim, self._runtime
        contexts = await runtime.insist(
            f"why the end of run {claim.id} was refused",
            lambda: runtime.read("read_contexts", lambda tx: runtime.store.read_contexts(tx, [claim.hold], runtime.at())),
            lambda: driver.phase is Phase.OVER,
        )
        context = (contexts or {}).get(claim.hold)
        if context is None:
            self.performer.report_refused(claim, "the end of the run")
            self._forget(driver)
            return
        self._write_end(driver, ending_at_claim(claim, context) or released(claim))

    def _forget(self, driver: NativeDriver) -> None:
        driver.over()
        if self.registry.get(driver.claim.id) is driver:
            del self.registry[driver.claim.id]
        self._on_free()

    # --- all of them -------------------------------------------------------------------------------------------------------
    def lose_all(self, reason: str) -> None:
        """The lease is lost: tell every body, and write nothing."""
        for driver in list(self.registry.values()):
            driver.lose(reason)

    def drain(self) -> None:
        """Begin nothing more in any body; each leaves at its next standstill."""
        self.is_draining = True
        for driver in self.bodies:
            driver.drain()

    async def tell(self, driver: NativeDriver, reason: str, ending: Callable[[str], Ending | None], grace: timedelta = CANCEL_GRACE) -> None:
        """Tell a body to end, and see to its end."""
        await tell(driver, self.performer, self._runtime.events, self._runtime.settings.clock, reason=reason, ending=ending, grace=grace)

    def compare(self, held: list[ClaimedRun], known: set[str]) -> list[ClaimedRun]:
        """Tell bodies whose rows are not ours any more that they are lost; return the rows that no body has.

        `known` are the runs that were executed before the rows were read: what ended since then is in both.
        """
        holds: dict[str, Hold] = {claim.id: claim.hold for claim in held}
        for run_id in known & self.registry.keys():
            driver = self.registry[run_id]
            if driver.phase is Phase.RUNNING and holds.get(run_id) != driver.claim.hold:
                logger.warning("run %s is executed here and its row is not ours: its body is told", run_id)
                driver.lose("the run is not this worker's any more")
        return [claim for claim in held if claim.id not in known and not self.is_excluded(claim.id)]


def ending_at_claim(claim: ClaimedRun, context: ClaimContext | None) -> Ending | None:
    """Return how a run ends that was canceled, or is overdue, before its body began again."""
    if context is None:
        return None
    if claim.ending is RunStatus.CANCELED or context.cancel_reason is not None:
        return canceled(claim, context.cancel_reason or "", None)
    if claim.ending is RunStatus.FAILED or context.is_past_deadline:
        return overdue(claim, None)
    return None
