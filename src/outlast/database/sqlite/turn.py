"""Turn: one thread at a time, with a bound on the wait, and an error instead of a deadlock when a thread waits for itself."""

import threading
from datetime import timedelta
from types import TracebackType

from outlast.database.transaction import Refusal, RefusedError
from outlast.errors import UsageError


class Turn:
    """A lock that knows its holder. A `with` block has it."""

    def __init__(self, name: str, timeout: timedelta) -> None:
        self._name = name
        self._timeout = timeout.total_seconds()
        self._lock = threading.Lock()
        self._holder: int | None = None

    @property
    def is_mine(self) -> bool:
        return self._holder == threading.get_ident()

    def __enter__(self) -> None:
        if self.is_mine:
            raise UsageError(f"a {self._name} transaction is open in this thread already: end it first")
        if not self._lock.acquire(timeout=self._timeout):
            raise RefusedError(Refusal.BUSY, f"another thread of this process has kept a {self._name} transaction open for {self._timeout:g} s")
        self._holder = threading.get_ident()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._holder = None
        self._lock.release()
