"""Checkpoints: the group commit. What bodies want kept is gathered and written in one transaction a flush.

Theory of operation. One flush is under way at a time. While it is, new checkpoints gather; when it ends, all that
have gathered (up to a bound) are the next. So an idle engine commits each checkpoint at once, and a busy one hundreds
with one fsync. The loop and the flush take turns under load, and that is on purpose: letting them overlap, by telling
half of a group a few turns later, halved the rate on Python 3.11 (8,000 to 2,900 steps a second), because two threads that
both compute hand the interpreter over only every 5 ms. Each flush begins with the fence: a worker that was declared dead can commit nothing.

Authority: a checkpoint is kept when the database has said so, and only then is its body told. What each failure does:

- Refused (an older token, a canceled run): the statement leaves it out and says so; its run is told, the others go on.
- A duplicate, a value that cannot be stored, a stranger's lock: the whole group is undone. It is halved until the
  culprit stands alone. A duplicate alone is a refusal, a bad value an error for its run, a stranger's lock is waited
  for by that run alone, apart from the groups. What the same run adds meanwhile waits behind it: records of one run
  are never committed out of order.
- The connection breaks: the group is tried again until the database answers or the lease is lost.
- The connection breaks at the commit: what is there is read back by token; the rest is written again. A server may carry
  out that commit even later, so what it then refuses is read back once more before it counts as refused.
- The fence refuses: everything is lost, and whoever waits is told.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from datetime import datetime
from enum import Enum, auto
from typing import Any

import msgspec

from outlast.branch import detached
from outlast.database.transaction import Answer, Refusal, RefusedError, Transaction
from outlast.errors import CommitUnknownError, LeaseLostError, OutlastError, SchemaError, UnavailableError
from outlast.failure import Failure
from outlast.limits import CHECKPOINTS_WAITING_MAX, GROUP_BYTES_MAX, GROUP_RECORDS_MAX

from .calls import Backoff, Calls, is_passing
from .store import Checkpoint, RunCheckpoint, StepCheckpoint, Store

logger = logging.getLogger("outlast")


class Landing(Enum):
    """What became of a checkpoint."""

    KEPT = auto()
    REFUSED = auto()
    """The claim is not current, or the run was canceled: reading tells which."""
    BAD = auto()
    """The database cannot store it at all."""
    LOST = auto()
    """This worker is not alive any more."""


class Entry(msgspec.Struct, eq=False, gc=False):
    """A checkpoint and who waits for it."""

    checkpoint: Checkpoint
    on_end: Callable[[Landing, OutlastError | None], None]
    size: int
    has_ended: bool = False
    is_in_doubt: bool = False
    """An earlier commit of it ended unknown and may yet come about."""

    def end(self, landing: Landing, error: OutlastError | None = None) -> None:
        """Tell who waits, once."""
        if not self.has_ended:
            self.has_ended = True
            try:
                self.on_end(landing, error)
            except Exception:  # one run's trouble is not its neighbours'
                logger.exception("run %s could not take what became of its checkpoint", self.checkpoint.hold.run_id)


class Checkpoints:
    """The group commit of one worker incarnation."""

    def __init__(self, calls: Calls, store: Store, worker_id: int, on_lost: Callable[[str], None], now: Callable[[], datetime | None] = lambda: None) -> None:
        self._calls = calls
        self._store = store
        self.worker_id = worker_id
        self._on_lost = on_lost
        self._now = now
        self._waiting: deque[Entry] = deque()
        self._aside: dict[str, deque[Entry]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._flushing: asyncio.Task[None] | None = None
        self._is_lost = False
        self._room = asyncio.Event()
        self._room.set()

    def add(self, checkpoint: Checkpoint, on_end: Callable[[Landing, OutlastError | None], None]) -> None:
        """Have a checkpoint kept; `on_end` is called on the loop when it is, or is not."""
        entry = Entry(checkpoint, on_end, _size(checkpoint))
        if self._is_lost:
            asyncio.get_running_loop().call_soon(on_end, Landing.LOST, None)
            return
        self._waiting.append(entry)  # also behind an entry set aside: older ones of the same run may wait in here
        if len(self._waiting) >= CHECKPOINTS_WAITING_MAX:
            self._room.clear()
        if self._flushing is None:
            self._flushing = self._begin(self._flush())

    async def wait_for_room(self) -> None:
        """Wait while too much waits already."""
        await self._room.wait()

    @property
    def has_room(self) -> bool:
        return self._room.is_set()

    async def drain(self) -> None:
        """Wait until nothing waits to be written."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def abandon(self) -> None:
        """Give up everything: the lease is lost."""
        self._is_lost = True
        for task in self._tasks:
            task.cancel()
        waiting = [*self._waiting, *(entry for entries in self._aside.values() for entry in entries)]
        self._waiting.clear()
        self._aside.clear()
        self._end(waiting, Landing.LOST)

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = detached(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # --- flushing ------------------------------------------------------------------------------------------------------
    async def _flush(self) -> None:
        try:
            while self._waiting:
                group = self._take()
                try:
                    await self._write(group)
                finally:
                    self._end(self._not_aside(group), Landing.LOST)  # a lost lease cancels a flush; who waits must not wait for ever
        finally:
            self._flushing = None

    def _take(self) -> list[Entry]:
        group: list[Entry] = []
        size = 0
        while self._waiting and len(group) < GROUP_RECORDS_MAX:
            size += self._waiting[0].size
            if group and size > GROUP_BYTES_MAX:
                break
            group.append(self._waiting.popleft())
        if len(self._waiting) < CHECKPOINTS_WAITING_MAX:
            self._room.set()
        return group

    async def _write(self, group: list[Entry]) -> None:
        """Write a group, halving it where the database refuses it as a whole. Ends every entry, or sets it aside."""
        group = self._behind_others(group)
        if not group:
            return
        try:
            await self._write_whole(group)
        except LeaseLostError as error:
            self._lose(group, str(error))
        except Exception as error:
            if len(group) > 1:
                middle = len(group) // 2
                await self._write(group[:middle])
                await self._write(group[middle:])
            else:
                await self._blame(group[0], error)

    def _behind_others(self, group: list[Entry]) -> list[Entry]:
        """Leave out what has ended, and what has to wait behind an entry of its run that was set aside."""
        group = [entry for entry in group if not entry.has_ended]
        if not self._aside:
            return group
        free = []
        for entry in group:
            behind = self._aside.get(entry.checkpoint.hold.run_id)
            free.append(entry) if behind is None else behind.append(entry)
        return free

    def _not_aside(self, group: list[Entry]) -> list[Entry]:
        return [entry for entry in group if not entry.has_ended and entry not in self._aside.get(entry.checkpoint.hold.run_id, ())]

    async def _write_whole(self, group: list[Entry]) -> None:
        """Write the whole group, whatever it takes; end its entries. Raises `LeaseLostError`, and what the database refuses it with."""
        backoff = Backoff()
        while group:
            try:
                refused = await self._commit([entry.checkpoint for entry in group])
            except CommitUnknownError:
                group = await self._resolve(group)
            except (UnavailableError, SchemaError, RefusedError) as error:
                if isinstance(error, RefusedError) and (error.refusal is Refusal.BUSY or not is_passing(error)):
                    raise
                await asyncio.sleep(backoff.next())
            else:
                left_out = {id(checkpoint) for checkpoint in refused} if refused else ()
                self._end([entry for entry in group if id(entry.checkpoint) not in left_out], Landing.KEPT)
                if left_out:
                    await self._refuse([entry for entry in group if id(entry.checkpoint) in left_out])
                return

    async def _commit(self, checkpoints: list[Checkpoint]) -> list[Checkpoint]:
        def commit(tx: Transaction) -> Answer[list[Checkpoint]]:
            self._store.fence(tx, self.worker_id)
            return self._store.commit_checkpoints(tx, checkpoints, self._now())

        return await self._calls.overlap("commit_checkpoints", commit)

    async def _resolve(self, group: list[Entry]) -> list[Entry]:
        """After a commit of unknown outcome: end what is there, and return what is to be written again."""
        backoff = Backoff()
        while True:
            try:
                kept = await self._calls.read("find_kept", lambda tx: self._store.find_kept(tx, [entry.checkpoint for entry in group]))
            except OutlastError:
                await asyncio.sleep(backoff.next())
                continue
            there = {id(checkpoint) for checkpoint in kept}
            self._end([entry for entry in group if id(entry.checkpoint) in there], Landing.KEPT)
            rest = [entry for entry in group if id(entry.checkpoint) not in there]
            for entry in rest:
                entry.is_in_doubt = True
            return rest

    # --- what goes wrong -------------------------------------------------------------------------------------------------
    async def _refuse(self, entries: list[Entry], error: OutlastError | None = None) -> None:
        """The database refused these: unless they are there, because a commit in doubt came about after all."""
        in_doubt = [entry for entry in entries if entry.is_in_doubt]
        if in_doubt:
            await self._resolve(in_doubt)
        for entry in entries:
            entry.end(Landing.REFUSED, error)

    async def _blame(self, entry: Entry, error: Exception) -> None:
        """Deal with the entry that made a group fail."""
        if is_passing(error):
            self._aside[entry.checkpoint.hold.run_id] = deque([entry])
            self._begin(self._write_aside(entry.checkpoint.hold.run_id))
        else:
            await self._end_bad(entry, error)

    async def _end_bad(self, entry: Entry, error: Exception) -> None:
        """End an entry that the database will never take: a record that is there already, or a value that cannot be stored."""
        if isinstance(error, RefusedError) and error.refusal is Refusal.DUPLICATE:
            await self._refuse([entry], error)
            return
        logger.error("run %s: the database cannot store a checkpoint: %r", entry.checkpoint.hold.run_id, error)
        entry.end(Landing.BAD, error if isinstance(error, OutlastError) else OutlastError(f"a checkpoint cannot be stored: {error!r}"))

    async def _write_aside(self, run_id: str) -> None:
        """Write one run's checkpoints apart from the groups, one by one, waiting for a stranger as long as it takes."""
        entries, backoff = self._aside[run_id], Backoff()
        while entries:
            try:
                await self._write_whole(entries_head := [entries[0]])
            except LeaseLostError as error:
                self._lose(list(entries), str(error))
                break
            except Exception as error:
                if is_passing(error):
                    await asyncio.sleep(backoff.next())
                    continue
                await self._end_bad(entries_head[0], error)
                entries.popleft()
            else:
                entries.popleft()
                backoff.reset()
        self._aside.pop(run_id, None)

    def _lose(self, group: list[Entry], reason: str) -> None:
        self._end(group, Landing.LOST)
        if not self._is_lost:
            self._on_lost(reason)

    def _end(self, entries: list[Entry], landing: Landing) -> None:
        for entry in entries:
            entry.end(landing)


def _size(checkpoint: Checkpoint) -> int:
    """Return about how many bytes a checkpoint adds to its group."""
    if isinstance(checkpoint, StepCheckpoint):
        record = checkpoint.record
        return 300 + len(record.result or "") if record.error is None else 300 + _size_of(record.error)
    if isinstance(checkpoint, RunCheckpoint):
        return 300 + len(checkpoint.output or "") + _size_of(checkpoint.error)
    return 300 + _size_of(checkpoint.failure.error)


def _size_of(failure: Failure | None) -> int:
    if failure is None:
        return 0
    return 700 + len(failure.message) + len(failure.traceback) + _size_of(failure.cause) + sum(map(_size_of, failure.members))
