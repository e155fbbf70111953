"""The promises of `outlast.ledger.store.LedgerStore`, written once. An adapter gives a fixture `backend` on an empty database with its schema."""

from .attempts import AttemptsSuite
from .changes import ChangesSuite
from .deleting import DeletingSuite
from .plans import PlansSuite


class LedgerSuite(PlansSuite, ChangesSuite, AttemptsSuite, DeletingSuite):
    """Subclass it in a test module, beside a fixture `backend`."""


__all__ = ["LedgerSuite"]
