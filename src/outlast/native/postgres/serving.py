"""Serving: which lanes workers claim from that live, or did a minute ago. The listing of lanes and the reading of runs ask it."""

from datetime import datetime

from outlast.database.transaction import Transaction
from outlast.limits import STRANDED_AFTER
from outlast.native.lanes import Served

from .parameters import SQL


def list_served(tx: Transaction, now: datetime | None) -> frozenset[Served]:
    return frozenset(Served(*row) for row in tx.run(SQL["list_served_lanes"], {"lived_within": STRANDED_AFTER, "now": now}).all())
