"""Serving: which lanes workers claim from that live, or did a minute ago. The listing of lanes and the reading of runs ask it."""

from outlast.database.sqlite.instant import span_to_number
from outlast.database.transaction import Transaction
from outlast.limits import STRANDED_AFTER
from outlast.native.lanes import Served

from .tables import Tables


class Serving(Tables):
    """The part of the store that knows who executes what."""

    def _served(self, tx: Transaction, now: int) -> frozenset[Served]:
        rows = tx.run(self._sql["list_served_lanes"], {"lived_after": now - span_to_number(STRANDED_AFTER)}).all()
        return frozenset(Served(*row) for row in rows)
