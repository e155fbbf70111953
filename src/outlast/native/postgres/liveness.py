"""PostgresLiveness: a worker shows that its process lives by an advisory lock of a session, which ends with the process.

    held                   the session lives, hence its process, or the server has not yet noticed that it is gone
    free                   the process ended, or its connection was cut, or the server was restarted

The server's word on who holds the lock is authoritative; that a free lock means death is for the watcher to conclude, who
looks twice and compares the worker's beat. Through a pooler a session is nobody's own: then there are no proofs at all,
and silence has to do. One thread calls these methods.
"""

import contextlib
import select
from collections.abc import Sequence

import psycopg

from outlast.database.postgres import PostgresDatabase
from outlast.database.transaction import Transaction
from outlast.errors import UnavailableError
from outlast.ids import process_nonce
from outlast.native.store import WorkerRow

from .parameters import SQL, array


class PostgresLiveness:
    """See `outlast.native.liveness.Liveness`."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._connection: psycopg.Connection[tuple[object, ...]] | None = None
        self._held: set[int] = set()

    def hold(self, worker_id: int) -> None:
        row = self._ask("try_session_lock", worker_id)
        if row is not True:
            raise UnavailableError(f"the lock of worker {worker_id} is still held by an older session of the server")
        self._held.add(worker_id)

    def is_held(self, worker_id: int) -> bool:
        if worker_id not in self._held or self._connection is None:
            return False
        if _has_something_to_say(self._connection):
            with contextlib.suppress(UnavailableError):
                self._ask_backend()
        return worker_id in self._held

    def release(self, worker_id: int) -> None:
        """Give the lock back. The last one ends with its session, which waits for nobody, not even a silent server."""
        if worker_id in self._held:
            self._held.discard(worker_id)
            if not self._held:
                self._drop()
                return
            with contextlib.suppress(UnavailableError):
                self._ask("release_session_lock", worker_id)

    def is_proof_possible(self, worker: WorkerRow) -> bool:
        if worker.process == process_nonce():
            return False
        with self._database.reading() as tx:
            return bool(tx.run(SQL["is_proof_possible"], {"started_at": worker.started_at, "lease": worker.lease}).all()[0][0])

    def find_free(self, tx: Transaction, workers: Sequence[WorkerRow]) -> set[int]:
        free = {worker.id for worker in workers if worker.is_lock_free}
        unseen = [worker.id for worker in workers if worker.is_lock_free is None]
        if unseen:
            free |= {worker_id for (worker_id,) in tx.run(SQL["find_free_locks"], {"workers": array(unseen)}).all()}
        return free

    def is_free(self, worker: WorkerRow) -> bool:
        """Look at one worker by itself."""
        with self._database.reading() as tx:
            return bool(self.find_free(tx, [worker]))

    def close(self) -> None:
        self._drop()

    def _ask(self, name: str, worker_id: int) -> object:
        connection = self._connected()
        try:
            row = connection.execute(SQL[name], {"worker": worker_id}).fetchone()
        except psycopg.Error as error:
            self._drop()
            raise UnavailableError(f"the connection for the worker's lock broke: {error}") from error
        return row[0] if row else None

    def _ask_backend(self) -> None:
        """Notice a broken connection: with it every lock is gone."""
        if self._connection is None:
            self._held.clear()
            return
        try:
            self._connection.execute(SQL["find_backend"])
        except psycopg.Error as error:
            self._drop()
            raise UnavailableError(f"the connection for the worker's lock broke: {error}") from error

    def _connected(self) -> psycopg.Connection[tuple[object, ...]]:
        if self._connection is None:
            connection = self._database.connect_direct("lock")
            try:
                self._check_direct(connection)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _check_direct(self, connection: psycopg.Connection[tuple[object, ...]]) -> None:
        row = connection.execute(SQL["find_backend"]).fetchone()
        if row is None or row[0] != connection.pgconn.backend_pid:
            raise UnavailableError("a pooler stands between here and the server, so that a lock of a session cannot be held: give `direct_url`")

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        self._held.clear()
        if connection is not None:
            connection.close()


def _has_something_to_say(connection: psycopg.Connection[tuple[object, ...]]) -> bool:
    """Tell without a query whether the server spoke first: what it says to an idle session is that the session is over."""
    if connection.closed:
        return True
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))
