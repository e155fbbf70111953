"""Remembering: the talk of one transactional step with a database, whoever's transaction it is and whichever driver runs it.

Theory of operation. The talk is a generator: it yields the statements that it wants to have run, and what else it wants to
know, and is sent the answers; a runner for drivers that block and one for drivers that are awaited drive the same talk.

In the engine's own database the record of the step is the last that is written in the application's transaction, after the
run's row was locked under the token: what the function wrote and its record commit together, or neither does. In any other
database the step is remembered there, in `outlast_step`, whose primary key lets it be committed once, and `outlast_fence`
refuses a claim that is older than one that has committed.

A function that commits or rolls back by itself would break the bond, and is found out by the transaction's own mark.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from outlast.database.statements import load_statements
from outlast.database.transaction import Ask, Dialect
from outlast.errors import FinalError, LeaseLostError, SchemaError, UsageError

R = TypeVar("R")
R_contra = TypeVar("R_contra", contravariant=True)
_PACKAGES = {Dialect.POSTGRESQL: "outlast.database.borrowed.postgres", Dialect.SQLITE: "outlast.database.borrowed.sqlite"}


class Want(Enum):
    """What a talk wants besides statements."""

    VALUE = auto()
    """What the application's function returns on this connection, as JSON text."""


class Placing(NamedTuple):
    """Wants the record with this result in it: its place in the order of records is fixed now."""

    result: str


Talk = Generator[Ask | Want | Placing, Any, "Kept[R]"]


@dataclass(frozen=True, slots=True)
class Kept(Generic[R]):
    """What a transaction has kept, once it is committed."""

    result: str
    """JSON text."""
    record: R | None
    """The record, where the engine's own tables have it already."""


class OwnTables(Protocol[R_contra]):
    """The engine's tables, as a transaction of the application's knows them: statements only."""

    @property
    def dialect(self) -> Dialect: ...

    @property
    def identity(self) -> str:
        """Of the schema: the same id read through another connection means the same database."""
        ...

    def has_schema(self) -> Ask: ...
    def find_identity(self) -> Ask: ...

    def hold(self) -> Ask:
        """Lock the run under the claim's token; no row means that the claim is not current any more."""
        ...

    def keep(self, record: R_contra) -> Sequence[Ask]: ...


class Remembering(Generic[R]):
    """One transactional step of one run."""

    def __init__(self, own: OwnTables[R], run_id: str, generation: int, key: str, token: int, ensure_wanted: Callable[[], None]) -> None:
        """`ensure_wanted` raises when nobody wants the step to be kept any more."""
        self._own = own
        self._place = {"run": run_id, "generation": generation, "key": key}
        self._token = token
        self._ensure_wanted = ensure_wanted
        self.is_keeping = False
        """The function has returned: a failure from here on is not the function's."""
        self.is_committing = False
        """All is written, and the commit comes next: until it is answered nobody knows."""

    def talk(self, dialect: Dialect) -> Talk[R]:
        """Begin the talk on a transaction that has just begun."""
        self.is_keeping = self.is_committing = False
        sql = load_statements(_PACKAGES[dialect])
        mark = yield Ask(sql["mark"], {})
        if dialect is Dialect.POSTGRESQL and (yield Ask(sql["check_mark"], {})) != mark:
            raise FinalError("ctx.transaction was given a connection that commits each statement by itself: leave autocommit out of its isolation level")
        if dialect is self._own.dialect and (yield from self._is_own_database()):
            return (yield from self._keep_here(sql, mark))
        return (yield from self._keep_there(sql, mark))

    def _is_own_database(self) -> Generator[Ask, Any, bool]:
        if not (yield self._own.has_schema())[0][0]:
            return False
        found = yield self._own.find_identity()
        return bool(found) and str(found[0][0]) == self._own.identity

    def _keep_here(self, sql: dict[str, str], mark: Any) -> Talk[R]:
        result = yield Want.VALUE
        yield from self._finish_value(sql, mark)
        record: R = yield Placing(result)
        if not (yield self._own.hold()):
            raise LeaseLostError("the run is not this claim's any more: what its transaction wrote is undone")
        for ask in self._own.keep(record):  # noqa: UP028 - a list cannot be sent the answers
            yield ask
        self.is_committing = True
        return Kept(result, record)

    def _keep_there(self, sql: dict[str, str], mark: Any) -> Talk[R]:
        found = yield from self._find_step(sql)
        if found:
            return Kept(found[0][0], None)
        result = yield Want.VALUE
        yield from self._finish_value(sql, mark)
        if not (yield Ask(sql["raise_fence"], {"run": self._place["run"], "token": self._token})):
            raise LeaseLostError("a newer claim of the run has committed in this database: what this one's transaction wrote is undone")
        yield Ask(sql["insert_step"], {**self._place, "token": self._token, "result": result})
        self.is_committing = True
        return Kept(result, None)

    def _find_step(self, sql: dict[str, str]) -> Generator[Ask, Any, Any]:
        try:
            return (yield Ask(sql["find_step"], self._place))
        except Exception as error:
            if "outlast_step" in str(error):
                raise SchemaError(
                    "this database is not the engine's and has no table outlast_step: make it with the SQL of outlast.transaction_tables(...)"
                ) from error
            raise

    def _finish_value(self, sql: dict[str, str], mark: Any) -> Generator[Ask, Any, None]:
        self._ensure_wanted()
        try:
            now = yield Ask(sql["check_mark"], {})
        except Exception as error:
            if "savepoint" in str(error).lower():
                raise _ended_by_itself() from error
            raise
        if now != mark:
            raise _ended_by_itself()
        self.is_keeping = True


def _ended_by_itself() -> FinalError:
    return FinalError("the function given to ctx.transaction ended its transaction by itself: leave commit and rollback to the engine")


def transaction_tables(dialect: str) -> str:
    """Return the SQL of the two tables that a database which is not the engine's needs for transactional steps."""
    from outlast.database.migrations import load_migrations

    try:
        package = _PACKAGES[Dialect(dialect)]
    except ValueError:
        raise UsageError(f"{dialect!r} is no dialect: write postgresql or sqlite") from None
    return "\n".join(migration.sql for migration in load_migrations(package))
