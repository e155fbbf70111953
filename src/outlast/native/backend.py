"""Backend: one database as the native engine uses it, put together by `connect`."""

from collections.abc import Callable
from dataclasses import dataclass

from outlast.database.transaction import Database
from outlast.decisions.store import DecisionStore
from outlast.ledger.store import LedgerStore
from outlast.native.doctor.examiner import Examiner
from outlast.native.keeping import Keeping
from outlast.native.liveness import Liveness
from outlast.native.schema import Schema
from outlast.native.store import Store
from outlast.native.wakes import Wakes


@dataclass(frozen=True)
class Backend:
    """The parts of one database."""

    database: Database
    schema: Schema
    store: Store
    ledger: LedgerStore
    decisions: DecisionStore
    keeping: Keeping
    liveness: Liveness
    wakes: Wakes
    examiner: Callable[[], Examiner]
    """Makes what the doctor looks through, with connections of its own."""
