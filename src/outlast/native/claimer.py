"""Claimer: takes runs for a worker's free slots.

Theory of operation. One loop: as many runs as there are free slots, in one transaction after a fence. What was claimed for
the first time has no history and begins at once; for the others it is read in a later transaction, which cannot be older
than the claim. When there is nothing to claim the worker asks in the database to be woken, looks once more (what came
in between would else wake nobody), and sleeps until it is woken, a timer comes due, or a poll's time has come.

After a claim of unknown outcome the rows are read: what the database says is ours and no body has is handed back, and
claimed again under a greater token. It is not begun as it is, for among it may be what a body here has lost and left
records of, some still on their way.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from functools import partial
from typing import NamedTuple

from outlast.database.transaction import Answer, Transaction
from outlast.errors import CommitUnknownError, LeaseLostError, OutlastError
from outlast.limits import CLAIM_RUNS_MAX, IDLE_POLL, LANE_PROBE_FACTOR

from .calls import Backoff
from .delivery import Delivery
from .ending import Ending, failed, released
from .executions import Executions
from .incarnation import Incarnation
from .patience import wait_until_set
from .runtime import Runtime
from .selection import choose, oldest_share
from .store import Candidate, ClaimContext, ClaimedRun, Hold
from .waking import Waking

logger = logging.getLogger("outlast")


class _Wanted(NamedTuple):
    """What one claim asks for."""

    slots: int
    by_age: int
    excluded: set[str]
    suspects: int


class Claimer:
    """The claim loop of one worker."""

    def __init__(self, runtime: Runtime, executions: Executions, queues: dict[int, str], nudge: asyncio.Event) -> None:
        self._runtime = runtime
        self._executions = executions
        self._queues = queues
        self._lanes = tuple(queues)
        self._nudge = nudge
        self._claiming = asyncio.Lock()
        self._claimed_count = 0
        self._is_idle = False
        self._is_hint = False
        self._in_vain: Backoff | None = None
        self._is_stopping = False
        self.delivery = Delivery(runtime.calls, runtime.store, runtime.at)
        self._waking = Waking(runtime)
        self.incarnation: Incarnation | None = None

    def use(self, incarnation: Incarnation) -> None:
        """Claim under this identity from now on."""
        self.incarnation = incarnation
        self._is_idle = False
        self._nudge.set()

    def hint(self) -> None:
        """Anything may have changed. Of an idle worker that is worth one look: on SQLite every renewal of anybody's lease comes here."""
        if not self._nudge.is_set():
            self._is_hint = True
            self._nudge.set()

    def stop(self) -> None:
        self._is_stopping = True
        self._nudge.set()

    async def run(self) -> None:
        """Claim until stopped."""
        backoff = Backoff()
        while not self._is_stopping:
            try:
                await self._claim_or_wait()
                backoff.reset()
            except LeaseLostError as error:
                if self.incarnation is not None:
                    self.incarnation.lose(str(error))
                await asyncio.sleep(backoff.next())
            except OutlastError as error:
                logger.debug("nothing could be claimed for now: %s", error)
                await asyncio.sleep(backoff.next())
            except Exception:
                logger.exception("claiming failed")
                await asyncio.sleep(backoff.next())

    async def _claim_or_wait(self) -> None:
        incarnation, slots = self.incarnation, self._executions.free_slots
        was_nudged = self._nudge.is_set() and not self._is_hint
        self._is_hint = False
        self._nudge.clear()
        if incarnation is None or incarnation.is_over or not incarnation.checkpoints.has_room or slots <= 0:
            await self._sleep(IDLE_POLL)  # until a slot is free: what has come due is nothing to it before
        elif not (self._is_idle and not was_nudged) and await self._claim(incarnation, min(slots, CLAIM_RUNS_MAX)):
            await self.delivery.wake_when_due(self._runtime.time.now())
        elif not self._nudge.is_set():
            await self._rest(incarnation)

    async def _rest(self, incarnation: Incarnation) -> None:
        """There was nothing to claim: ask to be woken, look once more, and sleep. A worker that has slept only looks."""
        runtime = self._runtime
        if not self._is_idle:
            await runtime.calls.write("set_idle", lambda tx: runtime.store.set_idle(tx, incarnation.id, True))
            self._is_idle = True
        look = await self.delivery.look(self._lanes)
        runtime.time.correct(look.now)
        if look.has_undelivered:
            self.was_delivered(await self.delivery.deliver())
        if look.has_due and await self.delivery.wake():
            self._in_vain = None
        if look.has_due or (look.has_pending and not self._executions.suspects):
            await self._look_again()
        else:
            self._in_vain = None
            runtime.backend.wakes.set_eager(False)
            await self._sleep(self.delivery.due_in(look.now))
            if look.has_pending:  # a suspect may have been in the way, and others behind it: claim without being woken
                self._claim_next()

    async def _look_again(self) -> None:
        """There is something that was not to be had: at once the first time, then more and more slowly.

        Somebody's lock, or an older body here, may keep it for long; without the delay that would be a loop of queries.
        """
        if self._in_vain is None:
            self._in_vain = Backoff()
        else:
            await self._sleep(min(timedelta(seconds=self._in_vain.next()), IDLE_POLL))
        self._claim_next()

    def was_delivered(self, lanes: set[int]) -> None:
        """Runs of these lanes were woken from here: claim what this worker may, and wake who may claim the others."""
        if lanes & self._queues.keys():
            self._claim_next()
        if lanes:
            self._waking.wake(lanes)

    def _claim_next(self) -> None:
        """Claim in the next turn, whatever hints came meanwhile: taken for one of those it would only look again, and so for ever."""
        self._is_hint = False
        self._nudge.set()

    async def _sleep(self, limit: timedelta) -> None:
        if self._is_stopping:
            return
        await wait_until_set(self._nudge, limit.total_seconds())

    # --- one claim ---------------------------------------------------------------------------------------------------------
    async def _claim(self, incarnation: Incarnation, slots: int) -> bool:
        async with self._claiming:
            claims = await self._take(incarnation, slots)
            if not claims:
                return False
            self._runtime.time.correct(claims[0].claimed_at)
            self._runtime.backend.wakes.set_eager(True)
            self._is_idle = False
            self._in_vain = None
            self._claimed_count += len(claims)
            if self._runtime.events.is_heard("runs_claimed"):
                self._runtime.events.emit("runs_claimed", runs=[claim.id for claim in claims])
            await self._begin(claims, incarnation)
            return True

    async def _take(self, incarnation: Incarnation, slots: int) -> list[ClaimedRun]:
        runtime, executions = self._runtime, self._executions
        wanted = _Wanted(slots, oldest_share(self._claimed_count, slots), executions.excluded, 0 if executions.suspects else 1)
        try:
            chosen = await self._choose_all(wanted) if self._is_idle else None
            if chosen is None:
                chosen = await self._choose(wanted)
            if not chosen:
                return []
            was_idle, self._is_idle = self._is_idle, False  # whatever comes of it: a claim that gets nothing has said it in the database too
            return await runtime.calls.overlap("claim_runs", partial(self._claim_in, incarnation.id, wanted.slots, chosen, was_idle))
        except CommitUnknownError:
            await runtime.insist("what was claimed", lambda: self._hand_back_strays(incarnation), lambda: incarnation.is_over)
            return []

    async def _list_held(self, incarnation: Incarnation) -> list[ClaimedRun]:
        return await self._runtime.read("list_held", lambda tx: self._runtime.store.list_held(tx, incarnation.id))

    async def _choose_all(self, wanted: _Wanted) -> list[str] | None:
        """The same for one that was idle, when all that can be claimed fits its slots: then nobody needs to know which is the oldest.

        None when it does not fit. To plan and make the search for the oldest takes longer than the rest of a wake-up's look.
        """
        chosen = await self._choose(wanted._replace(by_age=0))
        return chosen if len(chosen) <= wanted.slots else None

    async def _choose(self, wanted: _Wanted) -> list[str]:
        """Look, without a lock, for what may be claimed. In a transaction of its own: the claim tests everything again."""
        store, now = self._runtime.store, self._runtime.at()
        with_suspects = wanted.suspects > 0

        def probe(tx: Transaction) -> Answer[tuple[list[Candidate], list[Candidate]]]:
            seen = store.probe_lanes(tx, self._lanes, wanted.slots * LANE_PROBE_FACTOR, with_suspects=with_suspects, now=now)
            oldest = store.probe_oldest(tx, self._lanes, wanted.by_age, with_suspects=with_suspects, now=now)
            return lambda: (seen(), oldest())

        seen, oldest = await self._runtime.calls.overlap("probe_lanes", probe, is_reading=True)
        chosen = choose(seen, oldest, self._queues, slots=wanted.slots, by_age=wanted.by_age, excluded=wanted.excluded, suspects=wanted.suspects)
        return chosen[: wanted.slots * LANE_PROBE_FACTOR]  # with 200 full lanes the others would be 40,000

    def _claim_in(self, worker_id: int, slots: int, chosen: list[str], was_idle: bool, tx: Transaction) -> Answer[list[ClaimedRun]]:
        store = self._runtime.store
        store.fence(tx, worker_id)
        if was_idle:
            store.set_idle(tx, worker_id, False)
        return store.claim_runs(tx, worker_id, chosen, slots, self._runtime.at())

    async def _begin(self, claims: list[ClaimedRun], incarnation: Incarnation) -> None:
        again = [claim for claim in claims if claim.token != 1]
        for claim in claims:
            if claim.token == 1:
                self._begin_one(claim, None, incarnation)
        if not again:
            return
        try:
            contexts = await self._read_contexts([claim.hold for claim in again], incarnation)
        except Exception:  # one row is damaged: read one by one, so that it is found and its neighbours go on
            logger.exception("histories of claimed runs cannot be read together")
            for claim in again:
                await self._begin_apart(claim, incarnation)
            return
        for claim in again:
            if claim.hold in contexts:
                self._begin_one(claim, contexts[claim.hold], incarnation)

    async def _begin_apart(self, claim: ClaimedRun, incarnation: Incarnation) -> None:
        try:
            contexts = await self._read_contexts([claim.hold], incarnation)
        except Exception as error:
            logger.exception("run %s: its history cannot be read", claim.id)
            self._leave(failed(claim, error), incarnation)
            return
        if claim.hold in contexts:
            self._begin_one(claim, contexts[claim.hold], incarnation)

    async def _read_contexts(self, holds: list[Hold], incarnation: Incarnation) -> dict[Hold, ClaimContext]:
        runtime = self._runtime
        contexts = await runtime.insist(
            "the histories of claimed runs",
            lambda: runtime.read("read_contexts", lambda tx: runtime.store.read_contexts(tx, holds, runtime.at())),
            lambda: incarnation.is_over,
        )
        return contexts or {}

    def _begin_one(self, claim: ClaimedRun, context: ClaimContext | None, incarnation: Incarnation) -> None:
        if incarnation.is_over:  # it was ended since it claimed: others may have the run by now
            return
        if self._executions.is_excluded(claim.id):  # an older body of it was stopped since the claim began, and has not ended
            self._leave(released(claim), incarnation)
            return
        try:
            self._executions.begin(claim, context, incarnation.checkpoints)
        except Exception as error:  # what is wrong with one run must not keep those behind it from beginning
            logger.exception("run %s cannot be begun", claim.id)
            self._leave(failed(claim, error), incarnation)

    def _leave(self, ending: Ending, incarnation: Incarnation) -> None:
        checkpoint = ending.checkpoint
        if checkpoint is not None:
            incarnation.checkpoints.add(checkpoint, lambda landing, error: self._nudge.set())  # it can be claimed now, also here

    # --- strays --------------------------------------------------------------------------------------------------------------
    async def compare_holds(self) -> None:
        """Compare the database's rows with the registry: let strays go, and tell bodies that have lost their rows."""
        incarnation = self.incarnation
        if incarnation is None or incarnation.is_over:
            return
        async with self._claiming:  # a claim that is under way is in one of the two and not yet in the other
            await self._hand_back_strays(incarnation)

    async def _hand_back_strays(self, incarnation: Incarnation) -> None:
        known = set(self._executions.registry)
        held = await self._list_held(incarnation)
        for claim in self._executions.compare(held, known):
            logger.warning("run %s is ours in the database and no body has it: it is let go", claim.id)
            self._leave(released(claim), incarnation)
