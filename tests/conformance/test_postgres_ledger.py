"""The ledger on PostgreSQL keeps every promise of the port."""

from collections.abc import Iterator

import pytest

from outlast.native.backend import Backend
from outlast.native.postgres import postgres_backend
from outlast.testing.ledger_suite import LedgerSuite


@pytest.fixture
def backend(postgres_url: str) -> Iterator[Backend]:
    backend = postgres_backend(postgres_url)
    backend.schema.ensure("create")
    yield backend
    backend.database.close()


class TestPostgresLedger(LedgerSuite):
    """One empty database a test."""
