"""Liveness: how a worker shows that its process lives, and how another proves that it does not.

A proof is only half of a death: the watcher looks twice, and compares the worker's beat in between.
"""

from collections.abc import Sequence
from typing import Protocol

from outlast.database.transaction import Transaction
from outlast.native.store import WorkerRow


class Liveness(Protocol):
    """One process's proofs. Methods block and are called on the lease thread or the watcher's."""

    def hold(self, worker_id: int) -> None:
        """Take the lock that ends with this process. Raises `UnavailableError` when it cannot be had."""
        ...

    def is_held(self, worker_id: int) -> bool:
        """Tell whether the lock is still ours, so that a broken connection is noticed and the lock taken again."""
        ...

    def release(self, worker_id: int) -> None: ...

    def is_proof_possible(self, worker: WorkerRow) -> bool:
        """Tell whether a free lock would mean anything now.

        Not for a worker of this process; and not when the server was restarted during the worker's life and less than a
        lease ago, because that freed the locks of the living too.
        """
        ...

    def find_free(self, tx: Transaction, workers: Sequence[WorkerRow]) -> set[int]:
        """Return those whose lock is free: the process ended, or its connection was cut.

        In the transaction that listed them and after it, so that a look costs one query however many workers there are.
        """
        ...

    def close(self) -> None: ...
