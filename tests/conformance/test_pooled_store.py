"""The store on PostgreSQL keeps every promise of the port through PgBouncer in transaction mode."""

from collections.abc import Iterator

import pytest
from tests.outage.pgbouncer import PgBouncer

from outlast.native.backend import Backend
from outlast.native.postgres import postgres_backend
from outlast.testing.store_suite import StoreSuite

pytestmark = pytest.mark.long


@pytest.fixture
def backend(pooler: PgBouncer, postgres_url: str) -> Iterator[Backend]:
    backend = postgres_backend(pooler.url(postgres_url), direct_url=postgres_url)
    backend.schema.ensure("create")
    yield backend
    backend.database.close()


class TestPooledStore(StoreSuite):
    """One empty database a test."""
