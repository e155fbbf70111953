"""SqliteLiveness: a worker's proof of life is a POSIX record lock on a file of its own, beside the database.

The kernel releases it when the process ends, however it ends, and a child that was forked before does not keep it.
Closing any descriptor of a file drops all of the process's locks on it: no process ever looks at its own workers' files,
which are known by the process in their names, whichever of its engines they belong to.
"""

import fcntl
import logging
import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from outlast.database.transaction import Transaction
from outlast.errors import UnavailableError
from outlast.ids import process_nonce
from outlast.limits import PAGE
from outlast.native.store import WorkerRow

logger = logging.getLogger("outlast")

_STALE_AFTER_SECONDS = 60


class SqliteLiveness:
    """The locks that this process holds, and the look at those of others."""

    def __init__(self, database_file: Path) -> None:
        self._folder = database_file.with_name(f"{database_file.name}-workers")
        self._held: dict[int, int] = {}
        self._process = os.getpid()
        self._lock = threading.Lock()

    def hold(self, worker_id: int) -> None:
        with self._lock:
            self._drop(worker_id)
            file = self._file(worker_id)
            try:
                self._folder.mkdir(mode=0o700, exist_ok=True)
                descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except OSError as error:
                raise UnavailableError(f"{file} cannot be opened, so that this worker could not be proven dead: {error.strerror}") from error
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                os.close(descriptor)
                raise UnavailableError(f"{file} cannot be locked: {error.strerror}") from error
            self._process = os.getpid()
            self._held[worker_id] = descriptor
            self._remove_stale(os.fstat(descriptor).st_mtime)

    def is_held(self, worker_id: int) -> bool:
        with self._lock:
            descriptor = self._held.get(worker_id)
            if descriptor is None or self._process != os.getpid():
                return False
            try:
                named, own = os.stat(self._file(worker_id)), os.fstat(descriptor)
            except OSError:
                return False
            return (named.st_dev, named.st_ino) == (own.st_dev, own.st_ino)

    def release(self, worker_id: int) -> None:
        with self._lock:
            self._drop(worker_id)

    def is_proof_possible(self, worker: WorkerRow) -> bool:
        return worker.process != process_nonce()

    def find_free(self, tx: Transaction, workers: Sequence[WorkerRow]) -> set[int]:
        """Look at each one's file; one that cannot be opened says nothing, and only silence tells of that worker."""
        free = set()
        for worker in workers:
            try:
                if self.is_free(worker):
                    free.add(worker.id)
            except UnavailableError as error:
                logger.debug("worker %s could not be looked at: %s", worker.name, error)
        return free

    def is_free(self, worker: WorkerRow) -> bool:
        """A file that is gone is free: its worker removed it when it stopped, or does not hold what others can see."""
        if not self.is_proof_possible(worker):
            return False
        try:
            descriptor = os.open(self._file(worker.id, worker.process), os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return self._folder.is_dir()
        except OSError as error:
            raise UnavailableError(f"{self._file(worker.id, worker.process)} cannot be opened: {error.strerror}") from error
        try:
            return _try_lock(descriptor)
        finally:
            os.close(descriptor)

    def close(self) -> None:
        with self._lock:
            for worker_id in list(self._held):
                self._drop(worker_id)

    def _file(self, worker_id: int, process: str | None = None) -> Path:
        return self._folder / f"{worker_id:x}-{process or process_nonce()}"

    def _drop(self, worker_id: int) -> None:
        descriptor = self._held.pop(worker_id, None)
        if descriptor is None:
            return
        if self._process == os.getpid():
            with suppress(OSError):
                self._file(worker_id).unlink()
        os.close(descriptor)

    def _remove_stale(self, now: float) -> None:
        """Remove files of processes that ended without doing so, some at a time. A young one may be about to be locked."""
        own = f"-{process_nonce()}"
        with os.scandir(self._folder) as entries:
            others = [entry.path for entry in entries if not entry.name.endswith(own)]
        for path in others[:PAGE]:
            with suppress(OSError):
                if now - os.stat(path).st_mtime > _STALE_AFTER_SECONDS:
                    _remove_if_free(path)


def _remove_if_free(path: str) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        if _try_lock(descriptor):
            os.unlink(path)
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except PermissionError:
        return False
    return True
