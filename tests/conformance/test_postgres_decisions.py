"""Decisions on PostgreSQL keep every promise of the port."""

from collections.abc import Iterator

import pytest

from outlast.native.backend import Backend
from outlast.native.postgres import postgres_backend
from outlast.testing.decision_suite import DecisionSuite


@pytest.fixture
def backend(postgres_url: str) -> Iterator[Backend]:
    backend = postgres_backend(postgres_url)
    backend.schema.ensure("create")
    yield backend
    backend.database.close()


class TestPostgresDecisions(DecisionSuite):
    """One empty database a test."""
