"""The ledger on SQLite keeps every promise of the port, under both journals."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast.database.sqlite import Journal
from outlast.native.backend import Backend
from outlast.native.sqlite import sqlite_backend
from outlast.testing.ledger_suite import LedgerSuite


@pytest.fixture(params=["wal", "delete"])
def backend(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Backend]:
    journal: Journal = request.param
    backend = sqlite_backend(tmp_path / "outlast.db", journal=journal)
    backend.schema.ensure("create")
    yield backend
    backend.database.close()


class TestSqliteLedger(LedgerSuite):
    """One empty file a test."""
