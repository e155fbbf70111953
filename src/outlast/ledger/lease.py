"""Lease: what a caller without an engine renews while it acts, so that others see that somebody does.

Nothing stands on it but patience: a caller whose lease ran out unnoticed is refused by owner and attempt, not by time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

from outlast.database.transaction import Transaction
from outlast.errors import OutlastError
from outlast.limits import LEDGER_RENEWALS_PER_LEASE

from .threads import Threads

logger = logging.getLogger("outlast")


@asynccontextmanager
async def leased(threads: Threads, renew: Callable[[Transaction], bool], lease: timedelta) -> AsyncIterator[None]:
    """Renew a lease, which has just begun, while the block lasts."""
    renewing = asyncio.create_task(_renew(threads, renew, lease))
    try:
        yield
    finally:
        renewing.cancel()
        await asyncio.wait({renewing})


async def _renew(threads: Threads, renew: Callable[[Transaction], bool], lease: timedelta) -> None:
    while True:
        await asyncio.sleep(lease.total_seconds() / LEDGER_RENEWALS_PER_LEASE)
        try:
            await threads.other(lambda: threads.write_blocking(renew))
        except OutlastError as error:
            logger.debug("the lease of an operation was not renewed, and is again soon: %s", error)
